"""A paper as data: what it prints, its tables and figures, and its claims are in NAME.toml; what is run for it is in NAME.py.

    title, about, verdict, described, notes, minutes          of the paper; `measured_on` is an expression
    [values.batch]            a number of the text            value, place
    [tables."5.1"]            rows of a table                 place, columns, rows
    [[items]]                 a table or figure, here         name, title, source, [[items.rows]], why, command, ..
    [figures.speedups]        lines of a table of ours        table, x, y, series, panel, log, bars, labels
    [claims.order]            a sentence of the paper         says, place, main, let, holds, numbers, reason

Texts are f-strings, what decides is an expression, see `expressions.py`. Both may use

    v("batch"), t("5.1", "speedup", 2)    a number of the text; of the row of a table whose first columns are these
    printed("5.1")                        the rows of a table of the paper
    rows("split", ranks=2)                the rows of a table of ours with these values; MissingError without any
    col("split", "speedup", ranks=2)      a column of them
    kept("results/bench.json", "rows")    what the results of another program hold under these keys
    source("results/bench.json")          that file and the processor that it names
    min max sum len abs round all any sorted zip range int float str, median mean, near span listed, every agree within above
    alike

and what `NAME.names(tables)` returns. A claim whose expressions ask for what is not there is open, with `missing` or the reason
why; one with `open` is open; `contradiction = true` says that two passages contradict each other. `let` names expressions that
are computed first. `holds` may be None: not known. `kind` is one of measured (without it), kept, predicted, derived, or an
expression that gives one.

`like = "steps"` gives an item or a claim the entries of [shared.steps] as far as it has none of its own; its own `let` is
computed first. An item without `command` is measured by `reproduce NAME`. One with `each` (an expression, a list of dicts whose
columns are names in the item and its rows) is one for each of them.

A row of an item: `each` (the same, of rows; `row` is the dict itself), `label`, `remark`
(texts), `measured`, `predicted`, `printed` (expressions; the last one is a single t(..) or v(..)), or `derived`, an expression
over such, with `formula`, its words. What an entry leaves out are the columns of `each` with these names.
"""

import tomllib
from functools import lru_cache, reduce
from importlib import import_module
from operator import getitem
from pathlib import Path
from statistics import mean, median

from gridgrad.experiments.common.tables import cell, counted
from gridgrad.experiments.papers.cited import NOT_PRINTED, derived, of_content
from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, FOLLOWS, HOLDS, OPEN, Claim, Finding, in_order
from gridgrad.experiments.papers.expressions import Expression, MissingError
from gridgrad.experiments.papers.items import KEPT, MEASURED, PREDICTED, Item, ItemRow, is_number
from gridgrad.nn.files.documents import UNFIT, content_of_file

NAMES = "laugier2018", "grabaskas2018", "hegde2016", "marques2016", "eserol2019"  # of the papers, in this order on the page
FOLDER = Path(__file__).parent
KINDS = {"measured": MEASURED, "kept": KEPT, "predicted": PREDICTED, "derived": FOLLOWS}
TEXTS = "label", "remark"  # of a row
OF_CLAIM = {"holds": False, "numbers": True, "reason": True, "open": True, "missing": True, "kind": False}  # is it a text?
OF_ITEM = {"name": True, "title": True, "source": True, "why": True, "reason": True, "model": True, "results": True,
           "command": True, "processor": False, "figures": False}  # fmt: skip
WORDS = "title", "about", "verdict", "described"  # of the paper
NEEDED = {"claim": {"says", "place"}, "item": {"name", "title", "source"}, "row of item": set()}
KNOWN = {
    "claim": {"says", "place", "main", "let", "contradiction", *OF_CLAIM},
    "item": {"each", "rows", "plot", "compares", *OF_ITEM},
    "row of item": {"each", "derived", "printed", "formula", "place", "measured", "predicted", *TEXTS},
}


