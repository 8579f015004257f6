"""What figures of scaling studies show over the number of ranks: the quantities, with their ideal values and their spread.

| bars         | what they are                                                                                                |
|--------------|--------------------------------------------------------------------------------------------------------------|
| `OF_MEDIANS` | intervals of medians (`experiments/scaling/statistics.py`)                                                   |
| `OF_RATIOS`  | the extreme ratios of two of these, which hold with a lower confidence: `Median.over`                        |
| `OF_RUNS`    | from the least to the greatest number of a run, of what hardly varies from run to run                        |
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from math import isclose
from statistics import median

from gridgrad.experiments.scaling.statistics import Median
from gridgrad.experiments.scaling.summary import calls_of, key_alone
from gridgrad.parallel.prediction import machine as machines

STRONG, WEAK = "strong", "weak"
LONG = 10.0  # seconds of a step from which on a figure counts in seconds
MOST_IDEALS = 4  # ideal lines in a panel: more of them say nothing
ALIKE = 0.01  # relative difference of ideal lines that are drawn as one: less than a line is wide
OF_MEDIANS, OF_RATIOS, OF_RUNS = "medians", "ratios", "runs"


@dataclass(frozen=True)
class Measure:
    """A quantity over the ranks. label: of its axis.

    value: a function of a Row that returns a Median or None. base: of its logarithmic axis; None for one from 0 on. ideal: a
    function of (Row, ranks): the value on so many ranks with which that Row would scale perfectly, or None. bars: see above.
    """

    label: str
    value: Callable
    base: int | None = None
    ideal: Callable | None = None
    bars: str = OF_MEDIANS


@dataclass(frozen=True)
class Kind:
    """A kind of figure. words: what it shows. missing: what to do where no run has it. scalings: which it is of.

    measures: a function of (Lines, name of a machine or None) that returns its Measures, which stand one below the other.
    """

    words: str
    measures: Callable
    missing: str
    scalings: tuple = (STRONG, WEAK)


ALONE = "add 1 to the ranks of the sweep, or draw time or throughput, which need no run on 1 rank"
ANEW = "measure again, with this version"


def of_runs(number):
    """A function of a Row: the Median of a number over its runs, with the least and the greatest as interval; None without any.

    number: a function of a record that returns a number, or None. Numbers that are not above 0 do not count.
    """

    def spread(row):
        found = [value for run in row.runs if (value := number(run))]
        return Median(median(found), min(found), max(found), len(found), 0.0) if found else None

    return spread


def megabytes_of(run):
    """The MB that all ranks together send in a step; None where a run does not say."""
    return None if run.get("bytes") is None else sum(run["bytes"].values()) / 1e6


def mebibytes_of(run):
    """The MiB that the rank with most of them has at most; None where a run does not say."""
    return run.get("peak_memory") and run["peak_memory"] / 2**20


def ideal_time(first, ranks):
    """The seconds of a step with which a Row would scale perfectly."""
    return first.seconds.value * (first.ranks / ranks if first.scaling == STRONG else 1)


def ideal_rate(first, ranks):
    """The samples a second with which a Row would scale perfectly."""
    return first.samples_a_second.value * ranks / first.ranks


def share_of_peak(machine):
    """A function: the share in per cent that a Row has of the peak of the cores of its ranks, on a Machine."""

    def share(row):
        if not row.seconds or not row.flops:
            return None
        peak = row.ranks * threads_of(row) * machine.peak
        return row.samples_a_second.times(100 * row.flops / row.batch / peak)

    return share


def threads_of(row):
    """How many threads a rank computes with: as many as were asked for, else those that BLAS had."""
    known = (run["versions"].get("threads") for run in row.runs if run.get("versions"))
    return row.settings.get("threads") or next(known, None) or 1


def of_time(lines, _):
    """The Measure of a step's time, in milliseconds unless there are long steps."""
    longest = max((row.seconds.value for line in lines for row in line.rows if row.seconds), default=0.0)
    name, unit = ("s", 1.0) if longest >= LONG else ("ms", 1e3)
    return [Measure(f"{name} a step", lambda row: row.seconds and row.seconds.times(unit), 10,
                    lambda first, ranks: unit * ideal_time(first, ranks))]  # fmt: skip


def of_throughput(_, machine):
    """The Measures of a throughput. machine: the name of one, or None."""
    found = [Measure("samples a second", lambda row: row.samples_a_second, 10, ideal_rate)]
    if machine:
        known = machines.read(machine)
        found.append(Measure(f"% of the peak of\n{known.name}", share_of_peak(known)))
    return found


EFFICIENCY = Measure("efficiency", lambda row: row.efficiency, None, lambda *_: 1.0, OF_RATIOS)
KINDS = {
    "speedup": Kind("the speedup over one rank", lambda *_: [
        Measure("speedup over 1 rank", lambda row: row.speedup, 2, lambda _, ranks: ranks, OF_RATIOS)], ALONE),
    "efficiency": Kind("the parallel efficiency of strong scaling", lambda *_: [EFFICIENCY], ALONE, (STRONG,)),
    "weak": Kind("the efficiency of weak scaling", lambda *_: [EFFICIENCY], ALONE, (WEAK,)),
    "time": Kind("the time of a step, beside ideal scaling", of_time, "give more --steps to the sweep"),
    "bytes": Kind("the bytes and the collectives of a step", lambda *_: [
        Measure("MB sent by all ranks\nin a step", of_runs(megabytes_of), 10, bars=OF_RUNS),
        Measure("collectives and messages\nof a rank in a step", of_runs(calls_of), 10, bars=OF_RUNS)], ANEW),
    "memory": Kind("the memory of the rank that needs most", lambda *_: [
        Measure("MiB of memory of a rank", of_runs(mebibytes_of), bars=OF_RUNS)], ANEW),
    "throughput": Kind("samples a second, and the share of a machine's peak", of_throughput, "give more --steps to the sweep"),
}  # fmt: skip


def points_of(line, measure):
    """[(Row, Median)] of the points of a Line that a Measure has."""
    return [(row, found) for row in line.rows if (found := measure.value(row))]


def ideals(lines, measure):
    """The different ideal lines of Lines of a panel, each as [(ranks, value)].

    Lines that are compared with the same run on one rank share one, from the point on the fewest ranks, there the best one.
    Those of another batch, type of numbers or machine have one of their own.
    """
    groups = defaultdict(list)
    for line in lines:
        rows = [row for row, _ in points_of(line, measure)]
        if rows:
            alone = key_alone({"P": rows[0].ranks, "point": rows[0].settings}, line.panel.scaling)
            groups[line.is_predicted, line.origin, alone].append(rows)
    found = []  # (the Row that it begins with, numbers of ranks)
    for of_group in groups.values():
        first = min((rows[0] for rows in of_group), key=lambda row: (row.ranks, row.seconds.value))
        ranks = {row.ranks for rows in of_group for row in rows}
        for other, more in found:
            if isclose(measure.ideal(first, 1), measure.ideal(other, 1), rel_tol=ALIKE):
                more |= ranks
                break
        else:
            found.append((first, ranks))
    return [[(number, measure.ideal(first, number)) for number in sorted(ranks)] for first, ranks in found]
