"""The page of all papers in HTML, and the summary of one screen a paper in Markdown. Both are made of a `page.Page`."""

import re
from collections import Counter
from html import escape
from statistics import median

from markupsafe import Markup

from gridgrad.experiments.common.tables import cell, counted
from gridgrad.experiments.common.templates import environment
from gridgrad.experiments.papers.cited import DERIVED, PRINTED, READ
from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, HOLDS, OPEN, VERDICTS
from gridgrad.experiments.papers.items import KEPT, MEASURED, MISSING, OURS, PREDICTED, is_number

HEADING = "What the papers say, and what is found here"
SHOWN = 3  # rows of a table or figure
SYMBOLS = {PRINTED: "●", READ: "◐", DERIVED: "◒", MEASURED: "■", KEPT: "□", PREDICTED: "◇"}
LEGEND = {
    PRINTED: "printed in the paper", READ: "read off a figure of the paper",
    DERIVED: "computed from what the paper prints, or counted", MEASURED: "measured in the run that wrote this page",
    KEPT: "measured earlier, from the results that are kept", PREDICTED: "predicted by a formula or the cost model",
}  # fmt: skip
MARKS = {DIFFERS: "✗", HOLDS: "✓", OPEN: "?", CONTRADICTORY: "≠"}
CLASSES = {DIFFERS: "bad", HOLDS: "good", OPEN: "open", CONTRADICTORY: "open"}
HOW_MANY = {DIFFERS: ("does not hold", "do not hold"), HOLDS: ("holds", "hold"), OPEN: ("is not decided", "are not decided"),
            CONTRADICTORY: ("contradicts another passage", "contradict other passages")}  # fmt: skip
FORMS = {
    "short": "`make reproduce`, a short measurement; what it leaves out is from kept results",
    "long": "`make reproduce REPRODUCE=--full`, a measurement of all experiments",
    "kept": "`gridgrad reproduce all --tables-only`, which measures nothing",
}


def html(page):
    """The text of the page: one file, readable on a phone, in light and in dark; its only script filters by a word."""
    made = environment(inline=inline, cell=cell, remark=remark, class_of=lambda kind: kind.replace(" ", "-"))
    return made.get_template("page.html.jinja").render(
        page=page, HEADING=HEADING, SYMBOLS=SYMBOLS, MARKS=MARKS, CLASSES=CLASSES, FORMS=FORMS, LEGEND=LEGEND, OURS=OURS,
        MEASURED=MEASURED, KEPT=KEPT, MISSING=MISSING, verdicts=verdicts, evidence=evidence, anchor=anchor, shown=shown,
        columns=columns, remark=remark, deviation=deviation, origin=origin, explained=explained,
    )  # fmt: skip


def markdown(page):
    """The summary of one screen a paper."""
    template = environment().get_template("page.md.jinja")
    names = {"page": page, "verdicts": verdicts, "evidence": evidence, "HEADING": HEADING, "SYMBOLS": SYMBOLS}
    return template.render(names | {"MARKS": MARKS, "FORMS": FORMS, "LEGEND": LEGEND})


def inline(text):
    """A text as Markup, with its `code` and *emphasis*."""
    text = re.sub(r" \(family \d+, model \d+\)", "", str(text))  # of a processor, which items.json has in full
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return Markup(re.sub(r"(?<!\w)\*([^*\s][^*]*)\*(?!\w)", r"<em>\1</em>", text))


def anchor(section, item=None):
    """The id of a section or an item."""
    return re.sub(r"\W+", "-", section.paper + (f" {item.name}" if item else "")).lower()


def verdicts(section):
    """How many claims have which verdict, in words."""
    count = Counter(claim.verdict for claim in section.claims)
    words = (f"{count[one]} {HOW_MANY[one][count[one] > 1]}" for one in VERDICTS if count[one])
    return f"Of {counted(len(section.claims), 'claim')} {', '.join(words)}."


def evidence(claim):
    """What decides a claim, as far as a reader needs it: the numbers with their marks of one that holds, the reason of an open
    one, both of others. `items.json` has all."""
    numbers = [f"{SYMBOLS[kind]} {one.numbers}" for kind, one in claim.findings if one.numbers]
    reasons = list(dict.fromkeys(one.reason for _, one in claim.findings if one.reason))
    if claim.is_disputed:
        reasons.append("what was measured now contradicts what was measured earlier")
    said = {HOLDS: numbers or reasons, OPEN: reasons or numbers}.get(claim.verdict, [*numbers, *reasons])
    return "; ".join(said) + "."


def explained(item):
    """Why numbers deviate, or why some are missing, in a sentence: the first, which says the most. `items.json` has all."""
    return re.split(r"(?<=[.])\s+(?=[A-Z])", item.why or item.reason, maxsplit=1)[0]


def deviation(item):
    """The ratios of measured and of predicted numbers to those of the paper, in one line: the median, the least, the greatest.
    Empty where they do not compare. What was measured now and what is kept are never in one ratio."""
    if not item.compares:
        return ""
    found = []
    for quantity in dict.fromkeys(row.quantity for row in item.rows):
        parts = []
        for kind in OURS:
            pairs = [(row.values.get(kind), row.cited and row.cited.value) for row in item.rows if row.quantity == quantity]
            ratios = [ours / theirs for ours, theirs in pairs if is_number(ours) and is_number(theirs) and theirs]
            if ratios:
                middle, low, high = (f"{value:.3g}" for value in (median(ratios), min(ratios), max(ratios)))
                parts.append(f"{SYMBOLS[kind]} {middle}" if low == high else f"{SYMBOLS[kind]} {middle} ({low} to {high})")
        if parts:
            found.append(f"{quantity + ' ' if quantity else ''}{', '.join(parts)}")
    return f"Ratio: {'; '.join(found)}" if found else ""


def shown(item):
    """The rows of an item that the page shows, with numbers of ours and of the paper if there are any; `items.json` has all."""
    ours = [row for row in item.rows if row.values.keys() & OURS.keys()]
    ranked = [*(row for row in ours if row.cited), *ours, *item.rows]
    some = list(dict.fromkeys(ranked))[:SHOWN]
    return [row for row in item.rows if row in some]


def columns(rows):
    """[(heading, function of a row that gives (kind, value) or None)] of those columns that are not empty in some rows."""
    found = [("paper", lambda row: row.cited and (row.cited.kind, row.cited.value))]
    for kind, head in OURS.items():
        found.append((head, lambda row, kind=kind: (kind, row.values[kind]) if kind in row.values else None))
    return [(name, value) for name, value in found if any(value(row) is not None for row in rows)]


def remark(row):
    """How a row was measured, now and earlier."""
    if row.measured is None or row.kept is None or row.remark == row.kept_remark:
        return row.remark or row.kept_remark
    both = (("now: ", row.remark), ("earlier: ", row.kept_remark))
    return "; ".join(name + text for name, text in both if text)


def origin(item, remark=""):
    """Where the numbers of an item are from, a remark on all its rows, and the command that measures it."""
    where = [
        remark,
        item.source,
        item.processor and f"{SYMBOLS[KEPT]} {item.processor.partition(' (')[0]}",
        item.elsewhere and item.results and f"`{item.results}`",
        item.model,
        item.elsewhere and item.command and f"`gridgrad {item.command}`",
    ]
    return "; ".join(filter(None, where))
