"""Draw what `sweep` wrote.

    python -m experiments.plot speedup results/speedup.jsonl --out results/speedup.png
    python -m experiments.plot breakdown results/breakdown.jsonl --out results/breakdown.png
    python -m experiments.plot speedup results/speedup.jsonl --predicted FILE.jsonl --out FILE.png

With `--predicted` the curves are those of `sweep --predict`, on far more ranks, and what was measured is drawn into them.
Reads only the reports. Refuses to draw together runs whose data, global batch, threads a rank or machine differ.
"""

from collections import defaultdict
from math import prod
from pathlib import Path
from statistics import median

from experiments.common.options import Parser, check_writable, user_input
from experiments.plots.breakdown import draw_breakdown
from experiments.plots.figures import colours_of, crowded, draw_ranges, entitle, plt, read, save, starred
from experiments.plots.predicted import draw_predicted, read_predicted
from parallel.grid.process_grid import AXES
from parallel.job.run import run_launcher


def speedups(reports):
    """{(net, grid): (median, min, max)} of the speedup over the serial run of the same network; a grid is its sizes by AXES.

    Each run's time is its median step; the speedup is the median serial time over it, for each repeat.
    ValueError if a network has no serial run.
    """
    times = defaultdict(list)
    for r in reports:
        times[r["net"], tuple(r["axes"].get(axis, 1) for axis in AXES)].append(r["seconds_per_step"]["median"])
    result, serial = {}, (1,) * len(AXES)
    for (net, grid), seconds in times.items():
        if (net, serial) not in times:
            raise ValueError(f"no serial run (1 rank) of {net} to compare with; add 1 to --ranks of the sweep")
        ratios = [median(times[net, serial]) / s for s in seconds]
        result[net, grid] = median(ratios), min(ratios), max(ratios)
    return result


def draw_speedup(reports, out):
    save(speedup_figure(reports), out)


def speedup_figure(reports):
    """A panel for each axis used alone, over P, and one for all grids of the largest P that has a grid of several axes."""
    values = speedups(reports)
    nets, grids = (list(dict.fromkeys(key[i] for key in values)) for i in (0, 1))
    alone = {axis: [g for g in grids if g[i] == prod(g)] for i, axis in enumerate(AXES)}
    alone = {axis: sorted(found) for axis, found in alone.items() if max(map(prod, found), default=1) > 1}
    mixed = [prod(g) for g in grids if sum(n > 1 for n in g) > 1]
    oversubscribed = crowded(reports)
    colours = colours_of(nets)
    count = max(1, len(alone) + bool(mixed))
    figure, panels = plt.subplots(1, count, figsize=(5 * count, 5.2), sharey=True, layout="constrained", squeeze=False)
    panels = panels[0]

    def curve(panel, net, grids, where):
        """One network's line through `grids` at positions `where`: filled where each rank has a core."""
        if not grids:
            return
        middle, low, high = zip(*(values[net, grid] for grid in grids))
        draw_ranges(panel, where, middle, low, high, color=colours[net], capsize=3, lw=1.5, label=net.removeprefix("mlp:"))
        for x, y, grid in zip(where, middle, grids):
            hollow = prod(grid) in oversubscribed
            panel.plot(x, y, "o", color=colours[net], markerfacecolor="white" if hollow else colours[net], ms=7, zorder=3)

    for panel, (axis, found) in zip(panels, alone.items()):
        ranks = [prod(grid) for grid in found]
        panel.plot(ranks, ranks, "k--", lw=1, label="ideal")
        for net in nets:
            mine = [grid for grid in found if (net, grid) in values]
            curve(panel, net, mine, [prod(grid) for grid in mine])
        panel.set_xscale("log", base=2)
        panel.set_xticks(ranks, [starred(p, reports) for p in ranks])
        panel.set(title=f"{axis.capitalize()} parallelism", xlabel="ranks P")
    if mixed:
        total = max(mixed)
        found = sorted((grid for grid in grids if prod(grid) == total), key=lambda grid: grid[::-1])
        shown = [i for i in range(len(AXES)) if any(grid[i] > 1 for grid in found)]
        for net in nets:
            mine = [grid for grid in found if (net, grid) in values]
            curve(panels[-1], net, mine, [found.index(grid) for grid in mine])
        panels[-1].set_xticks(range(len(found)), [" x ".join(str(grid[i]) for i in shown) for grid in found])
        panels[-1].set_title(f"All grids of P = {starred(total, reports)}")
        panels[-1].set_xlabel(f"grid, {' x '.join(AXES[i] for i in shown)}")
        panels[-1].margins(x=0.15)
    for panel in panels:
        panel.axhline(1, color="grey", lw=0.8)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("speedup over 1 rank (median step, min to max of repeats)")
    panels[0].set_yscale("log", base=2)
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    handles, labels = panels[0].get_legend_handles_labels()
    if oversubscribed:
        handles.append(plt.Line2D([], [], color="black", marker="o", markerfacecolor="white", ls="", ms=7))
        labels.append("oversubscribed")
    # The title may be as wide as the figure: a legend at the upper right would cover its end.
    figure.legend(handles, labels, title="network", loc="outside right center")
    entitle(figure, reports, "Strong scaling", f"global batch {reports[0]['settings']['batch_size']}")
    return figure


KINDS = {
    "speedup": (draw_speedup, ()),
    "breakdown": (draw_breakdown, ("global batch size",)),
}  # and the settings in which the runs may differ


def main():
    parser = Parser(prog="plot", description="Draw what sweep wrote.")
    parser.add_argument(
        "kind", choices=KINDS, help="speedup: the speedup over 1 rank; breakdown: how the time of a step is spent"
    )
    words = "reports that sweep wrote, for a breakdown with --profile; may be left out with --predicted"
    parser.add_argument("reports", nargs="?", metavar="FILE.jsonl", help=words)
    parser.add_argument("--predicted", nargs="+", metavar="FILE.jsonl", help="for speedup: reports that sweep --predict wrote")
    parser.add_argument("--out", help="the figure (.png, .pdf or .svg); default beside the reports")
    args = parser.parse_args()
    draw, may_differ = KINDS[args.kind]
    with user_input():
        if not args.reports and not args.predicted:
            raise ValueError("name the reports to draw: a file that sweep wrote, or --predicted and one of sweep --predict")
        if args.predicted and args.kind != "speedup":
            raise ValueError(f"--predicted goes with speedup, not with {args.kind}")
        out = str(Path(args.reports or args.predicted[0]).with_suffix(".png")) if args.out is None else args.out
        check_writable(out)
        reports = read(args.reports, may_differ) if args.reports else []
        if args.predicted:
            draw_predicted(reports, read_predicted(args.predicted), out)
        else:
            draw(reports, out)
    print(f"figure written to {out}")


if __name__ == "__main__":
    run_launcher(main)
