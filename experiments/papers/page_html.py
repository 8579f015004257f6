"""The page of all papers as HTML: one file without scripts, readable on a phone, in light and in dark."""

import re
from html import escape

from gridgrad.experiments.common.markdown import cell
from gridgrad.experiments.papers import page_words as words
from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.items import MISSING, deviation

LONG = 14  # rows; of longer tables those without a number of the paper are closed at first
STYLE = """
:root { color-scheme: light dark; --text: #1c2430; --soft: #5b6675; --line: #d5dae1; --back: #ffffff; --box: #f5f7f9;
  --printed: #44505e; --measured: #0b5cad; --kept: #3f7fb8; --predicted: #a3560b; --bad: #b3261e;
  --good: #1c7a3c; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ee; --soft: #9aa5b4; --line: #363f4b; --back: #14181d;
  --box: #1c2229; --printed: #c3ccd8; --measured: #74b6ff; --kept: #9cc4e8; --predicted: #f0a95c; --bad: #ff8a80;
  --good: #7fd99a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { margin-top: 3rem; font-size: 1.25rem; border-top: 2px solid var(--line);
  padding-top: 1rem; } h3 { margin: 2rem 0 .3rem; font-size: 1.05rem; } h3 span { font-weight: normal; }
a { color: var(--measured); } p { margin: .4rem 0; } .soft { color: var(--soft); font-size: .9rem; }
.box { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; margin: .6rem 0; background: var(--box); }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .25rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: 0; } td:first-child { min-width: 9rem; } td.remark { color: var(--soft); min-width: 8rem; }
td.words { min-width: 10rem; } td.number { white-space: nowrap; }
.printed, .read-off, .derived { color: var(--printed); }
.measured { color: var(--measured); } .measured-earlier { color: var(--kept); }
.predicted { color: var(--predicted); } .bad { color: var(--bad); }
.good { color: var(--good); } .open { color: var(--soft); }
ul.claims { list-style: none; padding: 0; } ul.claims li { margin: .25rem 0; }
figure { margin: .8rem 0; } img { max-width: 100%; height: auto; background: #ffffff; border-radius: 4px; }
figcaption { color: var(--soft); font-size: .85rem; } summary { cursor: pointer; color: var(--soft); }
ul.legend { list-style: none; padding: 0; } nav ul { columns: 14rem; padding-left: 1.1rem; font-size: .9rem; }
dl { margin: .3rem 0; font-size: .9rem; } dt { font-weight: 600; } dd { margin: 0 0 .3rem 1rem; }
article > details { margin: .4rem 0; }
@media (max-width: 32rem) { body { padding: .7rem; } table { font-size: .8rem; } th, td { padding: .2rem .35rem; }
  td:first-child { min-width: 6.5rem; } }
code { background: var(--box); padding: 0 .2em; border-radius: 3px; font-size: .92em; }
"""


CLASSES = {DIFFERS: "bad", HOLDS: "good", OPEN: "open", CONTRADICTORY: "open"}  # of verdicts


