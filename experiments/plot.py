"""Draw what `sweep` and the studies wrote.

    gridgrad plot speedup results/speedup.jsonl --out results/speedup.png
    gridgrad plot breakdown results/breakdown.jsonl --out results/breakdown.png
    gridgrad plot speedup results/speedup.jsonl --predicted FILE.jsonl --out FILE.png
    gridgrad plot crossover results/crossover.json
    gridgrad plot predictions results/predictions/*.json --out results/predictions.md

With `--predicted` the curves are those of `sweep --predict`, on far more ranks, and what was measured is drawn into them.
Reads only the reports. Refuses to draw together runs whose data, global batch, threads a rank or machine differ.
"""

from collections import defaultdict
from math import prod
from pathlib import Path
from statistics import median

from gridgrad.experiments.common.kept_results import fitting
from gridgrad.experiments.common.options import Parser, check_writable, user_input, whole
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.plots import convergence, crossover, predictions, protocols, roofline, servers, unequal
from gridgrad.experiments.plots.breakdown import draw_breakdown
from gridgrad.experiments.plots.figures import colours_of, crowded, draw_ranges, entitle, plt, read, save, starred
from gridgrad.experiments.plots.predicted import draw_predicted, read_predicted
from gridgrad.nn.files.json_text import content_of_file
from gridgrad.parallel.grid.process_grid import AXES
from gridgrad.parallel.job.run import run_launcher


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


def plot_speedup(args):
    if not args.reports and not args.predicted:
        raise ValueError("name the reports to draw: a file that sweep wrote, or --predicted and one of sweep --predict")
    out = out_of(args, args.reports or args.predicted[0])
    reports = read(args.reports) if args.reports else []
    if args.predicted:
        draw_predicted(reports, read_predicted(args.predicted), out)
    else:
        draw_speedup(reports, out)
    return out


def plot_breakdown(args):
    out = out_of(args, args.reports)
    draw_breakdown(read(args.reports, may_differ=("global batch size",)), out)
    return out


def plot_crossover(args):
    out = out_of(args, args.report)
    result = crossover.read(args.report)
    crossover.draw(result, args.at or crossover.bars_of(result), out)
    return out


def plot_predictions(args):
    out = out_of(args, None)
    write_text(out, predictions.document([predictions.read(path) for path in args.reports]))
    return out


STUDIES = {  # kind: (draws its figure, what it draws of the results, in words)
    "convergence": (convergence.draw, lambda results: results[-1], "the accuracy of each way to train, of the last problem"),
    "protocols": (protocols.draw, list, "the score of each update protocol, over time and over epochs"),
    "roofline": (roofline.draw, dict, "how close the layers of networks come to what one core can do"),
    "servers": (servers.draw, lambda results: [one for one in results if one["part"] == "limit"][-1], "the limit of servers"),
    "unequal": (unequal.draw, lambda results: results[-1], "shares of unequal ranks, of the last problem"),
}


def plot_study(args):
    draw, of_results, _ = STUDIES[args.kind]
    out = out_of(args, args.report)
    with fitting(f"{args.report} holds no results of gridgrad study {args.kind} that can be drawn"):
        draw(of_results(content_of_file(args.report)), out)
    return out


def out_of(args, beside):
    """The file to write, which can be written: --out, else a figure beside the reports."""
    out = args.out or str(Path(beside).with_suffix(".png"))
    check_writable(out)
    return out


def options():
    parser = Parser(prog="plot", description="Draw speedups, where the time of a step goes, and what studies wrote.")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")

    def add(name, draw, words, reports, default="default: beside the reports, as .png", **many):
        kind = kinds.add_parser(name, prog=f"plot {name}", help=words, description=f"{words[0].upper()}{words[1:]}.")
        kind.set_defaults(draw=draw)
        kind.add_argument(*reports, **many)
        kind.add_argument("--out", metavar="FILE", help=f"the file to write, {default}")
        return kind

    sweep = {"metavar": "FILE.jsonl"}
    speedup = add(
        "speedup", plot_speedup, "the speedup of each run over one rank", ["reports"], nargs="?",
        help="reports of sweep; may be left out with --predicted", **sweep,
    )  # fmt: skip
    speedup.add_argument("--predicted", nargs="+", help="reports that sweep --predict wrote", **sweep)
    words = "how the time of a step is spent on each number of ranks"
    add("breakdown", plot_breakdown, words, ["reports"], help="reports of sweep --profile", **sweep)
    bars = add(
        "crossover", plot_crossover, "steps and bytes of each grid, by batch size", ["report"], metavar="FILE.json",
        help="what `gridgrad study crossover` wrote",
    )  # fmt: skip
    bars.add_argument("--at", type=whole(1), metavar="B", help="the batch size of the bars (default: 64, else the smallest)")
    tables = add(
        "predictions", plot_predictions, "tables of predicted beside measured steps, of several machines", ["reports"],
        "a table in Markdown", nargs="+", metavar="FILE.json", help="what `gridgrad study predictions` wrote",
    )  # fmt: skip
    tables.set_defaults(out="results/predictions.md")
    for name, (_, _, words) in STUDIES.items():
        add(name, plot_study, words, ["report"], metavar="FILE.json", help=f"what `gridgrad study {name}` wrote")
    return parser


def main():
    args = options().parse_args()
    with user_input():
        out = args.draw(args)
    print(f"{out} written")


if __name__ == "__main__":
    run_launcher(main)
