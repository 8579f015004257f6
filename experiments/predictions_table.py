"""Put the reports of `experiments.predictions` on several machines together: results/predictions.md.

python -m experiments.predictions_table results/predictions/*.json --out results/predictions.md
"""

from pathlib import Path

from experiments.common.forms import NUMBER, SECONDS, TEXT, TRUTH, WHOLE, check
from experiments.common.markdown import table
from experiments.common.options import Parser, check_writable, user_input
from experiments.common.report import write_text
from experiments.predictions import fastest, problem_of, summary
from nn.json_text import content_of
from parallel.job.run import run_launcher

TITLE = """# Predicted and measured steps

Milliseconds of a training step: predicted from a machine file of `experiments.calibrate`, which knows
none of these networks, and measured by `experiments.predictions` normalised to an unloaded core
(`parallel/calibration/core_speed.py`; "as it was": not normalised). A plan of the planner's choice is marked with what it
takes, measured, over the fastest plan measured.
"""
ROW = {
    "machine": TEXT, "net": TEXT, "batch_size": WHOLE, "ranks": WHOLE, "grid": TEXT, "plan": [TEXT], "planned": TRUTH,
    "predicted": SECONDS, "measured": SECONDS, "as_it_was": SECONDS, "error": NUMBER,
}  # fmt: skip


def read(path):
    """The rows of a report; ValueError if the file is not such a report."""
    try:
        content = content_of(Path(path).read_bytes())
        check(content, {"rows": [ROW]})
        if not any(row["planned"] for row in content["rows"]):
            raise ValueError("no row is a choice of the planner")
    except ValueError as error:
        raise ValueError(f"{path} is no report of the program predictions: {error}") from None
    return content["rows"]


def totals(groups):
    """A row for each report, and one for all. groups: lists of rows."""
    for name, rows in [*((rows[0]["machine"], rows) for rows in groups), ("all", sum(groups, []))]:
        told = summary(rows)
        yield {
            "ranks": name,
            "points": told["points"],
            "median error": percent(told["median_error"]),
            "worst error": percent(told["worst_error"]),
            "choices within 5 % of the fastest": f"{told['good_choices']} of {told['choices']}",
            "slowest choice / fastest": f"{told['worst_choice']:.3f}",
        }


def points(rows):
    """The table rows, one for each measured plan."""
    least = fastest(rows)
    for row in rows:
        yield {
            "network": row["net"],
            "batch": row["batch_size"],
            "grid": row["grid"],
            "plan": ",".join(row["plan"]) if "model=1" not in row["grid"] else "",
            "predicted": row["predicted"] * 1e3,
            "measured": row["measured"] * 1e3,
            "as it was": row["as_it_was"] * 1e3,
            "error": f"{100 * row['error']:+.1f} %",
            "chosen": f"{row['measured'] / least[problem_of(row)]:.3f}" if row["planned"] else "",
        }


def percent(share):
    return f"{100 * share:.1f} %"


def main():
    parser = Parser(prog="predictions_table", description="Put reports of predictions together in one table.")
    parser.add_argument("reports", nargs="+", metavar="FILE.json", help="reports of predictions")
    parser.add_argument("--out", default="results/predictions.md", metavar="FILE.md", help="the table")
    args = parser.parse_args()
    with user_input():
        check_writable(args.out)
        groups = [read(path) for path in args.reports]
    text = TITLE + table("", list(totals(groups)))
    for rows in groups:
        text += table(f"## {rows[0]['machine']}", list(points(rows)))
    write_text(args.out, text)
    print(f"written to {args.out}")


if __name__ == "__main__":
    run_launcher(main)
