"""The growth of each part of a step with the ranks, as Extra-P models it, beside the closed formulas.

    gridgrad study extrap results/sweep.jsonl --out results/extrap --program .venv-extrap/bin/extrap

Writes a file for each curve in the text format of Extra-P (`experiments/scaling/extrap.py`) into the folder --out. Where
Extra-P is installed, prints its model of each quantity: for bytes beside the closed formula of what is sent
(`experiments/scaling/volumes.py`), for times beside what the cost model predicts, where FILE has predictions too.
"""

import argparse
import re
import shlex
import shutil
import sys
import textwrap
from collections import defaultdict
from itertools import count
from pathlib import Path

from gridgrad.experiments.common.options import Parser, check_writable, user_input
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.common.tables import counted, lines, terminal
from gridgrad.experiments.scaling import extrap, records, volumes
from gridgrad.experiments.scaling.reported import checked
from gridgrad.experiments.scaling.summary import origin_of, point_of
from gridgrad.experiments.scaling.summary import rows as rows_of
from gridgrad.parallel.job.run import run_launcher

WIDTH = 128  # characters of a line
FURTHER = 16  # times the ranks for which both are compared where nothing was measured
ABOUT = (
    "Bytes are those that all ranks send together in a step, beside the closed formula of what is sent; their last columns are "
    "for 16 times the most ranks. Times are seconds of a step; their last columns are for the most ranks, beside what the cost "
    "model predicts, if the file has predictions."
)


def options():
    parser = Parser(prog="study extrap", description="How does each part of a step grow with the ranks, by Extra-P's models?")
    add = parser.add_argument
    add("reports", metavar="FILE.jsonl", nargs="+", help="what sweep wrote")
    add("--out", default="results/extrap", metavar="DIR", help="the folder for the files of Extra-P, one a curve")
    add("--program", default=extrap.PROGRAM, metavar="PATH", help="the command of Extra-P, which is installed by "
        f"{extrap.HOW}")  # fmt: skip
    add("--metrics", type=metrics, default=extrap.METRICS, metavar="M,M", help=f"some of {', '.join(extrap.METRICS)}")
    return parser


def metrics(text):
    """An option type: some of METRICS, separated by commas, as a tuple."""
    words = tuple(text.split(","))
    if not set(words) <= set(extrap.METRICS):
        raise argparse.ArgumentTypeError(f"must be some of {', '.join(extrap.METRICS)}, not '{text}'")
    return words


def file_names(curves):
    """{(Curve, whether it is predicted): the name of its file}. Names that would be the same are numbered."""
    names, taken = {}, set()
    for curve, is_predicted in curves:
        words = f"{curve.network} {curve.series} {curve.scaling}{' predicted' if is_predicted else ''}"
        stem = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")
        own = next(name for number in count(1) if (name := stem if number == 1 else f"{stem}-{number}").lower() not in taken)
        taken.add(own.lower())  # as there are systems to which letters of both cases are the same
        names[curve, is_predicted] = f"{own}.txt"
    return names


def compared(rows, fitted, predicted):
    """Table rows: Extra-P's models of a curve beside what is known otherwise. rows: of the curve. predicted: the Row of the
    prediction for its most ranks, or None."""
    laws, last = volumes.laws(rows), rows[-1].ranks
    if all(term in laws for term in volumes.TERMS):
        laws["all"] = sum((laws[term] for term in volumes.TERMS[1:]), laws[volumes.TERMS[0]])
    found = []
    for one in fitted:
        if one.metric == extrap.BYTES:
            law = laws.get("all" if one.region == extrap.COMMUNICATE else one.region.rpartition("->")[2])
            ranks = FURTHER * last
            value = law and law(ranks)
        else:
            ranks, law = last, None
            value = predicted and extrap.values_of(predicted.runs[0]).get((one.region, one.metric))
        found.append({
            "region": one.region, "metric": one.metric, "Extra-P": str(one.growth), "closed formula": law and str(law),
            "on ranks": ranks, "by Extra-P": one.growth(ranks), "by gridgrad": value,
        })  # fmt: skip
    return found


def document(curves, fitted):
    """What was found, in Markdown. curves: {(Curve, whether it is predicted): its Rows}. fitted: {the same: Fitted ones}."""
    predictions = defaultdict(dict)  # {key of a point: {Origin: Row}}
    for row in (row for rows in curves.values() for row in rows if row.is_predicted):
        predictions[point_of(row.runs[0])][origin_of(row.runs[0])] = row
    parts = [
        "# Models of Extra-P beside closed formulas",
        f"`gridgrad study extrap {shlex.join(sys.argv[1:])}`",
        textwrap.fill(ABOUT, WIDTH),
    ]
    for (curve, is_predicted), found in fitted.items():
        rows = curves[curve, is_predicted]
        few = f"; Extra-P asks for at least {extrap.FEWEST}" if len(rows) < extrap.FEWEST else ""
        what, where = "Predicted for" if is_predicted else "Measured on", rows[0].environment.get("processor")
        parts.append(f"## {curve}\n\n{what} {', '.join(str(row.ranks) for row in rows)} ranks, {where}{few}.")
        of_last = list(predictions[point_of(rows[-1].runs[0])].values())
        predicted = rows[-1] if is_predicted else of_last[0] if len(of_last) == 1 else None  # None: of which machine?
        parts.append(lines(compared(rows, found, predicted)))
    return "\n\n".join(parts) + "\n"


def main():
    args = options().parse_args()
    tables = Path(args.out) / "models.md"
    with user_input():
        curves = extrap.curves(rows_of(checked(records.gather(args.reports))))
        if not curves:
            raise ValueError("no series was measured on several numbers of ranks: Extra-P has nothing to model")
        check_writable(tables)
        for of, name in file_names(curves).items():
            write_text(Path(args.out) / name, extrap.text(curves[of], args.metrics))
        installed = shutil.which(args.program)
        if installed:
            text = document(curves, {of: extrap.models(rows, args.program, args.metrics) for of, rows in curves.items()})
            write_text(tables, text)
    if installed:
        print(f"{terminal(text)}\n")
    else:
        print(f"{args.program} is not installed, so no models were fitted. To install it: {extrap.HOW}, then give "
              f"--program .venv-{extrap.PROGRAM}/bin/{extrap.PROGRAM}")  # fmt: skip
    print(f"{counted(len(curves), 'file')} for Extra-P{' and models.md' if installed else ''} written to {args.out}")


if __name__ == "__main__":
    run_launcher(main)