class Paper:
    """All that is said of a paper. module: NAME.py. The rest of what it has is as in the file."""

    def __init__(self, name, text, module):
        self.name, self.module, self._expressions = name, module, {}
        try:
            content = tomllib.loads(text)
            self.known = of_content(content.pop("tables", {}), content.pop("values", {}))
            shared = content.pop("shared", {})
            self.item_data = [completed(one, shared) for one in content.pop("items", [])]
            self.claim_data = {key: completed(one, shared) for key, one in content.pop("claims", {}).items()}
        except ValueError as error:
            raise ValueError(f"{name}.toml: {error}") from None
        self.title, self.about, self.verdict, self.described = (content.pop(key, "") for key in WORDS)
        self.minutes, self.figures = content.pop("minutes", None), content.pop("figures", {})
        self.measured_on = Expression(content.pop("measured_on", "''"), f"{name}: measured_on")
        if content.keys() - {"notes"}:  # which are remarks of ours
            raise ValueError(f"{name}.toml: {', '.join(content)}: numbers stand in tables or in values, which name their place")
        for key, one in self.claim_data.items():
            check_entry(name, "claim", key, one)
        for one in self.item_data:
            check_entry(name, "item", one.get("name"), one)
            for row in one.get("rows", ()):
                check_entry(name, "row of item", one["name"], row)

    def items(self, tables):
        """All Items. tables: of `NAME.tables`."""
        names = self.names(tables)
        return [self._item(dict(one), names | line) for one in self.item_data for line in self._lines(one, one["name"], names)]

    def claims(self, tables):
        """All Claims with what is found of them, contrary results first."""
        names = self.names(tables)
        return in_order(
            Claim(key, one["says"], one["place"], one.get("main", False), self._finding(key, one, names))
            for key, one in self.claim_data.items()
        )

    def where(self, tables):
        """On which machine was measured; empty if nowhere."""
        return self.measured_on(self.names(tables)) if tables else ""

    def draw(self, tables, out):
        """Write the figures of the file, as far as their tables have rows, into the folder `out`."""
        from pandas import DataFrame  # late, as is what draws

        from gridgrad.experiments.plots import lines
        from gridgrad.experiments.plots.style import save

        for name, spec in self.figures.items():
            if rows := tables.get(spec["table"]):
                how = {key: value for key, value in spec.items() if key not in ("table", "x", "y")}
                save(lines.draw(DataFrame(rows), spec["x"], [spec["y"]], **how), out / f"{name}.png")

    def names(self, tables):
        """{name: what it is in expressions}."""
        of_ours = Ours(tables, f"nothing of this was measured: `gridgrad reproduce {self.name}` does it")
        return {
            **FUNCTIONS, **self.module.names(tables), "printed": self.known.lines,
            "v": lambda key: self.known.value(key).value, "t": lambda *key: number_of(self.known.cited(*key)),
            "rows": of_ours.rows, "col": of_ours.column, "tables": tables,
        }  # fmt: skip

    def _computed(self, text, where, names, is_text=False):
        """The value of an expression or a text, which is read once."""
        if (text, is_text) not in self._expressions:
            self._expressions[text, is_text] = Expression(text, f"{self.name}, {where}", is_text)
        return self._expressions[text, is_text](names)

    def _finding(self, key, claim, names):
        """The Finding of a claim."""
        names, where = dict(names), f"claim '{key}'"
        said = lambda word: self._computed(claim[word], where, names, OF_CLAIM[word]) if word in claim else ""  # noqa: E731
        try:
            for word, text in claim.get("let", {}).items():
                names[word] = self._computed(text, where, names)
            kind = KINDS.get(claim.get("kind", "measured")) or KINDS.get(said("kind"))
            if kind is None:
                raise ValueError(f"{self.name}, {where}: the kind is one of {', '.join(KINDS)}")
            if claim.get("contradiction"):
                return Finding(CONTRADICTORY, said("numbers"), said("reason"), FOLLOWS)
            if "open" in claim:
                return Finding(OPEN, said("numbers"), said("open"), kind if "numbers" in claim else FOLLOWS)
            holds = self._computed(claim["holds"], where, names)
            return Finding(OPEN if holds is None else HOLDS if holds else DIFFERS, said("numbers"), said("reason"), kind)
        except MissingError as error:
            return Finding(OPEN, "", said("missing") or str(error), FOLLOWS)

    def _lines(self, spec, where, names):
        """What `each` of an item or a row gives; without it one dict of nothing."""
        return self._computed(spec["each"], where, names) if "each" in spec else [{}]

    def _item(self, item, names):
        """The Item of a table of the file."""
        where = f"item '{item['name']}'"
        item = {"command": f"reproduce {self.name}"} | item
        item.pop("each", None)
        rows = [row for spec in item.pop("rows", ()) for row in self._rows(spec, where, names)]
        for word, is_text in OF_ITEM.items():
            if isinstance(item.get(word), str):
                item[word] = self._maybe(item[word], where, names, is_text) or ""
        item["figures"] = tuple(item.get("figures", ()))
        return Item(rows=tuple(rows), **item)

    def _rows(self, spec, where, names):
        """The ItemRows that an entry of `rows` stands for."""
        try:
            lines = self._lines(spec, where, names)
        except MissingError:
            return
        for line in lines:
            inner = {**names, **line, "row": line}
            ours = {word: self._maybe(spec[word], where, inner, word in TEXTS) if word in spec else line.get(word)
                    for word in (*TEXTS, "measured", "predicted")}  # fmt: skip
            remark = ours.pop("remark") or ""
            cited = self._of_paper(spec, where, inner) if {"printed", "derived"} & spec.keys() else line.get("printed")
            yield ItemRow(cited=cited, remark=remark, **{key: None if one == NOT_PRINTED else one for key, one in ours.items()})

    def _maybe(self, text, where, names, is_text=False):
        try:
            return self._computed(text, where, names, is_text)
        except MissingError:
            return None

    def _of_paper(self, spec, where, names):
        """The Cited of a row; None where the paper says nothing."""
        if "printed" in spec:
            return self._computed(spec["printed"], where, {**names, "v": self.known.value, "t": self.known.cited})
        used = []

        def noted(cited):
            used.append(cited)
            return number_of(cited)

        own = {"v": lambda key: noted(self.known.value(key)), "t": lambda *key: noted(self.known.cited(*key))}
        value = self._maybe(spec["derived"], where, names | own)
        return None if value is None else derived(spec["formula"], lambda *_: value, *used, place=spec.get("place", ""))


