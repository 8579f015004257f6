"""Two studies of the same points, point by point: before and after a change, on two machines, with two MPI libraries.

Every run is a job of its own, and the runs of a study come in a random order, so the median steps of the runs of a point are
taken as independent values. They vary by factors, so their logarithms are compared: the ratio is that of the geometric means,
with the interval and the test of Welch (1947), which lets the two studies be noisy in different ways.

*How often a point was measured depends on what was measured*: a study stops where the spread of the runs has become small by
chance, too. Judged by the variance of all runs, of 100 pairs of equal studies with a noise of 4 % ten would differ. So the
mean is that of all runs, and the degrees of freedom are those of the first ones, as many as a study does of every point (Stein
1945). That holds for normal noise. Where later runs are far slower than the first, the variance of all is greater, and counts.

*Many points are compared at once*, so the probabilities are those of Holm (1979): of all studies whose points are all equal,
one in 20 has a point with another verdict than "no more than noise". The intervals are of 95 % for each point alone, and so may
exclude 1 where the verdict does not.

*The machine is not the same at every moment.* Heat slows down its cores, and so do neighbours on the host of a virtual machine,
which no counter shows. Each run therefore measured between its steps how long the reference product of
`parallel/calibration/timing.py` took, and steps are compared in such products. Where runs have no such number, or ranks share
cores, or the processor, the BLAS or its threads differ, they are compared in seconds. What makes the whole core slower is not
found so, be it a lower clock or a thread of the program's own: the ratio of the seconds says that, and stands beside the other.

Runs that others disturbed do not count. What changes the machine for the whole of one study, no test can tell from a change of
the program. So the two should be measured by turns, a run of each: docs/figures.md says how.
"""

from dataclasses import dataclass, field, replace
from math import exp, inf, log, sqrt
from statistics import fmean, geometric_mean, variance

from scipy.special import stdtr, stdtrit

from gridgrad.experiments.common.tables import counted
from gridgrad.experiments.scaling.records import seconds_of
from gridgrad.experiments.scaling.statistics import CONFIDENCE
from gridgrad.experiments.scaling.study import STUDY, Point
from gridgrad.experiments.scaling.summary import is_busy_alone, rows

FASTER, SLOWER, NOISE, FEW, BUSY = "faster", "slower", "no more than noise", "too few runs", "busy machine"
FEWEST = 3  # runs of a point in each study for a verdict
SHOWN, MOST_DIFFERENT = 4, 3  # points that are named; settings in which two points are told to differ
CORE = "processor", "blas", "threads"  # entries of an environment that say what the reference product is computed by


@dataclass(frozen=True)
class Ratio:
    """How many times as long one thing takes as another. value: of geometric means. low, high: an interval of CONFIDENCE.

    chance: the probability of so different means of equal things.
    """

    value: float
    low: float
    high: float
    chance: float


@dataclass(frozen=True)
class Compared:
    """A point of two studies. network, series, scaling, grid, ranks, batch: of it. seconds: of the runs of both, two tuples.

    ratio: a Ratio of the second to the first; None where there are too few runs. is_normalised: whether it is one of reference
    products, and not of seconds. chance: that of the ratio, corrected for the number of points. verdict: FASTER, SLOWER, NOISE,
    FEW, or BUSY where all runs of a study were disturbed. environments: what both were measured on.
    """

    network: str
    series: str
    scaling: str
    grid: str
    ranks: int
    batch: int
    seconds: tuple
    ratio: Ratio | None = None
    is_normalised: bool = False
    chance: float | None = None
    verdict: str = FEW
    environments: tuple = field(default=(), compare=False)

    @property
    def measured(self):
        """The ratio of the geometric means of the seconds, as measured."""
        mean, mean_other = (fmean(map(log, of)) for of in self.seconds)
        return capped(mean_other - mean)


def compare(one, other, across=None):
    """The Compared points that two lists of records of measured runs share, in their order.

    across: the name of a setting in which the points of the two may differ, or None. ValueError for a record that is damaged,
    if they share none, and for a setting that none has, or several points of a study differ in.
    """
    if across and not any(across in record["point"] for record in (*one, *other)):
        known = dict.fromkeys(name for record in (*one, *other) for name in record["point"])
        raise ValueError(f"--across {across}: no point has this setting; there are {', '.join(known)}")
    first, second = timed(one, across), timed(other, across)
    shared = [key for key in first if key in second]
    if not shared:
        words = " ".join(apart(one, other, across))
        raise ValueError(f"the two studies have no point in common that was timed in both. {words}")
    return judged([compared_point(first[key], second[key]) for key in shared])


