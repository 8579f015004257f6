"""The words of the page of all papers, which its HTML and its Markdown share."""

import re
from collections import Counter

from gridgrad.experiments.common.tables import cell, counted
from gridgrad.experiments.papers.cited import DERIVED, PRINTED, READ
from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, HOLDS, OPEN, VERDICTS
from gridgrad.experiments.papers.items import KEPT, KINDS, MEASURED, OURS, PREDICTED, STATUSES

HEADING = "Five papers: what they say, and what is found here"
SUMMARY = "In two minutes"
COUNTS = "How much was reproduced"
CONTENTS = "Contents"
NOT_HERE = "What could not be reproduced"
MISSING_HEADS = ["paper", "table or figure", "what it shows", "why"]
LEGEND = {
    PRINTED: ("●", "printed in the paper, at the place that is named"),
    READ: ("◐", "read off a figure of the paper, with an uncertainty"),
    DERIVED: (
        "◒",
        "derived, by a formula that is named, from numbers that the paper prints or the logs of its code hold; of a "
        "claim: computed from what the paper prints, or counted without a run",
    ),
    MEASURED: ("■", "measured now: timed, or counted in full, in the run that wrote this page"),
    KEPT: ("□", "measured earlier: the same, from results that are kept; each says on which processor"),
    PREDICTED: ("◇", "predicted: by a formula or the cost model, without a run"),
}
SYMBOLS = {kind: symbol for kind, (symbol, _) in LEGEND.items()}
FEW = 160  # letters: numbers of this length stand in the summary
MARKS = {DIFFERS: "✗", HOLDS: "✓", OPEN: "?", CONTRADICTORY: "≠"}  # of verdicts
SINGULAR = {CONTRADICTORY: "is of passages that contradict each other"}
PLURAL = {
    DIFFERS: "do not hold here", HOLDS: "hold here", OPEN: "can not be decided here",
    CONTRADICTORY: "are of passages that contradict each other",
}  # fmt: skip
FORMS = {
    "short": "`make reproduce`, a short measurement of less than 15 minutes: what it leaves out is from results that are kept",
    "long": "`make reproduce REPRODUCE=--full`, a measurement of all experiments that takes hours",
    "kept": "`gridgrad reproduce all --tables-only`, which measures nothing: all measured numbers are from results that are "
    "kept",
}


def about(page):
    """What the page is, and how it was made."""
    return (
        f"Every table, figure and claim of five papers. Written on {page.date} by {FORMS[page.form]}. Each number in a table "
        "has a mark; a claim has the marks of the numbers that decide it, and its words say where others are from:"
    )


def short(section):
    """The authors and the year."""
    return f"{section.title.split(':')[0]} ({section.paper[-4:]})"


def counts(page):
    """Three tables of how much there is: (what they count, the headings, {paper: numbers}); each with a sum at the end."""
    sections = {short(section): section for section in page.sections}
    tables = (
        ("tables and figures", STATUSES, lambda one: Counter(item.status for item in one.items)),
        (
            "numbers, each as often as it stands in a table",
            KINDS,
            lambda one: Counter(kind for item in one.items for row in item.rows for kind in row.values),
        ),
        ("claims", VERDICTS, lambda one: Counter(claim.verdict for claim in one.claims)),
    )
    for what, heads, count in tables:
        rows = {name: [count(section)[head] for head in heads] for name, section in sections.items()}
        yield (
            what,
            [OURS.get(head, head) for head in heads],
            rows | {"all": [sum(column) for column in zip(*rows.values(), strict=True)]},
        )


def verdicts(section):
    """How many claims have which verdict, in words."""
    count = Counter(claim.verdict for claim in section.claims)
    words = (f"{count[one]} {SINGULAR.get(one, one) if count[one] == 1 else PLURAL[one]}" for one in VERDICTS if count[one])
    return f"Of {counted(len(section.claims), 'claim')} {', '.join(words)}."


def measured_where(section):
    """On which processors the numbers that decide claims were measured, where these do not name another; empty if nowhere."""
    kept = f"{SYMBOLS[KEPT]}, where it names no file: {section.kept}" if section.kept else ""
    return "; ".join(filter(None, (kept, section.here and f"{SYMBOLS[MEASURED]}: {section.here}")))


