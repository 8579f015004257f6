"""Draw what `sweep`, `train --trace`, `summary --measure` and the studies wrote, as wide as a column of a paper or a page.

gridgrad plot speedup results/speedup.jsonl --out speedup.pdf --out speedup.png
gridgrad plot speedup results/speedup.jsonl --out page.html
gridgrad plot weak measured.jsonl predicted.jsonl --only "batch;model" --height 2
gridgrad plot time predicted.jsonl --where "network=vgg16;scaling=strong"
gridgrad plot breakdown results/breakdown.jsonl
gridgrad plot breakdown plain.json overlap.json
gridgrad plot compare --across reduction plain.jsonl overlap.jsonl
gridgrad plot timeline trace.json --width page
gridgrad plot lines results/convergence.json --x epoch --y test_accuracy --series way
"""

import argparse
import re
from pathlib import Path

from gridgrad.experiments.common.options import Parser, check_writable, number, user_input
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.common.tables import lines as markdown
from gridgrad.experiments.common.tables import terminal
from gridgrad.experiments.plots import breakdown, compare, curves, lines, roofline, scaling, style, timeline
from gridgrad.experiments.scaling import model, records, summary
from gridgrad.parallel.job.run import run_launcher

FIGURE, PAGE = (".png", ".pdf", ".svg"), ".html"  # what --out may end with


# What draws a kind returns (the figure, lines for the terminal).


def plot_scaling(args, look):
    return scaling.draw(lines_of(args), args.kind, look)


def plot_breakdown(args, look):
    if {Path(path).suffix for path in args.files} == {".json"}:
        return breakdown.draw_traces(args.files, look)
    return breakdown.draw(lines_of(args), look), []


def plot_compare(args, look):
    one, other = args.files
    across = args.across and args.across.strip().removeprefix("--").replace("-", "_")
    points, found = compare.read(one, other, across)
    words = compare.words_of(points, found, across)
    figure = compare.draw(points, list(curves.names_of(args.files).values()), words, look)
    return figure, [compare.table_of(points), *words]


def plot_roofline(args, look):
    return roofline.draw(roofline.read(*args.files), look), []


def plot_timeline(args, look):
    return timeline.draw(*args.files, args.steps, look), []


def plot_lines(args, look):
    if args.bars and (len(args.bars) != 2 or len(args.y) != 1):
        raise ValueError("--bars LOW,HIGH: two columns, for a single --y")
    table = lines.read(args.files)
    labels = (args.xlabel or args.x, args.ylabel or "\n".join(args.y))
    more = {"series": args.series or (), "panel": args.panel, "log": args.log or "", "bars": args.bars or (), "only": args.only}
    try:
        return lines.draw(lines.chosen(table, args.where or {}), args.x, args.y, labels=labels, look=look, **more), []
    except ValueError as error:
        raise ValueError(f"{', '.join(args.files)}: {error}") from None


def lines_of(args):
    """The Lines that are asked for."""
    where = {name: [value] for name, value in (args.where or {}).items()} | ({"series": args.only} if args.only else {})
    return curves.chosen(curves.read(args.files), where)


# ----- the command line


def split(mark):
    """An option type: a list of the words between marks."""
    return lambda text: [word.strip() for word in text.split(mark) if word.strip()]


def width(text):
    """An option type: column, page, or inches."""
    named = {"column": style.COLUMN, "page": style.PAGE}
    return named[text] if text in named else number(least=2.0, below=40.0)(text)


def steps(text):
    """An option type: the first and the last step of "7-9", or of "7"."""
    if not re.fullmatch(r"\d{1,9}(-\d{1,9})?", text):
        raise argparse.ArgumentTypeError(f"must be the number of a step or two, such as 7-9, not '{text}'")
    first, _, last = text.partition("-")
    return tuple(sorted((int(first), int(last or first))))


def pairs(text):
    """An option type: {column: value} of "NAME=VALUE;NAME=VALUE"."""
    found = dict(word.split("=", 1) for word in split(";")(text) if "=" in word)
    if len(found) != len(split(";")(text)):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, or several behind semicolons, not '{text}'")
    return found


