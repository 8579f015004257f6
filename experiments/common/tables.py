"""Tables of a list of dicts with the same keys, which are the headings: in a terminal, and as Markdown."""

import re
from itertools import groupby
from statistics import median

from gridgrad.nn.network_summary import aligned

NUMBER = re.compile(r"[-+]?\d[^a-df-wyz=]*|-|")  # also with an exponent, a range, % or x; or nothing


def counted(number, thing):
    """A number of things in words: "1 rank", "4 ranks"."""
    return f"{number} {thing}{'s' * (number != 1)}"


def cell(value):
    """A value as text; numbers with four digits."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def table(rows):
    """The text of a table in a terminal: straight columns, numbers flush right."""
    return columns([list(rows[0]), *([cell(value) for value in row.values()] for row in rows)])


def columns(lines):
    """Lines of texts, the first of which are the headings, as one text with straight columns."""
    sides = [">" if all(map(NUMBER.fullmatch, column[1:])) else "<" for column in zip(*lines)]
    return aligned(lines, sides)


def lines(rows, text=cell):
    """The lines of a table in Markdown. text: a function that makes the text of a value."""
    heads = list(rows[0])
    rule = f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}"
    return "\n".join([rule, *(f"| {' | '.join(text(row[head]) for head in heads)} |" for row in rows)])


def terminal(markdown):
    """Markdown as one reads it in a terminal: tables in straight columns, without marks of code."""
    found = []
    for is_table, part in groupby(markdown.replace("`", "").strip().splitlines(), key=lambda line: line.startswith("|")):
        if is_table:
            head, _, *rows = ([text.strip() for text in line[1:-1].split("|")] for line in part)
            part = [columns([head, *rows])]
        found += part
    return "\n".join(found)


def range_of(values):
    """The median of some numbers and their range, as reports have them: {"median", "min", "max"}."""
    return {"median": float(median(values)), "min": float(min(values)), "max": float(max(values))}


def spread(of, unit=1.0):
    """A median and its range as text, in some unit. of: what `range_of` returns."""
    return "{} ({} - {})".format(*(cell(of[name] / unit) for name in ("median", "min", "max")))


def rounded(number):
    """A number rounded to six digits, which keeps files small."""
    return float(f"{number:.6g}")
