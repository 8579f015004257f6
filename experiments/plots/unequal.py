"""The figure of `unequal`: a step by each rule, and the steps of a run in which a rank becomes slow."""

from gridgrad.experiments.plots.figures import measured_on, plt, save

COLOURS = {"even": "#b5b5b5", "constant": "#5ec962", "function": "#31688e", "ideal": "#fde725"}


def draw(results, out):
    """results: what `unequal` measured for one problem. out: the figure, a file that matplotlib can write."""
    figure, (bars, run) = plt.subplots(1, 2, figsize=(12, 4.8), width_ratios=(2, 3), layout="constrained")
    names = list(results["median"])
    heights = [results["median"][name] * 1e3 for name in names]
    least, most = ([f(row[name] for row in results["rounds"]) * 1e3 for name in names] for f in (min, max))
    spread = [[h - low for h, low in zip(heights, least)], [high - h for h, high in zip(heights, most)]]
    bars.bar(names, heights, color=[COLOURS[name] for name in names], yerr=spread, capsize=4)
    for place, (height, top) in enumerate(zip(heights, most)):
        bars.annotate(f"{height:.1f}", (place, top), (0, 3), textcoords="offset points", ha="center")
    bars.set(ylim=(0, max(most) * 1.12), xlabel="shares", ylabel="ms a step (median, min to max of rounds)")
    bars.set_title("shares by each rule, and the harmonic limit")

    steps = [seconds * 1e3 for seconds in results["step_seconds"]]
    run.plot(range(len(steps)), steps, color=COLOURS["function"], marker=".", label="measured step")
    run.axvline(results["slow_from"] - 0.5, color="black", ls=":", label=f"handicap {results['handicap']} sets in")
    for entry in results["rebalancing"]:
        if entry["adopted"]:
            run.axvline(entry["step"] - 0.5, color="#e08214", ls="--", lw=1)
    run.plot([], [], color="#e08214", ls="--", lw=1, label="new shares")
    run.axhline(results["median"]["function"] * 1e3, color="black", lw=0.8, label="shares by function from the start")
    run.set(xlabel="training step", ylabel="ms a step", ylim=(0, None), title="a rank becomes slow in mid-run")
    run.legend()
    for panel in (bars, run):
        panel.grid(axis="y", alpha=0.3)
        panel.set_axisbelow(True)
    figure.suptitle(
        f"{results['net']}, batch {results['batch_size']}, {results['grid']}, rank=factor {results['handicap']}\n"
        + measured_on(results["versions"]),
        fontsize=10,
    )
    save(figure, out)