def options():
    parser = Parser(prog="plot", description="Draw scaling studies, where the time of a step goes, and anything in columns.")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")

    def add(name, draw, words, metavar, nargs, what, has_series=True):
        kind = kinds.add_parser(name, prog=f"plot {name}", help=words, description=f"{words[0].upper()}{words[1:]}.")
        kind.set_defaults(draw=draw, model=None)
        kind.add_argument("files", nargs=nargs, metavar=metavar, help=what)
        option = kind.add_argument
        page = "; .html: the page of the study" if name in scaling.KINDS else ""
        option("--out", action="append", metavar="FILE", help="a .png, .pdf or .svg file, once for each (default: beside the "
               f"first file, as FILE-{name}.png){page}")  # fmt: skip
        option("--width", type=width, metavar="column|page|INCHES", help=f"{style.COLUMN} or {style.PAGE} inches, or a number "
               "(default: what the panels need)")  # fmt: skip
        option("--height", type=number(least=1.0, below=40.0), metavar="INCHES", help="default: what the panels need")
        option("--no-caption", action="store_true", help="leave out the words below the panels")
        if has_series:
            option("--only", type=split(";"), metavar="SERIES;..", help="draw these lines alone")
            option("--where", type=pairs, metavar="NAME=VALUE;..", help="draw alone what has these values in its columns, such "
                   "as network=vgg16;scaling=strong of a sweep")  # fmt: skip
        return option

    for name, kind in scaling.KINDS.items():
        option = add(name, plot_scaling, kind.words, "FILE.jsonl", "+", "runs that sweep measured or predicted")
        option("--title", help="of the page that --out FILE.html writes")
        if name == "speedup":
            option("--model", action="store_true", help="also tell serial fractions, and errors of predictions")
    add("breakdown", plot_breakdown, "how the time of a step is spent on each number of ranks, and how efficiently", "FILE",
        "+", "runs of sweep (.jsonl), or traces of train (.json): one with --reduction plain beside one with overlap says how "
        "much of the all-reduce is hidden")  # fmt: skip
    option = add("compare", plot_compare, "two sweeps point by point: which points are faster or slower by more than noise",
                 "FILE.jsonl", 2, "sweeps of the same points, such as before and after a change", has_series=False)  # fmt: skip
    option("--across", metavar="SETTING", help="also compare points that differ in this setting alone, such as reduction")
    add("roofline", plot_roofline, "how close layers come to what one core can do", "FILE.json", 1,
        "what summary --measure --out wrote", has_series=False)  # fmt: skip
    option = add("timeline", plot_timeline, "what each rank does in a step: compute, communicate, wait", "TRACE.json", 1,
                 "what train --trace wrote", has_series=False)  # fmt: skip
    option("--steps", type=steps, metavar="FIRST-LAST", help="the steps to draw (default: the one of median length)")
    option = add("lines", plot_lines, "lines of anything: columns over a column", "FILE", "+",
                 ".csv, .tsv, or a report, .json or .jsonl, whose entries have names such as seconds.median")  # fmt: skip
    option("--x", required=True, metavar="NAME", help="the column of the horizontal axis")
    option("--y", required=True, type=split(","), metavar="NAME,..", help="the columns of the lines; of rows with the same x "
           "the median, with a bar from the least to the greatest")  # fmt: skip
    option("--series", type=split(","), metavar="NAME,..", help="columns whose values are lines of their own")
    option("--panel", metavar="NAME", help="a column whose values are panels of their own")
    option("--bars", type=split(","), metavar="LOW,HIGH", help="the columns of the ends of the bars")
    option("--log", choices=("x", "y", "x,y"), metavar="x|y|x,y", help="logarithmic axes")
    option("--xlabel", metavar="TEXT", help="default: the name of the column")
    option("--ylabel", metavar="TEXT", help="default: the names of the columns")
    return parser


def main():
    args = options().parse_args()
    with user_input():
        first = Path(args.files[0])
        outs = args.out or [str(first.with_name(f"{first.stem}-{args.kind}.png"))]
        for out in outs:
            if Path(out).suffix.lower() not in (*FIGURE, *[PAGE] * (args.kind in scaling.KINDS)):
                raise ValueError(f"--out {out}: name a {', '.join(FIGURE[:-1])} or {FIGURE[-1]} file")
            check_writable(out)
        pages, said = [out for out in outs if Path(out).suffix.lower() == PAGE], []
        figures = [out for out in outs if out not in pages]
        found = records.gather(args.files) if args.model or pages else []
        parts = model.tables(summary.rows(found)) if args.model else ()
        for out in pages:
            from gridgrad.experiments.scaling import page  # which takes longer to import

            write_text(out, page.render(found, args.title or f"Scaling study {first.stem}", told=parts))
        if figures:
            figure, said = args.draw(args, style.Look(args.width, args.height, not args.no_caption))
        for out in figures:
            style.save(figure, out, style.DPI)
        if parts:
            texts = (text for title, words, rows in parts for text in (title, words, rows and markdown(rows)) if text)
            said.append(terminal("\n\n".join(texts)))
    print("\n".join([*said, *(f"{out} written" for out in outs)]))


if __name__ == "__main__":
    run_launcher(main)
