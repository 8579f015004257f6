"""Figures over the number of ranks: speedup, efficiency, weak efficiency and time of a step of scaling studies.

A panel for each network, data set and kind of scaling; a line for each series. Points are medians over the runs, with bars for
their intervals. Hollow points had more ranks than cores, crosses mark runs beside other programs, dashed lines are predicted.

Speedups and efficiencies are over one rank. A line without a run on one rank is left out, and named: a speedup over a parallel
run would hide what those ranks already lose, and be over another time for each line. Its time needs no such run.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from gridgrad.experiments.plots import style as looks
from gridgrad.experiments.plots.panels import BUSY, HOLLOW, MISFIT, Panel, Series
from gridgrad.experiments.plots.panels import draw as draw_panels
from gridgrad.experiments.scaling.statistics import FEWEST
from gridgrad.experiments.scaling.summary import is_busy_alone
from gridgrad.experiments.scaling.table import UNLIKE

STRONG, WEAK = "strong", "weak"
LONG = 10.0  # seconds of a step from which on a figure counts in seconds
MOST_IDEALS = 4  # ideal lines in a panel: more of them say nothing


@dataclass(frozen=True)
class Kind:
    words: str  # what it shows
    label: str
    value: Callable  # of a Row: a Median or None
    ideal: Callable  # of (Row, ranks): the value on so many ranks if that Row scaled perfectly
    base: int | None = None  # of a logarithmic axis
    over_one: bool = True  # whether it is over one rank
    scalings: tuple = (STRONG, WEAK)


def of_time(name, unit):
    """The Kind of a step's time in a unit of seconds."""
    ideal = lambda first, ranks: first.seconds.value / unit * (first.ranks / ranks if first.scaling == STRONG else 1)  # noqa: E731
    return Kind("the time of a step, beside ideal scaling", f"{name} a step",
                lambda row: row.seconds and row.seconds.times(1 / unit), ideal, 10, over_one=False)  # fmt: skip


SPEEDUP = Kind("the speedup over one rank", "speedup over 1 rank", lambda row: row.speedup, lambda _, ranks: ranks, 2)
EFFICIENCY = Kind("the parallel efficiency of strong scaling", "efficiency", lambda row: row.efficiency, lambda *_: 1.0,
                  scalings=(STRONG,))  # fmt: skip
WEAK_EFFICIENCY = replace(EFFICIENCY, words="the efficiency of weak scaling", scalings=(WEAK,))
KINDS = {"speedup": SPEEDUP, "efficiency": EFFICIENCY, "weak": WEAK_EFFICIENCY, "time": of_time("ms", 1e-3)}


def points_of(line, kind):
    """[(Row, Median)] of the points of a Line that have a value."""
    return [(row, found) for row in line.rows if (found := kind.value(row))]


def draw(lines, name, look=looks.FITTING):
    """(figure, what to say on the terminal) of Lines. name: of a Kind. ValueError if none of the lines has what is drawn."""
    kind = KINDS[name]
    mine = [line for line in lines if line.panel.scaling in kind.scalings]
    if not mine:
        raise ValueError(f"there is no run of {' or '.join(kind.scalings)} scaling: {name} shows it alone")
    if name == "time" and max((row.seconds.value for line in mine for row in line.rows if row.seconds), default=0) >= LONG:
        kind = of_time("s", 1.0)
    found = defaultdict(list)
    for line in (line for line in mine if points_of(line, kind)):
        found[line.panel].append(line)
    if not found:
        advice = "add 1 to the ranks of the sweep, or draw time, which needs no run on 1 rank" if kind.over_one else (
            "give more --steps to the sweep")  # fmt: skip
        raise ValueError(f"no run has {kind.words}: {advice}")
    drawn = [line for of_panel in found.values() for line in of_panel]
    missing = missing_words(mine, drawn, kind)
    panels = []
    for of_panel in found.values():
        series, ideal = [series_of(line, kind) for line in of_panel], ideals(of_panel, kind)
        sizes = {line.rows[0].runs[0].get("ranks_per_node") or 1 for line in of_panel if line.is_predicted}
        full = sorted(size for size in sizes if 1 < size < max(max(one.x) for one in series))  # nodes of predicted machines
        title = of_panel[0].panel.network, title_of(of_panel)
        panels.append(Panel(title, series, ideal if len(ideal) <= MOST_IDEALS else [], full))
    how = {"log": "x,y", "base": kind.base} if kind.base else {"log": "x", "zero": True}
    words = [" ".join(words_of(drawn)), *missing]
    return draw_panels(panels, ("ranks", kind.label), look, words, shared=kind.over_one, **how), missing


