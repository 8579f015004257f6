"""The words of the page of all papers, which its HTML and its Markdown share."""

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.papers.items import KEPT, MEASURED, PREDICTED, PUBLISHED

HEADING = "Five papers: published, measured and predicted"
MISSING = "What could not be reproduced"
LEGEND = {
    PUBLISHED: ("●", "published: printed in the paper"),
    MEASURED: ("■", "measured now: timed, or counted in full, in the run that wrote this page"),
    KEPT: ("□", "measured earlier: the same, from results that are kept; each says on which processor"),
    PREDICTED: ("◇", "predicted: by a formula or the cost model, without a run"),
}
SYMBOLS = {mark: symbol for mark, (symbol, _) in LEGEND.items()}
FORMS = {
    "short": "`make reproduce`, a short measurement of less than 15 minutes: what it leaves out is from results that are kept",
    "long": "`make reproduce REPRODUCE=--long`, a measurement of all experiments that takes hours",
    "kept": "`gridgrad reproduce all --tables-only`, which measures nothing: all measured numbers are from results that are "
    "kept",
}


def about(page):
    """What the page is, and how it was made."""
    return (
        f"Every table and figure of five papers that can be reproduced. Written on {page.date} by {FORMS[page.form]}. Each "
        "number has a mark:"
    )


def short(section):
    """The authors and the year."""
    return f"{section.title.split(':')[0]} ({section.paper[-4:]})"


def left_out(section):
    """What there was no time for."""
    parts = counted(section.left_out, "part")
    return f"The time was too short for {parts}: what they measure is from kept results, where there are any."


def of_figure(mark):
    """What a figure was drawn from, in brackets."""
    return {MEASURED: " (measured now)", KEPT: " (measured earlier, a kept figure)", "": ""}[mark]


def provenance(section, item):
    """(what, where from) for each kind of number that an item has, and how to measure it."""
    marks = item.marks
    if PUBLISHED in marks:
        yield f"{SYMBOLS[PUBLISHED]} published", f"{item.source} of the paper"
    elif item.source:
        yield "in the paper", item.source
    if MEASURED in marks:
        yield f"{SYMBOLS[MEASURED]} measured now", f"`items.json` beside this page; {section.here}"
    if KEPT in marks:
        where = item.processor if item.elsewhere else section.kept
        yield f"{SYMBOLS[KEPT]} measured earlier", "; ".join(filter(None, (f"{item.results}", where)))
    if PREDICTED in marks:
        yield f"{SYMBOLS[PREDICTED]} predicted", item.model
    if item.command:
        yield "command", f"`gridgrad {item.command}`"
