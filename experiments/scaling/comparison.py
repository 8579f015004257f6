"""Two studies of the same points, point by point: before and after a change, on two machines, with two MPI libraries.

Steps vary by factors, so logarithms are compared, by the test of Welch (1947) of independent runs. How often a point ran
depends on what was measured: so the degrees of freedom are those of the repeats that were planned (Stein 1945), which keeps the
level where noise is normal. The verdicts are corrected for many points (Holm 1979); the intervals are of 95 % each alone.

A core is not always as fast. Each run measured how long a reference product took between its steps, and steps are compared in
such products where all runs have them, on the same processor and BLAS; else in seconds. What slows a whole study down no test
can tell from a change of the program: measure the two by turns, as docs/figures.md says.
"""

from math import exp, inf, log, sqrt
from statistics import fmean, geometric_mean, variance
from typing import NamedTuple

from scipy.special import stdtr, stdtrit

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.scaling.records import seconds_of
from gridgrad.experiments.scaling.statistics import CONFIDENCE
from gridgrad.experiments.scaling.study import STUDY, Point
from gridgrad.experiments.scaling.summary import is_busy_alone, rows

FASTER, SLOWER, NOISE, FEW, BUSY = "faster", "slower", "no more than noise", "too few runs", "busy machine"
FEWEST = 3  # runs of a point in each study for a verdict
SHOWN = 4  # points, and values of a setting, that are named
CORE = "processor", "blas", "threads"  # entries of an environment that say what the reference product is computed by


class Ratio(NamedTuple):
    """How many times as long B takes, of geometric means, with its interval. chance: of so different means of equals."""

    value: float
    low: float
    high: float
    chance: float


class Compared(NamedTuple):
    """A point of two studies."""

    network: str
    series: str  # all of them
    scaling: str
    grid: str
    ranks: int
    batch: int
    seconds: tuple  # of the runs of both, two tuples
    measured: float  # the ratio of their geometric means
    ratio: Ratio | None  # None for too few runs
    is_normalised: bool  # the ratio is of reference products
    chance: float | None  # corrected for the number of points
    verdict: str  # one of those above
    environments: tuple


def compare(one, other, across=None):
    """The Compared points that two lists of records of measured runs share, in their order. across: a setting in which the
    points may differ, or None. ValueError if they share none, or across is wrong."""
    if across and not any(across in record["point"] for record in (*one, *other)):
        known = dict.fromkeys(name for record in (*one, *other) for name in record["point"])
        raise ValueError(f"--across {across}: no point has this setting; there are {', '.join(known)}")
    first, second = timed(one, across), timed(other, across)
    shared = [key for key in first if key in second]
    if not shared:
        words = " ".join(apart(one, other, across))
        raise ValueError(f"the two studies have no point in common that was timed in both. {words}")
    points = [compared_point(first[key], second[key]) for key in shared]
    chances, found = iter(corrected([point.ratio.chance for point in points if point.ratio])), []
    for point in points:
        if point.ratio:
            chance, sure = next(chances), SLOWER if point.ratio.value > 1 else FASTER
            point = point._replace(chance=chance, verdict=NOISE if chance > 1 - CONFIDENCE else sure)
        found.append(point)
    return found


def timed(records, across=None):
    """{key of a point without the setting `across`: its Rows} of the points that have times."""
    found = {}
    for row in rows([record for record in records if not record.get("predicted")]):
        if row.seconds:
            here = found.setdefault(Point(row.ranks, row.settings | {across: None}).key, [])
            if here and here[0].settings.get(across) != row.settings.get(across):
                raise ValueError(f"--across {across}: {row.network} on {row.grid} was measured with several values of it in "
                                 "one file: compare files with one value each")  # fmt: skip
            here.append(row)
    return found


