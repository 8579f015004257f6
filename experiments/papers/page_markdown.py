"""The page of all papers as Markdown."""

import re

from gridgrad.experiments.common.markdown import cell
from gridgrad.experiments.papers import page_words as words
from gridgrad.experiments.papers.items import MISSING, deviation


def render(page):
    """The text of the page. page: a `page.Page`."""
    parts = [
        f"# {words.HEADING}\n",
        words.about(page),
        "",
        *(f"- {symbol} {text}" for symbol, text in words.LEGEND.values()),
        f"\n## {words.SUMMARY}",
    ]
    for section in page.sections:
        parts += [f"\n**{words.short(section)}.** {section.about} {words.verdicts(section)}\n"]
        parts += [f"- {words.MARKS[claim.verdict]} {words.in_short(claim)}" for claim in section.claims if claim.main]
    parts += [f"\n## {words.CONTENTS}\n", *contents(page), f"\n## {words.COUNTS}"]
    for what, heads, rows in words.counts(page):
        parts += ["", *table([what, *heads], [[name, *map(str, numbers)] for name, numbers in rows.items()])]
    for section in page.sections:
        parts += [
            "",
            f"## {section.title}",
            "",
            section.described,
            *(f"\n**Failed:** {safe(line)}" for line in section.failures),
        ]
        parts += [f"\n{words.left_out(section)}"] * bool(section.left_out)
        parts += ["", f"### Claims: {words.verdicts(section)}", "", *claims(section), "", words.measured_where(section)]
        for item in section.items:
            if item.status != MISSING:
                parts += ["", *of_item(section, item)]
    parts += ["", f"## {words.NOT_HERE}", ""]
    rows = [
        [section.paper, item.name, item.title + (f" ({numbers})" if numbers else ""), item.reason]
        for section, item, numbers in words.missing(page)
    ]
    parts += table(["paper", "table or figure", "what it shows", "why"], rows)
    return "\n".join(parts) + "\n"


def contents(page):
    """Links to all headings of papers, by the rule that makes their anchors: small letters, hyphens for spaces, no marks."""
    for heading in (words.COUNTS, *(section.title for section in page.sections), words.NOT_HERE):
        anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        yield f"- [{heading}](#{anchor})"


def table(heads, rows):
    """The lines of a table. rows: of texts."""
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    yield from (f"| {' | '.join(map(safe, row))} |" for row in rows)


def claims(section):
    """The lines of what a paper claims, contrary results first."""
    rows = [
        [f"{words.MARKS[one.verdict]} {one.verdict}", f"{one.says} ({one.place})", words.evidence(one)]
        for one in section.claims
    ]
    return table(["verdict", "the paper says", "here"], rows)


def of_item(section, item):
    """The lines of an item."""
    yield f"### {item.name}: {item.title}"
    yield ""
    yield from [f"{deviation(item)}."] * bool(deviation(item))
    yield item.why
    if item.reason:
        yield f"*{item.reason}*"
    yield ""
    columns, remarks = words.columns(section, item, item.rows), any(words.remark(row) for row in item.rows)
    rows = [[row.label, *(marked(value(row)) for _, value in columns), *[words.remark(row)] * remarks] for row in item.rows]
    yield from table(["", *(name for name, _ in columns), *["remark"] * remarks], rows)
    for figure, kind in item.figures:
        yield ""
        yield f"![{item.name}: {item.title}{words.of_figure(kind)}]({figure})"
    yield ""
    yield from (f"- {name}: {text}" for name, text in words.provenance(section, item))


def marked(one):
    """A value with the symbol of its kind. one: (kind, value), or None."""
    return "-" if one is None else f"{words.SYMBOLS[one[0]]} {cell(one[1])}"


def safe(text):
    """A text that may stand in a cell."""
    return text.replace("|", "\\|").replace("<", "&lt;")