def series_of(line, kind):
    """The Series of a Line."""
    found = points_of(line, kind)
    values = ([getattr(one, end) for _, one in found] for end in ("value", "low", "high"))
    special = {MISFIT: lambda row: not row.fits} if line.is_predicted else {
        HOLLOW: lambda row: row.oversubscribed, BUSY: is_busy_alone}  # fmt: skip
    marks = {meaning: [number for number, (row, _) in enumerate(found) if is_so(row)] for meaning, is_so in special.items()}
    return Series(line.name, [row.ranks for row, _ in found], *values, line.is_predicted, marks)


def ideals(lines, kind):
    """The different ideal lines of Lines of a panel, each as [(ranks, value)]: from the first point of a Line on."""
    found = {}  # {value on one rank, to three digits, which are less than a line is wide: (the first Row, numbers of ranks)}
    for line in lines:
        rows = [row for row, _ in points_of(line, kind)]
        found.setdefault(f"{kind.ideal(rows[0], 1):.3g}", (rows[0], set()))[1].update(row.ranks for row in rows)
    return [[(number, kind.ideal(first, number)) for number in sorted(ranks)] for first, ranks in found.values()]


def title_of(lines):
    """The small words in a title: scaling, batch and data set, so far as all lines share them."""
    panel, batches = lines[0].panel, {line.rows[0].batch // (line.rows[0].ranks if line.panel.scaling == WEAK else 1)
                                      for line in lines}  # fmt: skip
    words = [f"{panel.scaling} scaling"]
    if len(batches) == 1:
        words.append(f"batch {batches.pop()}" + (" a rank" if panel.scaling == WEAK else ""))
    return ", ".join([*words, panel.dataset] if panel.dataset else words)


def words_of(drawn):
    """Sentences of the caption: where the points come from, what they are, and what failed."""
    measured, predicted = ([line for line in drawn if line.is_predicted == which] for which in (False, True))
    if measured:
        yield (f"{where_words(measured)} Points are medians, bars intervals of 95 % confidence or, of fewer than {FEWEST} "
               "runs, the least and the greatest.")  # fmt: skip
    if predicted:
        yield f"Predicted by the cost model for {' and '.join(dict.fromkeys(line.origin for line in predicted))}."
    if failed := {f"{line.name} on {row.ranks} ranks": 0 for line in drawn for row in line.rows
                  if row.failed and not row.seconds}:  # fmt: skip
        yield f"Failed: {'; '.join(failed)}."


def where_words(lines):
    """Where measured lines were measured."""
    where = defaultdict(dict)
    for line in lines:
        where[line.measured_on][line.origin] = True
    named = {place: f" ({', '.join(origins)})" if len(where) > 1 else "" for place, origins in where.items()}
    return " ".join(f"Measured on {place}{names}." for place, names in named.items())


def missing_words(lines, drawn, kind):
    """Sentences about the lines and the points that are not drawn. lines: all of the kinds of scaling that are."""
    found = {"there is no run on 1 rank": {}, UNLIKE.removeprefix("as "): {}}
    alone, unlike = found.values()
    for line in lines if kind.over_one else ():
        name, rows = f"{line.name} of {line.panel.network}", [row.ranks for row in line.rows if row.unlike]
        unlike |= {f"{name} on {ranks} ranks": 0 for ranks in rows}
        if line not in drawn and not rows and any(row.seconds for row in line.rows):
            alone[name] = 0
    return [f"Not drawn, as {why}: {'; '.join(which)}." for why, which in found.items() if which]