def evidence(claim):
    """What decides a claim: the numbers with their marks, and the reason."""
    numbers = "; ".join(f"{SYMBOLS[kind]} {one.numbers}" for kind, one in claim.findings if one.numbers)
    reasons = list(dict.fromkeys(one.reason for _, one in claim.findings if one.reason))
    if claim.now is not None and claim.verdict == OPEN and claim.finding.verdict != OPEN:
        reasons.append("what was measured now contradicts what was measured earlier")
    return "; ".join(filter(None, (numbers, *reasons))) + "."


def in_short(claim):
    """A claim and its verdict, with what kind of numbers decide it, and these and the reason where they are short."""
    parts = [claim.verdict]
    for kind, one in claim.findings:
        if one.numbers:
            parts.append(f"{SYMBOLS[kind]} {one.numbers if len(one.numbers) <= FEW else OURS.get(kind, 'see below')}")
        parts += [one.reason] * (0 < len(one.reason) <= FEW)
    return f"{claim.says.removesuffix('.')}: {'; '.join(dict.fromkeys(parts))}."


def columns(section, item, rows):
    """[(heading, function of a row that gives (kind, value) or None)] of those columns of an item that are not empty."""
    where = {MEASURED: section.here, KEPT: item.processor or section.kept}
    found = [("paper", lambda row: row.cited and (row.cited.kind, row.cited.value))]
    for kind, head in OURS.items():
        on = without_details(where.get(kind, ""))
        name = f"{head} ({on})" if on else head
        found.append((name, lambda row, kind=kind: (kind, row.values[kind]) if kind in row.values else None))
    return [(name, value) for name, value in found if any(value(row) is not None for row in rows)]


def without_details(machine):
    """The name of a processor: what stands before the first comma that is not in brackets."""
    return re.match(r"(?:[^,(]|\([^)]*\)|\()*", machine).group()


def remark(row):
    """How a row was measured, now and earlier."""
    if row.measured is None or row.kept is None or row.remark == row.kept_remark:
        return row.remark or row.kept_remark
    both = (("now: ", row.remark), ("earlier: ", row.kept_remark))
    return "; ".join(name + text for name, text in both if text)


def remarked(rows):
    """Whether some row has a remark."""
    return any(map(remark, rows))


def heads(columns, remarks):
    """The headings of the table of an item, the first of which is that of the labels."""
    return ["", *(name for name, _ in columns), *["remark"] * remarks]


def here(page):
    """On which processors was measured now, by the paper; empty if nothing was."""
    return "; ".join(f"{short(section)}: {section.here}" for section in page.sections if section.here)


def left_out(section):
    """What there was no time for."""
    parts = counted(section.left_out, "part")
    return f"The time was too short for {parts}: what they measure is from kept results, where there are any."


def of_figure(kind):
    """What a figure was drawn from, in brackets."""
    return f" ({OURS[kind]})" if kind in OURS else ""


def provenance(section, item):
    """(what, where from) for each kind of number that an item has, and how to measure it."""
    cited = [row.cited for row in item.rows if row.cited]
    for kind in (PRINTED, READ, DERIVED):
        places = [place_of(one) for one in cited if one.kind == kind]
        if places:
            yield f"{SYMBOLS[kind]} {kind}", "; ".join(dict.fromkeys(places))
    if not cited:
        yield "in the paper", item.source
    if MEASURED in item.kinds:
        yield f"{SYMBOLS[MEASURED]} {OURS[MEASURED]}", f"`items.json` beside this page; {section.here}"
    if KEPT in item.kinds:
        yield (
            f"{SYMBOLS[KEPT]} {OURS[KEPT]}",
            "; ".join(filter(None, (item.results and f"`{item.results}`", item.processor or section.kept))),
        )
    if PREDICTED in item.kinds:
        yield f"{SYMBOLS[PREDICTED]} predicted", item.model
    if item.command:
        yield "command", f"`gridgrad {item.command}`"


def place_of(cited):
    """Where a number of the paper is from, with its formula or its uncertainty."""
    more = cited.formula.words if cited.formula else cited.uncertainty
    return cited.place + (f": {more}" if more else "")


def missing(page):
    """(section, item, its printed numbers in words) of all that could not be reproduced."""
    for section in page.sections:
        for item in section.items:
            if item.status == STATUSES[-1]:
                numbers = (f"{row.label} {SYMBOLS[row.cited.kind]} {cell(row.cited.value)}" for row in item.rows if row.cited)
                yield section, item, "; ".join(numbers)
