"""The records of a study as rows, one for each point of each curve: what tables, figures and pages show.

A time is the median over the runs of a point, each with its own median step, with its interval. A speedup is in samples a
second over the run on one rank of the same network, data and settings; the efficiency is the speedup over the ranks. There is
none where other programs disturbed all runs of one of the two points alone.

Only runs on the same (`environment.py`: SAME) are one row, and predictions for one machine; where a curve has several of them,
the names of its series say which.
"""

import json
from collections import defaultdict
from statistics import median
from typing import NamedTuple

from gridgrad.experiments.common.report import PARTS
from gridgrad.experiments.scaling.environment import SAME, same
from gridgrad.experiments.scaling.records import baseline_of, counting, is_busy, key_of, metric_of, seconds_of, value_of
from gridgrad.experiments.scaling.statistics import Median, interval_of
from gridgrad.experiments.scaling.study import ALONE, Curve, point_at


class Origin(NamedTuple):
    """Where records come from. name: the machine of predictions, or the entries of SAME, a text."""

    is_predicted: bool
    name: str


class Row(NamedTuple):
    """A point of a curve."""

    network: str
    series: str
    scaling: str
    net: str  # what ran, as is `grid`, also where the planner chose
    dataset: str
    grid: str
    ranks: int
    batch: int
    settings: dict  # of the run, as is `environment`
    environment: dict
    slots: int | None
    oversubscribed: bool
    seconds: Median | None  # of a step
    parts: dict  # {what: seconds of a step}
    bytes: float | None  # by all ranks in a step
    memory: float | None  # of the rank with most
    origin: Origin
    is_predicted: bool
    fits: bool  # into memory
    busy: int  # runs that do not count
    failed: str | None  # the reason
    runs: tuple  # those that count
    metric: str
    value: Median | None  # of the metric
    baseline: str | None
    speedup: Median | None = None  # over one rank
    unlike: bool = False  # no speedup, as this point or that on one rank was disturbed
    ratio: Median | None = None  # to the baseline, run by run
    predicted: float | None = None  # seconds of its only prediction

    @property
    def curve(self):
        """The Curve that it is a point of."""
        return Curve(self.network, self.series, self.scaling)

    @property
    def efficiency(self):
        """The parallel efficiency, a Median or None."""
        return self.speedup and self.speedup.times(1 / self.ranks)

    @property
    def communication(self):
        """The share of communication and waiting in a step; or None."""
        whole = sum(self.parts.values())
        return (self.parts.get("communicate", 0) + self.parts.get("wait", 0)) / whole if whole else None


def is_busy_alone(row):
    """Whether all runs that count are of a busy machine, as there are no others."""
    return bool(row.runs) and all(map(is_busy, row.runs))


def rows(records):
    """The Rows of some records, in their order: those of a network together."""
    groups, predictions, found = defaultdict(list), defaultdict(list), []
    for record in records:
        groups[origin_of(record), key_of(record)].append(record)
    seconds = {place: list(filter(None, map(seconds_of, counting(of_point)))) for place, of_point in groups.items()}
    timed = {place: interval_of(values) for place, values in seconds.items() if values}
    for (origin, key), seconds in timed.items():
        if origin.is_predicted:
            predictions[key].append(seconds.value)
    for (origin, key), curves in curves_of(groups).items():
        of_point = groups[origin, key]
        predicted = predictions[key][0] if not origin.is_predicted and len(predictions[key]) == 1 else None
        for curve in curves:
            row = row_of(curve, of_point, timed.get((origin, key)))._replace(predicted=predicted)
            alone = origin, key_alone(of_point[0], row.scaling)
            if row.seconds and alone in timed:
                unlike = all(map(is_busy, counting(groups[alone]))) != is_busy_alone(row)
                work = row.ranks if row.scaling == "weak" else 1
                one = Median(1.0, 1.0, 1.0, row.seconds.count, 1.0)
                speedup = timed[alone].times(work).over(row.seconds) if row.ranks > 1 else one
                row = row._replace(unlike=unlike, speedup=None if unlike else speedup)
            found.append(row)
    wide = {(row.origin, row.network, row.scaling) for row in found if row.ranks > 1}
    several = {(row.origin, row.curve) for row in found if row.ranks > 1}
    # not the serial point of a series that has no other, where another series has it too
    found = [row for row in with_ratios(found)
             if (row.origin, row.curve) in several or (row.origin, row.network, row.scaling) not in wide]  # fmt: skip
    found = told_apart(found)
    order = {row.curve: number for number, row in reversed(list(enumerate(found)))}
    return sorted(found, key=lambda row: (row.is_predicted, order[row.curve], row.ranks))


