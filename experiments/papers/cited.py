"""What a paper prints: numbers, numbers read off its figures, and numbers that follow from these.

`PAPER.toml` has what was taken from the paper, each with its place in it:

    [tables."5.1"]           rows of a table; their first columns are their key
    place = "Table 5.1, page 32"
    columns = ["N", "max"]
    rows = [[2, 22757]]

    [values.batch]           one number, or words, of the text
    value = 5.8
    place = "abstract"

A column "place" gives each row a place of its own, `uncertainty` marks numbers that were read off a figure. Numbers that
follow from others are not kept: `derived` computes them.
"""

from dataclasses import dataclass

PRINTED, READ, DERIVED = "printed", "read off", "derived"
NOT_PRINTED = "-"  # stands where a paper prints nothing


@dataclass(frozen=True)
class Cited:
    """A number of a paper, or words that hold it. kind: PRINTED, READ off a figure, or DERIVED from such ones. place: where it
    is printed, or what it is derived from. uncertainty: of a READ value. formula: the words for that of a DERIVED one."""

    value: float | str
    kind: str
    place: str
    uncertainty: str = ""
    formula: str = ""

    def __post_init__(self):
        if not self.place or (self.kind == READ) != bool(self.uncertainty) or (self.kind == DERIVED) != bool(self.formula):
            raise ValueError(
                f"{self.kind} {self.value} needs its place, what is read an uncertainty, what is derived a formula"
            )


def derived(formula, function, *inputs, place=""):
    """What follows from numbers of a paper, a Cited; None if any input is. formula: its words. inputs: Cited, at least one of
    them, or settings of ours. place: where the paper prints the formula."""
    if any(one is None for one in inputs):
        return None
    places = [one.place for one in inputs if isinstance(one, Cited)]
    if not places:
        raise ValueError(f"{formula}: without a number of the paper nothing is derived from it, but predicted")
    value = function(*(one.value if isinstance(one, Cited) else one for one in inputs))
    return Cited(value, DERIVED, place or "; ".join(dict.fromkeys(places)), formula=formula)


def ratio(one, other):
    return derived("the first over the second", lambda a, b: a / b, one, other)


@dataclass(frozen=True)
class PublishedTable:
    """Numbers of one table."""

    place: str
    columns: tuple
    rows: tuple
    uncertainty: str

    def lines(self):
        """The rows as dicts."""
        return [dict(zip(self.columns, row)) for row in self.rows]


@dataclass(frozen=True)
class Published:
    """All that was taken from a paper. tables: {name: PublishedTable}. values: {name: Cited}. ValueError for other names."""

    tables: dict
    values: dict

    def value(self, name):
        """The Cited of this name."""
        if name not in self.values:
            raise ValueError(f"the paper has no value '{name}': there are {', '.join(self.values)}")
        return self.values[name]

    def lines(self, table):
        """The rows of a table as dicts."""
        if table not in self.tables:
            raise ValueError(f"the paper has no table '{table}': there are {', '.join(self.tables)}")
        return self.tables[table].lines()

    def cited(self, table, column, *key):
        """The Cited of a column, of the row whose first columns are `key`; None if it has no such row, or prints nothing."""
        lines, known = self.lines(table), self.tables[table]
        if column not in known.columns:
            raise ValueError(f"table '{table}' of the paper has no column '{column}': it has {', '.join(known.columns)}")
        row = next((row for row in lines if tuple(row.values())[: len(key)] == key), None)
        if row is None or row[column] == NOT_PRINTED:
            return None
        return Cited(row[column], READ if known.uncertainty else PRINTED, row.get("place", known.place), known.uncertainty)

    def number(self, table, column, *key):
        """The same that is printed, the number alone."""
        return self.cited(table, column, *key).value


def of_content(tables, values):
    """The Published of what a file has. ValueError for a number without a place, or a row of another length."""
    for name, one in values.items():
        if not one.get("place"):
            raise ValueError(f"{name}: it names no place in the paper")
    cited = {
        name: Cited(one["value"], READ if one.get("uncertainty") else PRINTED, one["place"], one.get("uncertainty", ""))
        for name, one in values.items()
    }
    return Published({name: table_of(name, **table) for name, table in tables.items()}, cited)


def table_of(name, columns, rows, place="", uncertainty="", **remarks):
    """The PublishedTable of a table of TOML. remarks: for who reads that."""
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"table {name}: the row {row} has not one value for each of {columns}")
    found = PublishedTable(place, tuple(columns), tuple(map(tuple, rows)), uncertainty)
    if not all(row.get("place", place) for row in found.lines()):
        raise ValueError(f"table {name}: a row names no place in the paper")
    return found