def timed(records, across=None):
    """{key of a point: its Rows} of the points that have times. across: a setting that the keys leave out."""
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
    """Sentences about the points that only one of two lists of records has times of; none if both have the same."""
    first, second = timed(one, across), timed(other, across)
    if first.keys() == second.keys():
        return []
    shared, lines, differing = first.keys() & second.keys(), [], {}
    lines.append(f"Only {len(shared)} of the {counted(len(first), 'point')} of A and of the {len(second)} of B are compared, "
                 "and nothing here is said of the others.")  # fmt: skip
    for letter, mine, others in (("A", first, second), ("B", second, first)):
        alone = [of[0] for key, of in mine.items() if key not in others]
        names = [f"{row.network} ({row.series}) on {counted(row.ranks, 'rank')}" for row in alone]
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            lines.append(f"Only {letter} has a time of {counted(len(names), 'point')}: {'; '.join(names[:SHOWN])}{more}.")
    left = [of[0] for key, of in second.items() if key not in first]
    for row in (of[0] for key, of in first.items() if key not in second):
        nearest = min((differences_of(row, each) for each in left if each.ranks == row.ranks), key=len, default={})
        if len(nearest) <= MOST_DIFFERENT:
            for name, values in nearest.items():
                differing.setdefault(name, {})[values] = None
    if differing:
        pairs = {name: "; ".join(f"A: {a}, B: {b}" for a, b in list(of)[:SHOWN]) for name, of in differing.items()}
        words = [f"{name} ({text})" for name, text in pairs.items()]
        advice = f": --across {name} compares them" if len(differing) == 1 and not across else ""
        lines.append(f"They differ in {', '.join(words)}{advice}.")
    return lines


def differences_of(row, other):
    """{setting: (its value in a Row, that in another one)} of the settings in which two Rows differ."""
    one, two = row.settings, other.settings
    names = [name for name in {**one, **two} if name != "data_dir" and one.get(name) != two.get(name)]
    return {name: (one.get(name), two.get(name)) for name in names}


def compared_point(one, other):
    """A Compared point, without what depends on the others. one, other: its Rows, the same point in several curves."""
    row, runs = one[0], tuple([run for run in of[0].runs if seconds_of(run)] for of in (one, other))
    seconds = tuple(tuple(map(seconds_of, of)) for of in runs)
    normalised = normalised_steps(*runs)
    series = "all" if row.ranks == 1 else "; ".join(dict.fromkeys(each.series for each in one))
    scaling = "" if row.ranks == 1 else row.scaling
    busy = is_busy_alone(row) or is_busy_alone(other[0])
    enough = min(map(len, seconds)) >= FEWEST and not busy
    ratio = ratio_of(*(normalised or seconds), *map(planned, runs)) if enough else None
    environments = row.environment, other[0].environment
    return Compared(row.network, series, scaling, row.grid, row.ranks, row.batch, seconds, ratio, bool(ratio and normalised),
                    verdict=BUSY if busy else FEW, environments=environments)  # fmt: skip


def normalised_steps(*studies):
    """The reference products of a step in the runs of a point in several studies, a list of each; None if they do not compare.

    studies: lists of records of runs that were timed.
    """
    runs = [run for of in studies for run in of]
    if any(run.get("oversubscribed") or not run.get("core") for run in runs):
        return None
    if len({tuple(run["environment"].get(name) for name in CORE) for run in runs}) > 1:
        return None
    return [[run["core"]["reference_products_per_step"] for run in of] for of in studies]


def planned(runs):
    """How many of the runs of a point that were timed its study would have done whatever they took."""
    repeats = runs[0]["sweep"].get("repeats")
    repeats = repeats if type(repeats) is int else STUDY["repeats"]
    return min(len(runs), max(2, repeats))


def ratio_of(one, other, planned_one, planned_other):
    """The Ratio of the values of `other` to those of `one`, each in the order in which they were measured.

    one, other: positive numbers. planned_one, planned_other: of how many first ones the degrees of freedom are, 2 or more.
    """
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
    """(mean of the logarithms, the variance of that mean, the degrees of freedom of the variance); see the module's text."""
    logarithms = list(map(log, values))
    spread = max(variance(logarithms[:planned]), variance(logarithms))
    return fmean(logarithms), spread / len(logarithms), planned - 1


def capped(logarithm):
    """The number with a logarithm; infinite where it is too large."""
    return exp(logarithm) if logarithm < 700 else inf


def corrected(chances):
    """The probabilities of Holm (1979) for several tests, in the same order."""
    found, least = [0.0] * len(chances), 0.0
    for number, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        least = max(least, min(1.0, (len(chances) - number) * chances[index]))
        found[index] = least
    return found


def judged(points):
    """The Compared points with their verdicts."""
    chances = iter(corrected([point.ratio.chance for point in points if point.ratio]))
    found = []
    for point in points:
        if point.ratio:
            chance = next(chances)
            sure = SLOWER if point.ratio.value > 1 else FASTER
            point = replace(point, chance=chance, verdict=NOISE if chance > 1 - CONFIDENCE else sure)
        found.append(point)
    return found


def together(points):
    """(the geometric mean of the ratios of several points, how many lie above 1, how many there are)."""
    ratios = [point.ratio.value for point in points if point.ratio]
    return geometric_mean(ratios) if ratios else None, sum(ratio > 1 for ratio in ratios), len(ratios)