def completed(entry, shared):
    """An item or a claim of a file, with what it has not itself from the entry of `shared` that it is `like`."""
    if "like" not in entry:
        return entry
    if (name := entry.pop("like")) not in shared:
        raise ValueError(f"like = '{name}': there is no [shared.{name}]")
    given, own = shared[name], entry.get("let", {})
    lets = own | {key: text for key, text in given.get("let", {}).items() if key not in own}
    return given | entry | ({"let": lets} if lets else {})


def check_entry(paper, kind, name, entry):
    """Raise ValueError for an entry of a file that lacks a key, or has one that there is not."""
    where = f"{paper}.toml, {kind} '{name}'"
    if lacking := [key for key in sorted(NEEDED[kind]) if not entry.get(key)]:
        raise ValueError(f"{where}: {' and '.join(lacking)} is missing")
    if unknown := entry.keys() - KNOWN[kind]:
        raise ValueError(f"{where}: there is no {' nor '.join(sorted(unknown))}: it may have {', '.join(sorted(KNOWN[kind]))}")
    if kind == "claim" and not {"holds", "open", "contradiction"} & entry.keys():
        raise ValueError(f"{where}: it needs `holds`, or `open` with the reason why nothing decides it")


class Ours:
    """The tables of a paper, as expressions ask for them. missing: why something is not there."""

    def __init__(self, tables, missing):
        self.tables, self.missing = tables, missing

    def rows(self, table, *columns, **values):
        """The rows with these values; MissingError without any, ValueError for a table or a column that there is not."""
        if self.tables and table not in self.tables:
            raise ValueError(f"there is no table '{table}': there are {', '.join(self.tables)}")
        rows = self.tables.get(table) or ()
        known = dict.fromkeys(name for row in rows for name in row)
        for column in (*columns, *values):
            if rows and column not in known:
                raise ValueError(f"table '{table}' has no column '{column}': it has {', '.join(known)}")
        return self._found([row for row in rows if all(row.get(name) == value for name, value in values.items())])

    def column(self, table, column, **values):
        """The values of a column in these rows, without those that are None; MissingError without any."""
        return self._found([row[column] for row in self.rows(table, column, **values) if row.get(column) is not None])

    def _found(self, some):
        if not some:
            raise MissingError(self.missing)
        return some


