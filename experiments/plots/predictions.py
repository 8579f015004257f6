"""The tables that put the reports of the study `predictions` on several machines together."""

from gridgrad.experiments.common.tables import titled
from gridgrad.experiments.studies.predictions import fastest, problem_of, summary
from gridgrad.nn.files.documents import NUMBER, SECONDS, TEXT, TRUTH, WHOLE, Optional, check, content_of
from gridgrad.nn.files.limits import read_limited

TITLE = """# Predicted and measured steps

Milliseconds of a training step: predicted from a machine file of `gridgrad calibrate`, which knows
none of these networks, and measured by `gridgrad study predictions` normalised to an unloaded core
(`parallel/calibration/timing.py`; "as it was": not normalised). A plan of the planner's choice is marked with what it
takes, measured, over the fastest plan measured.
"""
MARKED = "\nThe points without an error were measured while others computed on the machine: they do not count.\n"
ROW = {
    "machine": TEXT, "net": TEXT, "batch_size": WHOLE, "ranks": WHOLE, "grid": TEXT, "plan": [TEXT], "planned": TRUTH,
    "predicted": SECONDS, "measured": SECONDS, "as_it_was": SECONDS, "error": NUMBER,
    "busy": Optional(TEXT),
}  # fmt: skip


def read(path):
    """The rows of a report; ValueError if the file is not such a report."""
    try:
        content = content_of(read_limited(path))
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
            "slowest choice / fastest": f"{told['worst_choice']:.3f}" if told["choices"] else "",
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
            "error": "" if row.get("busy") else f"{100 * row['error']:+.1f} %",
            "chosen": f"{row['measured'] / least[problem_of(row)]:.3f}" if row["planned"] and not row.get("busy") else "",
        }


def percent(share):
    return "" if share is None else f"{100 * share:.1f} %"


def document(groups):
    """The tables of several reports, as Markdown. groups: lists of rows."""
    text = TITLE + titled("", list(totals(groups)))
    if any(row.get("busy") for rows in groups for row in rows):
        text += MARKED
    for rows in groups:
        text += titled(f"## {rows[0]['machine']}", list(points(rows)))
    return text