def render(page):
    """The text of the page. page: a `page.Page`."""
    legend = "".join(
        f'<li class="{class_of(kind)}">{symbol} {inline(text)}</li>' for kind, (symbol, text) in words.LEGEND.items()
    )
    body = [
        f"<h1>{escape(words.HEADING)}</h1>", f"<p>{inline(words.about(page))}</p>", f'<ul class="legend">{legend}</ul>',
        summary(page), contents(page), overview(page), *(of_section(section) for section in page.sections), missing(page),
    ]  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(words.HEADING)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def inline(text):
    """A text as HTML, with its `code` and *emphasis*."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"(?<!\w)\*([^*\s][^*]*)\*(?!\w)", r"<em>\1</em>", text)


def anchor(section, item=None):
    """The id of a section or an item."""
    return re.sub(r"\W+", "-", section.paper + (f" {item.name}" if item else "")).lower()


def table(heads, rows):
    """A table in a box that scrolls by itself. rows: of cells that are HTML, or (attributes, HTML)."""
    cells = lambda row: "".join(f"<td{one[0]}>{one[1]}</td>" if isinstance(one, tuple) else f"<td>{one}</td>" for one in row)  # noqa: E731
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "\n".join(f"<tr>{cells(row)}</tr>" for row in rows)
    return f'<div class="box"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def summary(page):
    """What each paper claims and what holds, its main claims alone."""
    parts = []
    for section in page.sections:
        lines = "".join(
            f'<li><span class="{CLASSES[claim.verdict]}" title="{claim.verdict}">{words.MARKS[claim.verdict]}</span> '
            f"{inline(words.in_short(claim))}</li>"
            for claim in section.claims
            if claim.main
        )
        parts.append(
            f'<h3><a href="#{anchor(section)}">{escape(words.short(section))}</a></h3><p>{inline(section.about)} '
            f'{words.verdicts(section)}</p><ul class="claims">{lines}</ul>'
        )
    return f'<section id="summary"><h2>{words.SUMMARY}</h2>{"".join(parts)}</section>'


def contents(page):
    """Links to all papers, their claims and their items."""
    parts = []
    for section in page.sections:
        links = [(f"{anchor(section)}-claims", "Claims")]
        links += [(anchor(section, item), item.name) for item in section.items if item.status != MISSING]
        inner = "".join(f'<li><a href="#{at}">{escape(name)}</a></li>' for at, name in links)
        name = f'<a href="#{anchor(section)}">{escape(words.short(section))}</a>'
        parts.append(f"<details><summary>{name}</summary><nav><ul>{inner}</ul></nav></details>")
    links = f'<p><a href="#counts">{words.COUNTS}</a>, <a href="#missing">{words.NOT_HERE.lower()}</a></p>'
    return f'<section id="contents"><h2>{words.CONTENTS}</h2>{"".join(parts)}{links}</section>'


def overview(page):
    """How many tables and figures, numbers and claims there are, and of which kind."""
    parts = []
    for what, heads, rows in words.counts(page):
        lines = [[escape(name), *map(str, numbers)] for name, numbers in rows.items()]
        parts.append(table([what, *heads], lines))
    where = "; ".join(f"{words.short(section)}: {section.here}" for section in page.sections if section.here)
    here = f'<p class="soft">Measured now on: {inline(where)}.</p>' if where else ""
    return f'<section id="counts"><h2>{words.COUNTS}</h2>{"".join(parts)}{here}</section>'


def of_section(section):
    """A paper: its claims, then its tables and figures."""
    items = [item for item in section.items if item.status != MISSING]
    failed = "".join(f'<p class="bad"><strong>Failed:</strong> {inline(line)}</p>' for line in section.failures)
    late = f'<p class="soft">{escape(words.left_out(section))}</p>' if section.left_out else ""
    return (
        f'<section id="{anchor(section)}"><h2>{escape(section.title)}</h2>\n<p class="soft">{inline(section.described)}</p>\n'
        f"{failed}{late}{claims(section)}\n" + "\n".join(of_item(section, item) for item in items) + "\n</section>"
    )


def claims(section):
    """What a paper claims, contrary results first: a list, which a phone shows as well."""
    lines = "".join(
        f'<li><span class="{CLASSES[claim.verdict]}">{words.MARKS[claim.verdict]} {claim.verdict}:</span> {inline(claim.says)} '
        f'<span class="soft">({escape(claim.place)})</span><br>{inline(words.evidence(claim))}</li>\n'
        for claim in section.claims
    )
    title = f"<h3>Claims: <span>{words.verdicts(section)}</span></h3>"
    where = f'<p class="soft">{inline(words.measured_where(section))}</p>'
    return f'<article id="{anchor(section)}-claims">{title}{where}<ul class="claims">\n{lines}</ul></article>'


def of_item(section, item):
    """A table or a figure of a paper."""
    line = f"<p>{inline(deviation(item))}.</p>" if deviation(item) else ""
    reason = f'<p class="soft">{inline(item.reason)}</p>' if item.reason else ""
    figures = "".join(
        f'<figure><a href="{escape(path)}"><img src="{escape(path)}" loading="lazy" alt="{escape(item.name)}: '
        f'{escape(item.title)}"></a><figcaption>{escape(item.name)}{escape(words.of_figure(kind))}</figcaption></figure>'
        for path, kind in item.figures
    )
    origin = "".join(f"<dt>{inline(name)}</dt><dd>{inline(text)}</dd>" for name, text in words.provenance(section, item))
    return (
        f'<article id="{anchor(section, item)}"><h3>{escape(item.name)}: <span>{inline(item.title)}</span></h3>\n{line}'
        f"<p>{inline(item.why)}</p>{reason}\n{numbers(section, item)}\n{figures}"
        f"<details><summary>where the numbers come from</summary><dl>{origin}</dl></details></article>"
    )


def numbers(section, item):
    """The rows of an item; where they are many, some are closed at first."""
    closed = [row for row in item.rows if row.cited is None] if len(item.rows) > LONG else []
    if len(item.rows) - len(closed) > LONG:
        closed = item.rows
    shown = [row for row in item.rows if row not in closed]
    more = f"{len(closed)} {'more ' if shown else ''}rows"
    parts = [table_of(section, item, shown)] * bool(shown)
    parts += [f"<details><summary>{more}</summary>{table_of(section, item, closed)}</details>"] * bool(closed)
    return "".join(parts)


def table_of(section, item, some):
    """Some rows of an item as a table: a column for each kind of number, and one for remarks, if there are any."""
    columns, remarks = words.columns(section, item, some), any(words.remark(row) for row in some)
    rows = [
        [
            inline(row.label),
            *(marked(value(row)) for _, value in columns),
            *[(' class="remark"', inline(words.remark(row)))] * remarks,
        ]
        for row in some
    ]
    return table(["", *(escape(name) for name, _ in columns), *["remark"] * remarks], rows)


def marked(one):
    """The cell of a value, with its mark. one: (kind, value), or None."""
    if one is None:
        return "-"
    kind, value = one
    shape = "words" if isinstance(value, str) and len(value) > 12 else "number"
    return f' class="{shape} {class_of(kind)}"', f'<span title="{kind}">{words.SYMBOLS[kind]}</span> {inline(cell(value))}'


def missing(page):
    """What could not be reproduced, and why."""
    rows = [
        [
            f'<span id="{anchor(section, item)}">{escape(section.paper)}</span>', escape(item.name),
            inline(item.title) + (f"<br>{escape(numbers)}" if numbers else ""), inline(item.reason),
        ]
        for section, item, numbers in words.missing(page)
    ]  # fmt: skip
    heads = ["paper", "table or figure", "what it shows", "why"]
    return f'<section id="missing"><h2>{escape(words.NOT_HERE)}</h2>{table(heads, rows)}</section>'


def class_of(kind):
    """The CSS class of a kind of number."""
    return kind.replace(" ", "-")
