"""Tables as programs print them in a terminal: straight columns, numbers flush right. Units stand in the headings."""

import re

from gridgrad.experiments.common.markdown import cell
from gridgrad.nn.summary import aligned

NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]\d+)?( ?%| \(.*\)|x)?|-|")  # with its unit or its range, or nothing


def table(rows, text=cell):
    """The text of a table. rows: dicts with the same keys, which are the headings. text: makes the text of a value."""
    heads = list(rows[0])
    lines = [[text(row[head]) for head in heads] for row in rows]
    sides = (">" if all(map(NUMBER.fullmatch, column)) else "<" for column in zip(*lines))
    return aligned([heads, *lines], list(sides))


def spread(of, unit=1.0):
    """A median and its range as text, in some unit. of: {"median", "min", "max"}."""
    return "{} ({} - {})".format(*(cell(of[name] / unit) for name in ("median", "min", "max")))