def number_of(cited):
    """The number of a Cited; MissingError where the paper prints none."""
    if cited is None:
        raise MissingError("the paper prints no such number")
    return cited.value


def kept(path, *keys, choose=None):
    """What a file of JSON that another program wrote holds under these keys, or what `choose` finds in its content.
    MissingError, with the reason, where it has nothing there."""
    if not Path(path).exists():
        raise MissingError(f"there is no {path}")
    try:
        found = reduce(getitem, keys, content_of_file(path))
        return choose(found) if choose else found
    except (*UNFIT, OSError) as error:
        raise MissingError(f"{path} does not hold what decides this ({type(error).__name__})") from None


def source(path, content=None):
    """The words for where a number is from: a file, and the processor that it names, or that a part of it does."""
    return f"{path}, {(content or kept(path))['versions']['processor']}"


def groups(rows, *names):
    """{values of these columns: rows}."""
    found = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def starting(named, prefix, key=None):
    """{rest of the name: value, or what it has under a key} of those whose names begin so."""
    found = {name.removeprefix(prefix): one for name, one in named.items() if name.startswith(prefix)}
    return {name: one[key] for name, one in found.items()} if key else found


# ----- what all papers' expressions have


def near(one, other, most=0.1):
    """Whether numbers differ by less than the part `most` of the second."""
    return abs(one - other) <= most * abs(other)


def span(values, form=".3g"):
    """The least and the most of some numbers, in words."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def listed(values, form=".3g"):
    return ", ".join(format(value, form) for value in values)


def every(answers):
    """Whether all of some answers are True: False where one is, None where one is unknown."""
    answers = list(answers)
    return False if False in answers else None if None in answers else True


def agree(answers):
    """What a list of answers says if they are the same; else None, not known."""
    return answers[0] if len(set(answers)) == 1 else None


def within(one, low, high):
    """Whether a range, (least, most), lies between two numbers: True, False, or None where a part of it does."""
    return True if low <= one[0] and one[1] <= high else False if one[1] < low or one[0] > high else None


def above(one, other, by=1.0):
    """Whether a number is greater than another by more than a factor: True, False, or None where their ranges overlap. one,
    other: their ranges, (least, most)."""
    return True if one[0] > by * other[1] else False if by * one[1] < other[0] else None


def alike(ranges, most, as_difference=False):
    """Whether numbers of several cases are about the same: True, False, or None where the rounds of one case differ as much.
    ranges: (least, most) of each. most: by how much they may differ, relative, or `as_difference`."""
    apart = (lambda a, b: a - b) if as_difference else (lambda a, b: a / b - 1)
    if apart(max(high for _, high in ranges), min(low for low, _ in ranges)) < most:
        return True
    return False if any(a[0] > b[1] and apart(a[0], b[1]) >= most for a in ranges for b in ranges) else None


FUNCTIONS = {
    "min": min, "max": max, "sum": sum, "len": len, "abs": abs, "round": round, "all": all, "any": any, "sorted": sorted,
    "zip": zip, "range": range, "int": int, "float": float, "str": str, "set": set, "median": median, "mean": mean,
    "near": near, "span": span, "listed": listed, "every": every, "agree": agree, "within": within, "above": above,
    "alike": alike, "kept": kept, "join": lambda words, between=", ": between.join(words), "first": lambda found: found[0],
    "last": lambda found: found[-1], "values": lambda named: list(named.values()), "pairs": lambda named: list(named.items()),
    "starting": starting, "source": source, "counted": counted, "cell": cell, "is_number": is_number, "bool": bool,
    "NOT_PRINTED": NOT_PRINTED,
}  # fmt: skip


def printed(name):
    """What the paper of NAME.toml prints, a Published, for NAME.py."""
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return of_content(content["tables"], content["values"])


@lru_cache
def paper_of(name):
    """The Paper of NAME.toml and NAME.py. ValueError for a mistake in the file."""
    module = import_module(f"gridgrad.experiments.papers.{name}")
    return Paper(name, (FOLDER / f"{name}.toml").read_text(encoding="utf-8"), module)
