"""The records of a study as rows, one for each point of each curve: what tables, figures, pages and other tools show.

Times are medians over the runs of a point, each of which has its own median step, with their interval (`statistics.py`).
Speedups are in samples a second over the run on one rank of the same network, data and settings, so that they mean the same for
strong and for weak scaling; the parallel efficiency is the speedup over the ranks. There is none where other programs disturbed
all runs of the one point, and not those of the other: a time on a busy machine over one on a quiet machine says nothing.

Only runs that were measured on the same (`environment.py`: SAME) are one row, and only predictions for the same machine. Where
the records have several of them for a curve, the name of its series says which one a row is of.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from statistics import median

from gridgrad.experiments.common.report import PARTS
from gridgrad.experiments.scaling.environment import SAME, same
from gridgrad.experiments.scaling.records import (
    baseline_of,
    checked,
    counting,
    is_busy,
    key_of,
    metric_of,
    seconds_of,
    value_of,
)
from gridgrad.experiments.scaling.statistics import Median, interval_of
from gridgrad.experiments.scaling.study import ALONE, Curve, point_at


@dataclass(frozen=True)
class Row:
    """A point of a curve.

    network, series, scaling: of the curve; the series says where it is from if that differs within the curve. net, dataset,
    grid: what ran; where the planner chose the grid, that one. ranks: P. batch: samples of the global minibatch. settings: all
    of the run. environment: what it ran on. slots: ranks that can have a core there. oversubscribed: whether there were more.

    seconds: a Median of a step; None where no run was timed. parts: {what: seconds a step, mean over the ranks}, medians over
    the runs; empty where a run says nothing. bytes, calls: sent by all ranks in a step, and collectives that a rank takes part
    in, or None. memory: bytes that the rank with most of them had at most, or None. flops: of a step of all ranks together.
    speedup: a Median; None without a run on one rank, and where it is `unlike`: measured on a busy machine, and that run was
    not, or the other way round. predicted: seconds of the same point in a prediction; None where there is
    none, or several machines have one. is_predicted: whether the row itself is one; fits: whether it fits the memory of its
    machine.
    metric, value: what the study looks at, and its Median, or mean: see `interval_of`. baseline, ratio: the series that it is
    compared with, and a Median of the ratios to the runs of that with the same numbers.
    busy: runs that did not count, as others used the machine. failed: the reason why there is no time, or None.
    runs: the records that count.
    """

    network: str
    series: str
    scaling: str
    net: str
    dataset: str
    grid: str
    ranks: int
    batch: int
    settings: dict
    environment: dict
    slots: int | None = None
    oversubscribed: bool = False
    seconds: Median | None = None
    parts: dict = field(default_factory=dict)
    bytes: float | None = None
    calls: float | None = None
    memory: float | None = None
    flops: float | None = None
    speedup: Median | None = None
    unlike: bool = False
    metric: str = "seconds"
    value: Median | None = None
    baseline: str | None = None
    ratio: Median | None = None
    predicted: float | None = None
    is_predicted: bool = False
    fits: bool = True
    busy: int = 0
    failed: str | None = None
    runs: tuple = ()

    @property
    def curve(self):
        """The Curve that it is a point of."""
        return Curve(self.network, self.series, self.scaling)

    @property
    def efficiency(self):
        """The parallel efficiency, a Median: 1 if P ranks compute P times as many samples a second as one; or None."""
        return self.speedup and self.speedup.times(1 / self.ranks)

    @property
    def samples_a_second(self):
        """A Median, or None."""
        return self.seconds and Median(self.batch, self.batch, self.batch, self.seconds.count, 1.0).over(self.seconds)

    @property
    def flops_a_second(self):
        """Of all ranks together, in the median; or None."""
        return self.flops / self.seconds.value if self.flops and self.seconds else None

    @property
    def communication(self):
        """The share of communication and waiting in a step; or None."""
        whole = sum(self.parts.values())
        return (self.parts.get("communicate", 0) + self.parts.get("wait", 0)) / whole if whole else None


def is_busy_alone(row):
    """Whether all runs that a Row has its numbers from were beside other programs, as there are no others."""
    return bool(row.runs) and all(map(is_busy, row.runs))


def rows(records):
    """The Rows of some records, in their order: those of a network together. ValueError for a record that is damaged.

    The run on one rank is a point of every curve whose points are compared with it, whatever was measured beside it.
    """
    checked(records, {})
    groups = defaultdict(list)
    for record in records:
        groups[origin_of(record), key_of(record)].append(record)
    timed = {name: found for name, of_point in groups.items() if (found := time_of(of_point))}
    predictions = defaultdict(list)
    for (origin, key), seconds in timed.items():
        if origin.is_predicted:
            predictions[key].append(seconds)
    found = []
    for (origin, key), curves in curves_of(groups).items():
        of_point = groups[origin, key]
        of_prediction = predictions[key][0] if not origin.is_predicted and len(predictions[key]) == 1 else None
        for network, series, scaling in curves:
            row = row_of(Curve(network, series, scaling), of_point, timed.get((origin, key)))
            place = origin, key_alone(of_point[0], scaling)
            unlike = place in timed and all(map(is_busy, counting(groups[place]))) != is_busy_alone(row)
            found.append((origin, with_speedup(row, timed.get(place), unlike, of_prediction)))
    found = with_ratios(found)
    wide = {(origin, row.network, row.scaling) for origin, row in found if row.ranks > 1}
    several = {(origin, row.curve) for origin, row in found if row.ranks > 1}
    found = told_apart([
        (origin, row) for origin, row in found
        if (origin, row.curve) in several or (origin, row.network, row.scaling) not in wide
    ])  # fmt: skip # not the serial point of a series that has no other, where another series has it too
    order = {row.curve: number for number, row in reversed(list(enumerate(found)))}
    return sorted(found, key=lambda row: (row.is_predicted, order[row.curve], row.ranks))


@dataclass(frozen=True)
class Origin:
    """Where records are from that compare. is_predicted: whether they are predictions. name: of the machine that they are for;
    of runs the entries of SAME, a text."""

    is_predicted: bool
    name: str


def origin_of(record):
    """The Origin of a record."""
    if record.get("predicted"):
        return Origin(True, str(record.get("machine")))
    return Origin(False, json.dumps(same(record["environment"]), sort_keys=True))


def told_apart(found):
    """The Rows of (Origin, Row) pairs. The series of a curve that has several origins say in what these differ."""
    environments = defaultdict(dict)
    for origin, row in found:
        environments[origin.is_predicted, row.curve][origin] = row.environment
    rows = []
    for origin, row in found:
        here = environments[row.is_predicted, row.curve]
        words = "" if len(here) == 1 else f" ({origin.name if origin.is_predicted else difference(row.environment, here)})"
        rows.append(replace(row, series=f"{row.series}{words}"))
    return rows


def difference(environment, others):
    """The entries of SAME of an environment in which not all others agree, in words. others: {any name: environment}."""
    different = [name for name in SAME if len({repr(other.get(name)) for other in others.values()}) > 1]
    return ", ".join(f"{SAME[name]} {environment.get(name)}" for name in different)


def curves_of(groups):
    """{(Origin, key): its curves} of groups of records with such names, that on one rank with all it is compared with."""
    curves = {name: dict.fromkeys(tuple(curve) for one in found for curve in one["curves"]) for name, found in groups.items()}
    wide = [(name, found[0]) for name, found in groups.items() if found[0]["P"] > 1]
    for name, record in wide:
        for network, series, scaling in curves[name]:
            alone = curves.get((name[0], key_alone(record, scaling)), {})
            alone.setdefault((network, series, scaling))
    return curves


def time_of(records):
    """The Median of the seconds of a step over the runs that count; of busy ones alone where there are no others; or None."""
    seconds = [value for record in counting(records) if (value := seconds_of(record))]
    return interval_of(seconds) if seconds else None


def key_alone(record, scaling):
    """The key of the point on one rank with which this one is compared."""
    one = {name: value for name, value in record["point"].items() if name not in ALONE} | {"grid": "batch=*"}
    batch = record["point"].get("batch_size") or 1
    return point_at(one | {"batch_size": batch // record["P"] if scaling == "weak" else batch}, "strong", 1).key


def row_of(curve, records, seconds):
    """The Row of the records of one point, without what needs other points."""
    runs = counting(records)
    one = (runs or records)[0]
    middle = lambda values: median(found) if (found := [v for v in values if v is not None]) else None  # noqa: E731
    times = [run["time"] for run in runs if run.get("time")]
    batch = (one.get("settings") or {}).get("batch_size") or one["point"].get("batch_size") or 1
    flops, metric = one.get("flops_a_sample"), metric_of(one)
    values = [value for run in runs if (value := value_of(run, metric)) is not None]
    return Row(
        curve.network, curve.series, curve.scaling, one["net"], one.get("dataset"), one["grid"], one["P"], batch, one["point"],
        one["environment"], one.get("slots"), bool(one.get("oversubscribed")), seconds,
        parts={part: median(time.get(part, 0.0) for time in times) for part in PARTS} if times else {},
        bytes=middle(sum(run["bytes"].values()) if run.get("bytes") is not None else None for run in runs),
        calls=middle(calls_of(run) for run in runs), memory=middle(run.get("peak_memory") for run in runs),
        flops=flops and flops * batch, is_predicted=bool(one.get("predicted")), fits=one.get("fits", True),
        busy=sum(map(is_busy, records)),
        failed=next((record["failed"] for record in records if record.get("failed")), None), runs=tuple(runs),
        metric=metric, value=interval_of(values, metric) if values else None, baseline=baseline_of(one, curve.series),
    )  # fmt: skip


def with_ratios(found):
    """The same (Origin, Row) pairs, the Rows with their ratios to the baseline: on as many ranks, or to its only point."""
    of_series = defaultdict(dict)
    for origin, row in found:
        of_series[origin, row.network, row.scaling, row.series][row.ranks] = row
    rows = []
    for origin, row in found:
        base = baseline_at(of_series.get((origin, row.network, row.scaling, row.baseline), {}), row.ranks)
        others = {run["repeat"]: value_of(run, row.metric) for run in base.runs} if base else {}
        pairs = [(value_of(run, row.metric), others.get(run["repeat"])) for run in row.runs]
        ratios = [value / other for value, other in pairs if value is not None and other]
        rows.append((origin, replace(row, ratio=interval_of(ratios) if ratios else None)))
    return rows


def baseline_at(points, ranks):
    """What a point on some ranks is compared with, of {ranks: point} of a baseline; None where it has several others."""
    return points.get(ranks) or (next(iter(points.values())) if len(points) == 1 else None)


def calls_of(run):
    """How many collectives and messages a rank takes part in, in a step, on average; None where the run does not say."""
    rows = run.get("communication")
    return None if rows is None else sum(row["calls"] for row in rows) / run["P"]


def with_speedup(row, alone, unlike, of_prediction):
    """A Row with what other points say. alone: the Median of the seconds on one rank. unlike: whether one of the two alone was
    measured on a busy machine. of_prediction: the Median of a prediction."""
    speedup = None
    unlike = bool(row.seconds) and unlike
    if row.seconds and alone and not unlike:
        work = row.ranks if row.scaling == "weak" else 1
        speedup = alone.times(work).over(row.seconds) if row.ranks > 1 else Median(1.0, 1.0, 1.0, row.seconds.count, 1.0)
    return replace(row, speedup=speedup, unlike=unlike, predicted=of_prediction and of_prediction.value)
