"""What a paper says: numbers that it prints, numbers read off its figures, numbers that follow from these, and its claims.

`PAPER.toml` has what was taken from the paper, each with its place in it:

    [tables."5.1"]           rows of a table; their first columns are their key
    place = "Table 5.1, page 32"
    columns = ["N", "max"]
    rows = [[2, 22757]]

    [values.batch]           one number, or words, of the text
    value = 5.8
    place = "abstract"

    [claims.order]           a sentence of the paper, in our words, see `claims.py`
    says = "..."
    place = "section 5.3"
    main = true

A column "place" gives each row a place of its own, `uncertainty` marks numbers that were read off a figure. Numbers that
follow from others are not kept: a `Formula` computes them.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

PRINTED, READ, DERIVED = "printed", "read off", "derived"
NOT_PRINTED = "-"  # stands where a paper prints nothing
FOLDER = Path(__file__).parent / "published"


@dataclass(frozen=True)
class Cited:
    """A number of a paper, or words that hold it.

    kind: PRINTED, READ off a figure, or DERIVED from such ones. place: where it is printed, or what it is derived from.
    uncertainty: of a READ value. formula: of a DERIVED one; inputs: what that was computed from, `Cited` or plain settings.
    """

    value: float | str
    kind: str
    place: str
    uncertainty: str = ""
    formula: "Formula | None" = None
    inputs: tuple = ()

    def __post_init__(self):
        if not self.place or (self.kind == READ) != bool(self.uncertainty) or (self.kind == DERIVED) != bool(self.formula):
            raise ValueError(
                f"{self.kind} {self.value} needs its place, what is read an uncertainty, what is derived a formula"
            )


@dataclass(frozen=True)
class Formula:
    """How numbers follow from numbers of a paper. words: the formula. place: where the paper prints it, if it does."""

    words: str
    function: Callable
    place: str = ""

    def __call__(self, *inputs):
        """What follows, a Cited; None if any input is. inputs: Cited, at least one of them, or settings of ours."""
        if any(one is None for one in inputs):
            return None
        places = [one.place for one in inputs if isinstance(one, Cited)]
        if not places:
            raise ValueError(f"{self.words}: without a number of the paper nothing is derived from it, but predicted")
        place = self.place or "; ".join(dict.fromkeys(places))
        return Cited(self.value(*inputs), DERIVED, place, formula=self, inputs=inputs)

    def value(self, *inputs):
        """The number alone."""
        return self.function(*(one.value if isinstance(one, Cited) else one for one in inputs))


RATIO = Formula("the first over the second", lambda a, b: a / b)


@dataclass(frozen=True)
class PublishedTable:
    """Numbers of one table. about: what else the file says of it."""

    place: str
    columns: tuple
    rows: tuple
    uncertainty: str
    about: dict

    def cited(self, column, *key):
        """The Cited of a column, of the row whose first columns are `key`; None if it has no such row, or prints nothing."""
        row = next((row for row in self.lines() if tuple(row.values())[: len(key)] == key), None)
        if row is None or row[column] == NOT_PRINTED:
            return None
        return Cited(row[column], READ if self.uncertainty else PRINTED, row.get("place", self.place), self.uncertainty)

    def lines(self):
        """The rows as dicts."""
        return [dict(zip(self.columns, row)) for row in self.rows]


@dataclass(frozen=True)
class Saying:
    """A claim of a paper, in our words. main: whether the summary of the paper names it."""

    says: str
    place: str
    main: bool = False


@dataclass(frozen=True)
class Published:
    """All that was taken from a paper. values: {name: Cited}. notes: remarks on what it says, which are ours."""

    tables: dict
    values: dict
    claims: dict
    notes: tuple


@lru_cache
def published(paper):
    """The Published of a paper, such as "hegde2016"."""
    return of_text((FOLDER / f"{paper}.toml").read_text(encoding="utf-8"))


def of_text(text):
    """The Published in a text of TOML. ValueError as of `of_content`."""
    return of_content(tomllib.loads(text))


def of_content(content):
    """The Published in the content of a file. ValueError for a number or claim without a place, or a row of another length."""
    tables = {name: table_of(name, **table) for name, table in content.pop("tables", {}).items()}
    values, claims = content.pop("values", {}), content.pop("claims", {})
    notes = tuple(content.pop("notes", ()))
    if content:
        raise ValueError(f"{', '.join(content)}: numbers stand in tables or in values, which name their place")
    for name, one in (values | claims).items():
        if not one.get("place"):
            raise ValueError(f"{name}: it names no place in the paper")
    cited = {
        name: Cited(one["value"], READ if one.get("uncertainty") else PRINTED, one["place"], one.get("uncertainty", ""))
        for name, one in values.items()
    }
    return Published(tables, cited, {name: Saying(**one) for name, one in claims.items()}, notes)


def table_of(name, columns, rows, place="", uncertainty="", **about):
    """The Table of a table of TOML."""
    if not place and "place" not in columns:
        raise ValueError(f"table {name}: it names no place in the paper")
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"table {name}: the row {row} has not one value for each of {columns}")
    found = PublishedTable(place, tuple(columns), tuple(map(tuple, rows)), uncertainty, about)
    if not all(row.get("place", place) for row in found.lines()):
        raise ValueError(f"table {name}: a row names no place in the paper")
    return found
