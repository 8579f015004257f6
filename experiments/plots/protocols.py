"""The figure of `protocols`: the score of each protocol over virtual seconds, without and with a straggler, and over epochs."""

from experiments.plots.figures import plt, save

# Colours of Okabe and Ito (2008), which people with any colour vision tell apart, once with and once without a marker.
COLOURS = "#000000", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9"
STYLES = [dict(color=colour, ls=line, marker=marker, ms=4, mfc="white", lw=1.4)
          for line, marker in (("-", "o"), ("--", "s"), (":", "^")) for colour in COLOURS]  # fmt: skip
LABELS = {"accuracy": "test accuracy (%)", "mse": "test mean squared error"}


def draw(results, out):
    """results: all of `protocols`. out: the figure, a file that matplotlib can write."""
    results = [result for result in results if result["time"] == "virtual"]
    names = list(dict.fromkeys(run["protocol"] for result in results for run in result["runs"]))
    styles = {name: STYLES[number % len(STYLES)] for number, name in enumerate(names)}
    figure, rows = plt.subplots(len(results), 3, figsize=(15, 3.7 * len(results) + 1), squeeze=False, layout="constrained")
    for result, panels in zip(results, rows):
        factor = max(run["straggler"] for run in result["runs"])
        kinds = ("seconds", 1.0), ("seconds", factor), ("epoch", 1.0)
        for panel, (entry, straggler) in zip(panels, kinds):
            for run in result["runs"]:
                if run["straggler"] == straggler:
                    points = [(row[entry], row["score"]) for row in run["history"]]
                    panel.plot(*zip(*points) if points else ([], []), **styles[run["protocol"]], label=run["protocol"])
            finish(panel, result, entry, straggler)
    handles = [plt.Line2D([], [], **styles[name], label=name) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=7, fontsize=9)
    save(figure, out)


def finish(panel, result, entry, straggler):
    """Label a panel. entry, straggler: what it shows."""
    ends = [row["score"] for run in result["runs"] for row in run["history"]]
    if result["score"] == "accuracy":
        panel.set_ylim(bottom=max(0, sorted(ends)[len(ends) // 8] - 2) if ends else 0)
    else:
        panel.set_yscale("log")
    if target := result["settings"]["target"]:
        panel.axhline(target, color="#888888", lw=0.8)
    panel.set_xlim(left=0)
    panel.grid(alpha=0.3)
    order = ", sorted by label" * result["sorted"]
    who = f"one worker {straggler:g} times as slow" if straggler > 1 else "workers equally fast"
    panel.set_title(f"{result['net']} on {result['dataset']}{order}, {result['workers']} workers, {who}", fontsize=9)
    panel.set(xlabel="virtual time (s)" if entry == "seconds" else "epochs", ylabel=LABELS[result["score"]])
