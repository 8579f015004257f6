"""Draw what `sweep` and the studies wrote.

    gridgrad plot speedup results/speedup.jsonl --out results/speedup.png
    gridgrad plot weak measured.jsonl predicted.jsonl --out weak.pdf
    gridgrad plot throughput FILE.jsonl --machine cori-haswell
    gridgrad plot breakdown results/breakdown.jsonl --layers
    gridgrad plot compare before.jsonl after.jsonl
    gridgrad plot compare --across reduction plain.jsonl overlap.jsonl
    gridgrad plot crossover results/crossover.json
    gridgrad plot predictions results/predictions/*.json --out results/predictions.md

Figures of sweeps are as wide as a column or two of a paper, and may be of several files, measured and predicted ones. What was
measured on different machines, or with different code, is not drawn as one line (`experiments/plots/curves.py`).
"""

from pathlib import Path

from gridgrad.experiments.common.kept_results import fitting
from gridgrad.experiments.common.options import Parser, check_writable, number, user_input, whole
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.plots import (
    breakdown,
    compare,
    convergence,
    crossover,
    curves,
    measures,
    paper,
    predictions,
    protocols,
    roofline,
    scaling,
    servers,
    unequal,
)
from gridgrad.experiments.plots.figures import save
from gridgrad.nn.files.documents import content_of_file
from gridgrad.parallel.job.run import run_launcher
from gridgrad.parallel.prediction import machine as machines


def plot_scaling(args):
    out = out_of_sweep(args, args.reports[0])
    figure, said = scaling.draw(curves.read(args.reports), args.kind, args.width, getattr(args, "machine", None))
    save(figure, out, paper.DPI)
    return out, said


def plot_breakdown(args):
    out = out_of_sweep(args, args.reports[0])
    save(breakdown.draw(curves.read(args.reports), args.layers, args.width), out, paper.DPI)
    return out, []


def plot_compare(args):
    out = out_of_sweep(args, args.other)
    across = args.across and args.across.strip().removeprefix("--").replace("-", "_")
    points, found = compare.read(args.one, args.other, across)
    words = compare.words_of(points, found, across)
    figure = compare.draw(points, list(curves.names_of([args.one, args.other]).values()), words, args.width)
    save(figure, out, paper.DPI)
    return out, [compare.table_of(points), *words]


def plot_crossover(args):
    out = out_of(args, args.report)
    result = crossover.read(args.report)
    crossover.draw(result, args.at or crossover.bars_of(result), out)
    return out, []


def plot_predictions(args):
    out = out_of(args, None)
    write_text(out, predictions.document([predictions.read(path) for path in args.reports]))
    return out, []


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
    return out, []


def out_of(args, beside, more=""):
    """The file to write, which can be written: --out, else a figure beside a report, with its name and `more`."""
    out = args.out or str(Path(beside).with_name(f"{Path(beside).stem}{more}.png"))
    check_writable(out)
    return out


def out_of_sweep(args, beside):
    """The file to write, which can be written: --out, else a figure beside the reports, whose name says its kind too."""
    return out_of(args, beside, f"-{args.kind}")


def options():
    parser = Parser(prog="plot", description="Draw scaling studies, where the time of a step goes, and what studies wrote.")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")

    def add(name, draw, words, reports, default="default: beside the reports, as .png", **many):
        kind = kinds.add_parser(name, prog=f"plot {name}", help=words, description=f"{words[0].upper()}{words[1:]}.")
        kind.set_defaults(draw=draw)
        kind.add_argument(*reports, **many)
        kind.add_argument("--out", metavar="FILE", help=f"the file to write, {default}")
        return kind

    def add_of_sweep(name, draw, words, reports=("reports",), what="runs that sweep measured or predicted", **many):
        beside = f".png, .pdf or .svg (default: beside the reports, as FILE-{name}.png)"
        kind = add(name, draw, words, reports, beside, metavar="FILE.jsonl", help=what, **many)
        kind.add_argument("--width", type=number(least=paper.NARROWEST, below=paper.WIDEST), metavar="INCHES",
                          help=f"width of the figure (default: {paper.COLUMN} or {paper.PAGE}: a column or two)")  # fmt: skip
        return kind

    for name, kind in measures.KINDS.items():
        mine = add_of_sweep(name, plot_scaling, kind.words, nargs="+")
        if name == "throughput":
            mine.add_argument("--machine", metavar="NAME", help="also draw the share of this machine's peak: a file that "
                              f"calibrate wrote, or one of {', '.join(machines.names())}")  # fmt: skip
    words = "how the time of a step is spent on each number of ranks, and how efficiently"
    bars = add_of_sweep("breakdown", plot_breakdown, words, nargs="+")
    bars.add_argument("--layers", action="store_true", help="tell the layers apart, of runs of sweep --profile")
    words = "two sweeps point by point: which points are faster or slower by more than noise"
    pair = add_of_sweep("compare", plot_compare, words, ["one"], "a sweep, such as that before a change")
    pair.add_argument("other", metavar="FILE.jsonl", help="a sweep of the same points, such as that after the change")
    pair.add_argument("--across", metavar="SETTING", help="also compare points that differ in this setting alone, such as "
                      "reduction or batch-size")  # fmt: skip
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
        out, said = args.draw(args)
    print("\n".join([*said, f"{out} written"]))


if __name__ == "__main__":
    run_launcher(main)
