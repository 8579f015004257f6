"""The page of all papers as Markdown."""

from gridgrad.experiments.common.markdown import cell
from gridgrad.experiments.papers import page_words as words
from gridgrad.experiments.papers.items import PREDICTED, PUBLISHED, deviation


def render(page):
    """The text of the page. page: a `page.Page`."""
    parts = [
        f"# {words.HEADING}\n",
        words.about(page),
        "",
        *(f"- {symbol} {text}" for symbol, text in words.LEGEND.values()),
        "",
    ]
    parts += ["| paper | reproduced | not reproducible | measured now on |", "|---|---|---|---|"]
    for section in page.sections:
        done = sum(item.reproduced for item in section.items)
        row = words.short(section), str(done), str(len(section.items) - done), section.here or "-"
        parts.append(f"| {' | '.join(map(safe, row))} |")
    for section in page.sections:
        parts += [
            "",
            f"## {section.title}",
            "",
            section.described,
            *(f"\n**Failed:** {safe(line)}" for line in section.failures),
        ]
        parts += [f"\n{words.left_out(section)}"] * bool(section.left_out)
        for item in section.items:
            if item.reproduced:
                parts += ["", *of_item(section, item)]
    parts += ["", f"## {words.MISSING}", "", "| paper | table or figure | what it shows | why |", "|---|---|---|---|"]
    for section in page.sections:
        for item in section.items:
            if not item.reproduced:
                published = "; ".join(f"{row.label} {words.SYMBOLS[PUBLISHED]} {cell(row.published)}" for row in item.rows)
                row = section.paper, item.name, item.title + (f" ({published})" if published else ""), item.reason
                parts.append(f"| {' | '.join(map(safe, row))} |")
    return "\n".join(parts) + "\n"


def of_item(section, item):
    """The lines of an item."""
    yield f"### {item.name}: {item.title}"
    yield ""
    yield from [f"{deviation(item)}."] * bool(deviation(item))
    yield item.why
    if item.reason:
        yield f"*{item.reason}*"
    yield ""
    remarks = any(row.remark for row in item.rows)
    heads = ["", "published", "measured", "predicted", *["remark"] * remarks]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in item.rows:
        values = (PUBLISHED, row.published), (row.mark, row.measured), (PREDICTED, row.predicted)
        texts = [row.label, *(marked(*value) for value in values), *[row.remark] * remarks]
        yield f"| {' | '.join(map(safe, texts))} |"
    for figure, mark in item.figures:
        yield ""
        yield f"![{item.name}: {item.title}{words.of_figure(mark)}]({figure})"
    yield ""
    yield from (f"- {name}: {text}" for name, text in words.provenance(section, item))


def marked(mark, value):
    """A value with the symbol of its mark."""
    return "-" if value is None else f"{words.SYMBOLS[mark]} {cell(value)}"


def safe(text):
    """A text that may stand in a cell."""
    return text.replace("|", "\\|").replace("<", "&lt;")
