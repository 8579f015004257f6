"""The growth of each part of a step with the ranks, as Extra-P models it, beside the closed formulas.

    gridgrad study extrap results/sweep.jsonl --out results/extrap --program .venv-extrap/bin/extrap

Writes a file for each curve in the text format of Extra-P (`experiments/scaling/extrap.py`) into the folder --out. Where
Extra-P is installed, prints its model of each quantity: for bytes beside the closed formula of what is sent
(`experiments/scaling/volumes.py`), for times beside what the cost model predicts, where FILE has predictions too.
"""

import re
import shutil
from pathlib import Path

from gridgrad.experiments.common.options import Parser, check_writable, user_input
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.common.tables import counted, table
from gridgrad.experiments.scaling import extrap, records, volumes
from gridgrad.experiments.scaling.summary import rows as rows_of
from gridgrad.parallel.job.run import run_launcher

FURTHER = 16  # times the ranks for which both are compared where nothing was measured


def options():
    parser = Parser(prog="study extrap", description="How does each part of a step grow with the ranks, by Extra-P's models?")
    add = parser.add_argument
    add("reports", metavar="FILE.jsonl", nargs="+", help="what sweep wrote")
    add("--out", default="results/extrap", metavar="DIR", help="the folder for the files of Extra-P, one a curve")
    add("--program", default=extrap.PROGRAM, metavar="PATH", help="the command of Extra-P, which is installed by "
        f"{extrap.HOW}")  # fmt: skip
    return parser


def file_name(curve, is_predicted):
    """The name of the file of a curve."""
    words = f"{curve.network} {curve.series} {curve.scaling}{' predicted' if is_predicted else ''}"
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', words).strip('-')}.txt"


def compared(rows, fitted, of_prediction):
    """Table rows: Extra-P's models of a curve beside what is known otherwise. rows: of the curve. of_prediction: those of its
    prediction, {ranks: Row}."""
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
            predicted = of_prediction.get(last)
            ranks, law = last, None
            value = predicted and extrap.values_of(predicted.runs[0]).get((one.region, one.metric))
        found.append({
            "region": one.region, "metric": one.metric, "Extra-P": str(one.growth), "closed formula": law and str(law),
            "on ranks": ranks, "by Extra-P": one.growth(ranks), "by gridgrad": value,
        })  # fmt: skip
    return found


def show(rows, is_predicted, fitted, of_prediction):
    """Print what was found for a curve."""
    few = f"; Extra-P asks for at least {extrap.FEWEST}" if len(rows) < extrap.FEWEST else ""
    what = "predicted" if is_predicted else "measured"
    print(f"\n{rows[0].curve}, {what} on {', '.join(str(row.ranks) for row in rows)} ranks{few}\n")
    print(table(compared(rows, fitted, of_prediction)))


def main():
    args = options().parse_args()
    with user_input():
        curves = extrap.curves(rows_of(records.gather(args.reports)))
        if not curves:
            raise ValueError("no series was measured on several numbers of ranks: Extra-P has nothing to model")
        names = {of: Path(args.out) / file_name(*of) for of in curves}
        for of, path in names.items():
            check_writable(path)
            write_text(path, extrap.text(curves[of]))
        installed = shutil.which(args.program)
        fitted = {of: extrap.models(rows, args.program) for of, rows in curves.items()} if installed else {}
    print(f"{counted(len(curves), 'file')} for Extra-P written to {args.out}")
    if not installed:
        print(f"{args.program} is not installed, so no models were fitted. To install it: {extrap.HOW}, then give "
              f"--program .venv-{extrap.PROGRAM}/bin/{extrap.PROGRAM}")  # fmt: skip
    predictions = {curve: {row.ranks: row for row in rows} for (curve, predicted), rows in curves.items() if predicted}
    for of, found in fitted.items():
        show(curves[of], of[1], found, predictions.get(of[0], {}))


if __name__ == "__main__":
    run_launcher(main)
