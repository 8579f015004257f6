"""Draw what `sweep` wrote.

    python -m experiments.plot speedup results/speedup.jsonl --out results/speedup.png

Reads only the reports. Refuses to draw together runs whose data, global batch, threads a rank or machine differ.
"""

import json
from collections import defaultdict
from math import prod
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from datasets.files import written_whole
from experiments.options import Parser, check_writable, user_input
from parallel.grid import AXES, parse_grid
from parallel.job import run_launcher

SAME = {  # what all runs of one figure must share: (how it is called, where it stands in a report)
    "data set": ("dataset",),
    "global batch size": ("settings", "batch_size"),
    "threads a rank": ("versions", "threads"),
    "type of numbers": ("settings", "dtype"),
    "plan": ("settings", "plan"),
    "machine": ("versions", "processor"),
    "MPI library": ("versions", "mpi"),
    "number of cores": ("slots",),
}


def read(path):
    """The reports of a sweep; ValueError if a line is not one, or if runs do not compare."""
    reports = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        try:
            report = json.loads(line)
            report["axes"] = parse_grid(report["grid"])
            report["P"], report["net"], report["seconds_per_step"]["median"], report["oversubscribed"]
            for place in SAME.values():
                _at(report, place)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: line {number} is not a report of sweep ({error!r}); run sweep again") from None
        reports.append(report)
    if not reports:
        raise ValueError(f"{path}: no reports; run sweep first")
    for what, place in SAME.items():
        found = sorted({str(_at(report, place)) for report in reports})
        if len(found) > 1:
            raise ValueError(f"{path}: runs differ in {what} ({', '.join(found)}) and do not compare; draw them apart")
    return reports


def _at(report, place):
    for key in place:
        report = report[key]
    return report


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
    """A panel for each axis alone, over P, and one for all grids of the largest P that has one of several axes."""
    values = speedups(reports)
    nets, grids = (list(dict.fromkeys(key[i] for key in values)) for i in (0, 1))
    alone = {axis: [g for g in grids if g[i] == prod(g)] for i, axis in enumerate(AXES)}
    alone = {axis: sorted(found) for axis, found in alone.items() if max(map(prod, found), default=1) > 1}
    mixed = [prod(g) for g in grids if sum(n > 1 for n in g) > 1]
    oversubscribed = {r["P"] for r in reports if r["oversubscribed"]}
    colours = dict(zip(nets, plt.cm.viridis([i / max(len(nets) - 0.6, 1) for i in range(len(nets))])))
    count = max(1, len(alone) + bool(mixed))
    figure, panels = plt.subplots(1, count, figsize=(5 * count, 5.2), sharey=True, layout="constrained", squeeze=False)
    panels = panels[0]

    def curve(panel, net, grids, where):
        """One network's line through `grids` at positions `where`: filled where each rank has a core."""
        if not grids:
            return
        middle, low, high = zip(*(values[net, grid] for grid in grids))
        errors = [[m - a for m, a in zip(middle, low)], [b - m for m, b in zip(middle, high)]]
        panel.errorbar(where, middle, errors, color=colours[net], capsize=3, lw=1.5, label=net.removeprefix("mlp:"))
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
        panel.set_xticks(ranks, [f"{p}{'*' if p in oversubscribed else ''}" for p in ranks])
        panel.set(title=f"{axis.capitalize()} parallelism", xlabel="ranks P")
    if mixed:
        total = max(mixed)
        found = sorted((grid for grid in grids if prod(grid) == total), key=lambda grid: grid[::-1])
        shown = [i for i in range(len(AXES)) if any(grid[i] > 1 for grid in found)]
        for net in nets:
            mine = [grid for grid in found if (net, grid) in values]
            curve(panels[-1], net, mine, [found.index(grid) for grid in mine])
        star = "*" if total in oversubscribed else ""
        panels[-1].set_xticks(range(len(found)), [" x ".join(str(grid[i]) for i in shown) for grid in found])
        panels[-1].set(title=f"All grids of P = {total}{star}", xlabel=f"grid, {' x '.join(AXES[i] for i in shown)}")
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
    figure.legend(handles, labels, title="network", loc="outside right upper")
    r = reports[0]
    data = r["dataset"] if "synthetic" in r["dataset"] or not r.get("synthetic") else f"{r['dataset']} (synthetic)"
    note = f"   * oversubscribed: more ranks than the {r['slots']} cores" if oversubscribed else ""
    figure.suptitle(
        f"Strong scaling on {data}, global batch {r['settings']['batch_size']}, {r['versions']['processor']}, "
        f"{r['versions']['mpi']}, {r['versions']['threads']} BLAS thread a rank{note}",
        fontsize=10,
    )
    with written_whole(out) as beside:
        figure.savefig(beside, dpi=110, format=Path(out).suffix.lstrip(".") or "png")
    plt.close(figure)


KINDS = {"speedup": draw_speedup}


def main():
    parser = Parser(prog="plot", description="Draw what sweep wrote.")
    parser.add_argument("kind", choices=KINDS, help="what to draw")
    parser.add_argument("reports", metavar="FILE.jsonl", help="what sweep wrote")
    parser.add_argument("--out", help="the figure (.png, .pdf or .svg); default beside the reports")
    args = parser.parse_args()
    out = args.out or str(Path(args.reports).with_suffix(".png"))
    with user_input():
        check_writable(out)
        KINDS[args.kind](read(args.reports), out)
    print(f"figure written to {out}")


if __name__ == "__main__":
    run_launcher(main)
