"""The figure of `servers`: updates a second of a parameter server against the number of workers."""

from gridgrad.experiments.plots.figures import draw_ranges, measured_on, plt, save

COLOURS = {"measured": "#31688e", "simulated": "#e08214", "predicted": "black"}


def draw(result, out):
    """result: what `servers` measured of the limit. out: the figure, a file that matplotlib can write."""
    figure, panel = plt.subplots(figsize=(8, 5.5), layout="constrained")
    rows, tau, cycle = result["rows"], result["tau"], result["compute"] + result["alone"]
    workers, most = [row["workers"] for row in rows], max(row["workers"] for row in rows)
    knee, limit = min(cycle / tau, most), min(most / cycle, 1 / tau)
    panel.plot([0, knee, most], [0, limit, limit], color=COLOURS["predicted"], lw=1,
               label=r"predicted: $\min(W / (T + R),\ 1 / \tau)$")  # fmt: skip
    shared = result["cores"] / (tau + result["own"])
    panel.axhline(shared, color="#666666", lw=1, ls="--", label=f"what {result['cores']} cores can do, workers included")
    panel.axvline(result["compute"] / tau, color="#666666", lw=1, ls=":", label=rf"$T / \tau$ = {result['compute'] / tau:.1f}")
    panel.plot(workers, [row["simulated"] for row in rows], color=COLOURS["simulated"], ls="", marker="s", ms=10, mfc="none",
               label="simulated")  # fmt: skip
    measured, least, greatest = ([row[name] for row in rows] for name in ("measured", "least", "most"))
    draw_ranges(panel, workers, measured, least, greatest, color=COLOURS["measured"], marker="o", ls="", capsize=4,
                label="measured: median, min to max of rounds")  # fmt: skip
    panel.set(xlabel="workers W, beside the server", ylabel="updates a second", xlim=(0, None), ylim=(0, None))
    panel.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2)
    times = {"T": result["compute"], "R": result["alone"], r"$\tau$": tau}
    milliseconds = ", ".join(f"{name} = {1e3 * seconds:.3g} ms" for name, seconds in times.items())
    ranks = f"{result['ranks']} ranks on {result['cores']} cores, where the workers sleep for T"
    problem = f"{result['parameters']:,} parameters on one server: {milliseconds}"
    figure.suptitle(f"{problem}\n{ranks}\n{measured_on(result['versions'])}", fontsize=9)
    save(figure, out)