def origin_of(record):
    """The Origin of a record."""
    if record.get("predicted"):
        return Origin(True, str(record.get("machine")))
    return Origin(False, json.dumps(same(record["environment"]), sort_keys=True))


def told_apart(found):
    """The Rows; where a curve has several origins its series say in what these differ."""
    environments, rows = defaultdict(dict), []
    for row in found:
        environments[row.is_predicted, row.curve][row.origin] = row.environment
    for row in found:
        here = environments[row.is_predicted, row.curve]
        different = [name for name in SAME if len({repr(other.get(name)) for other in here.values()}) > 1]
        words = ", ".join(f"{SAME[name]} {row.environment.get(name)}" for name in different)
        name = f"{row.series} ({row.origin.name if row.is_predicted else words})"
        rows.append(row if len(here) == 1 else row._replace(series=name))
    return rows


def curves_of(groups):
    """{(Origin, key): its curves} of groups of records; that on one rank is in all that are compared with it."""
    curves = {name: dict.fromkeys(Curve(*curve) for one in found for curve in one["curves"]) for name, found in groups.items()}
    wide = [(name, found[0]) for name, found in groups.items() if found[0]["P"] > 1]
    for name, record in wide:
        for curve in curves[name]:
            curves.get((name[0], key_alone(record, curve.scaling)), {}).setdefault(curve)
    return curves


def key_alone(record, scaling):
    """The key of the point on one rank with which a record is compared."""
    one = {name: value for name, value in record["point"].items() if name not in ALONE} | {"grid": "batch=*"}
    batch = record["point"].get("batch_size") or 1
    return point_at(one | {"batch_size": batch // record["P"] if scaling == "weak" else batch}, "strong", 1).key


def row_of(curve, records, seconds):
    """The Row of the records of one point, without what needs other points."""
    runs = counting(records)
    one = (runs or records)[0]
    middle = lambda values: median(found) if (found := [v for v in values if v is not None]) else None  # noqa: E731
    timed = [run for run in runs if run.get("time")]
    batch = (one.get("settings") or {}).get("batch_size") or one["point"].get("batch_size") or 1
    metric = metric_of(one)
    values = [value for run in runs if (value := value_of(run, metric)) is not None]
    return Row(
        curve.network, curve.series, curve.scaling, one["net"], one.get("dataset"), one["grid"], one["P"], batch, one["point"],
        one["environment"], one.get("slots"), bool(one.get("oversubscribed")), seconds,
        parts={part: median(steady(run) * run["time"].get(part, 0.0) for run in timed) for part in PARTS} if timed else {},
        bytes=middle(sum(run["bytes"].values()) if run.get("bytes") is not None else None for run in runs),
        memory=middle(run.get("peak_memory") for run in runs), origin=origin_of(one),
        is_predicted=bool(one.get("predicted")), fits=one.get("fits", True), busy=sum(map(is_busy, records)),
        failed=next((record["failed"] for record in records if record.get("failed")), None), runs=tuple(runs),
        metric=metric, value=interval_of(values, metric) if values else None, baseline=baseline_of(one, curve.series),
    )  # fmt: skip


def steady(run):
    """The median step of a run over its mean step: a factor on its parts, which are means, so that they sum to the median."""
    mean = sum(run["time"].get(part, 0.0) for part in PARTS)
    return seconds / mean if mean and (seconds := seconds_of(run)) else 1.0


def with_ratios(found):
    """The Rows with ratios to the baseline: on as many ranks, or to its only point."""
    of_series, rows = defaultdict(dict), []
    for row in found:
        of_series[row.origin, row.network, row.scaling, row.series][row.ranks] = row
    for row in found:
        base = baseline_at(of_series.get((row.origin, row.network, row.scaling, row.baseline), {}), row.ranks)
        others = {run["repeat"]: value_of(run, row.metric) for run in base.runs} if base else {}
        pairs = [(value_of(run, row.metric), others.get(run["repeat"])) for run in row.runs]
        ratios = [value / other for value, other in pairs if value is not None and other]
        rows.append(row._replace(ratio=interval_of(ratios) if ratios else None))
    return rows


def baseline_at(points, ranks):
    """The point of a baseline, {ranks: point}, to compare with; None where it has several others."""
    return points.get(ranks) or (next(iter(points.values())) if len(points) == 1 else None)


def calls_of(run):
    """Collectives and messages of a rank in a step, on average; None where the run does not say."""
    rows = run.get("communication")
    return None if rows is None else sum(row["calls"] for row in rows) / run["P"]