def apart(one, other, across=None):
    """Lines about the points that only one of two lists of records has times of; none if both have the same."""
    first, second = timed(one, across), timed(other, across)
    if first.keys() == second.keys():
        return []
    lines = [f"{len(first.keys() & second.keys())} of {len(first)} points of A and {len(second)} of B are compared."]
    alone = [[of[0] for key, of in mine.items() if key not in others] for mine, others in ((first, second), (second, first))]
    for letter, rows_alone in zip("AB", alone):
        if names := [f"{row.network} ({row.series}) on {counted(row.ranks, 'rank')}" for row in rows_alone]:
            lines.append(f"Only {letter} has a time of {'; '.join(names[:SHOWN])}{'; ..' * (len(names) > SHOWN)}.")
    if all(alone):
        values = lambda rows, name: sorted({str(row.settings.get(name)) for row in rows})[:SHOWN]  # noqa: E731
        names = dict.fromkeys(name for rows in alone for row in rows for name in row.settings if name != "data_dir")
        pairs = {name: [values(rows, name) for rows in alone] for name in names}
        differing = {name: (a, b) for name, (a, b) in pairs.items() if a != b and name != across}
        words = [f"{name} (A: {', '.join(a)}, B: {', '.join(b)})" for name, (a, b) in differing.items()]
        advice = f": --across {next(iter(differing))} compares them" if len(differing) == 1 and not across else ""
        lines.append(f"They differ in {', '.join(words)}{advice}.")
    return lines


def compared_point(one, other):
    """A Compared point without its verdict. one, other: its Rows, the same point in several curves."""
    row, runs = one[0], tuple([run for run in of[0].runs if seconds_of(run)] for of in (one, other))
    seconds = tuple(tuple(map(seconds_of, of)) for of in runs)
    normalised = normalised_steps(*runs)
    series = "all" if row.ranks == 1 else "; ".join(dict.fromkeys(each.series for each in one))
    scaling = "" if row.ranks == 1 else row.scaling
    busy = is_busy_alone(row) or is_busy_alone(other[0])
    enough = min(map(len, seconds)) >= FEWEST and not busy
    ratio = ratio_of(*(normalised or seconds), *map(planned, runs)) if enough else None
    mean, mean_other = (fmean(map(log, of)) for of in seconds)
    return Compared(
        row.network, series, scaling, row.grid, row.ranks, row.batch, seconds, measured=capped(mean_other - mean), ratio=ratio,
        is_normalised=bool(ratio and normalised), chance=None, verdict=BUSY if busy else FEW,
        environments=(row.environment, other[0].environment),
    )  # fmt: skip


def normalised_steps(*studies):
    """The reference products of a step in the runs of a point, a list of each study; None if they do not compare."""
    runs = [run for of in studies for run in of]
    kinds = {tuple(run["environment"].get(name) for name in CORE) for run in runs}
    if len(kinds) > 1 or any(run.get("oversubscribed") or not run.get("core") for run in runs):
        return None
    return [[run["core"]["reference_products_per_step"] for run in of] for of in studies]


def planned(runs):
    """How many of the timed runs of a point its study would have done whatever they took."""
    repeats = runs[0]["sweep"].get("repeats")
    repeats = repeats if type(repeats) is int else STUDY["repeats"]
    return min(len(runs), max(2, repeats))


def ratio_of(one, other, planned_one, planned_other):
    """The Ratio of the values of `other` to those of `one`, in the order of measuring, of which so many were planned."""
    mean, square, freedom = moments(one, planned_one)
    mean_other, square_other, freedom_other = moments(other, planned_other)
    difference, spread = mean_other - mean, sqrt(square + square_other)
    if spread == 0:
        return Ratio(exp(difference), exp(difference), exp(difference), float(difference == 0))
    degrees = (square + square_other) ** 2 / (square**2 / freedom + square_other**2 / freedom_other)
    chance = 2 * stdtr(degrees, -abs(difference) / spread)
    reach = spread * stdtrit(degrees, (1 + CONFIDENCE) / 2)
    return Ratio(exp(difference), exp(difference - reach), capped(difference + reach), float(chance))


def moments(values, planned):
    """(mean of the logarithms, the variance of that mean, its degrees of freedom)."""
    logarithms = list(map(log, values))
    spread = max(variance(logarithms[:planned]), variance(logarithms))
    return fmean(logarithms), spread / len(logarithms), planned - 1


def capped(logarithm):
    """The number with a logarithm; infinite where it is too large."""
    return exp(logarithm) if logarithm < 700 else inf


def corrected(chances):
    """The probabilities of Holm (1979) for several tests."""
    found, least = [0.0] * len(chances), 0.0
    for number, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        least = max(least, min(1.0, (len(chances) - number) * chances[index]))
        found[index] = least
    return found


def together(points):
    """(the geometric mean of the ratios of points, how many lie above 1, how many there are)."""
    ratios = [point.ratio.value for point in points if point.ratio]
    return geometric_mean(ratios) if ratios else None, sum(ratio > 1 for ratio in ratios), len(ratios)
