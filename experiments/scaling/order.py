"""In which order the runs of a study are done, and when a point has been measured often enough.

The points that are not settled run once each, in a random order, then again: a drift of the machine's speed affects all of them
alike. A point is settled as soon as the interval of its median is narrow enough, if it was repeated as often as the study wants
at least, or when it was repeated as often as the study allows at most. Runs beside other programs that took much of the
machine are done again and do not count, a limited number of times. A point whose run fails is not tried again.
"""

import random
from collections import defaultdict
from functools import lru_cache
from json import dumps, loads

from gridgrad.experiments.scaling.median import interval_of
from gridgrad.experiments.scaling.records import key_of
from gridgrad.experiments.scaling.study import Study

ENOUGH, REPEATED, BUSY, FAILED = "interval", "most repeats", "busy", "failed"
LATER = "time"  # of a point that needs more runs, for which there was no time


def seconds_of(record):
    """The median seconds of a step of a run; None if the run failed, or had too few steps to time."""
    return (record.get("seconds_per_step") or {}).get("median")


def metric_of(record):
    """The metric of the study that a record is of."""
    return record["sweep"].get("metric", "seconds")


def value_of(record, metric):
    """What a run, measured or predicted, says of a metric, in its own unit; None where it says nothing."""
    if metric == "bytes":
        sent = record.get("bytes")
        return record.get("rank_bytes") if sent is None else sum(sent.values()) / record["P"]
    if metric == "seconds":
        return seconds_of(record)
    return record.get({"accuracy": "test_accuracy", "loss": "final_loss", "memory": "peak_memory"}[metric])


def settled(records, study):
    """Why a point needs no further run, one of the words above; None if it does. records: of its runs."""
    if any(record.get("failed") for record in records):
        return FAILED
    good = [value_of(record, study.metric) for record in records if study.counts(record)]
    if len(good) >= study.most_repeats:
        return REPEATED
    if len(good) >= study.repeats:
        known = [value for value in good if value is not None]
        if len(known) < len(good):  # with too few steps to time no interval gets narrower
            return REPEATED
        found = interval_of(known, study.metric)
        if found.sure and 100 * found.half_width <= study.interval:
            return ENOUGH
    if len(records) >= 2 * study.most_repeats:
        return BUSY
    return None


def study_of_record(record):
    """The Study that a record was measured for; None for what an earlier version wrote, or without its settings."""
    try:
        return _study(dumps(record["sweep"])) if record["sweep"] else None
    except ValueError:  # a setting that is no longer known
        return None


@lru_cache
def _study(given):
    return Study(loads(given))


def ended_by(records):
    """Why a point was not repeated more often, in words; None where nothing says so. records: of its runs."""
    study = study_of_record(records[0])
    return study and (settled(records, study) or LATER)


def by_point(records):
    """{key of a point: its records}."""
    found = defaultdict(list)
    for record in records:
        found[key_of(record)].append(record)
    return found


def rounds(groups, study, done, fits=lambda group: True):
    """The groups of points to run, one after another, until all are settled. done: a list of records, to which the caller adds.

    fits: a function of a group, whether there is time for another run of it. Once there is none there must never be any again.
    """
    number = 0

    def is_wanted(group):
        found = by_point(done)
        return not all(settled(found.get(point.key, []), study) for point in group) and fits(group)

    while wanted := [group for group in groups if is_wanted(group)]:
        order = random.Random(f"{len(done)} {number}")
        yield from filter(is_wanted, order.sample(wanted, len(wanted)))
        number += 1


def fewest_left(groups, study, done):
    """How many runs are still to be done at least."""
    found = by_point(done)
    missing = 0
    for group in groups:
        of_points = [found.get(point.key, []) for point in group]
        least = [max(1, study.repeats - sum(map(study.counts, records)))
                 for records in of_points if not settled(records, study)]  # fmt: skip
        missing += max(least, default=0) * len(group)
    return missing


def next_repeat(group, study, done):
    """The number of the next run of a group of points: with seeds the first that one of them lacks, else one that is free."""
    found = by_point(done)
    numbers = [{record["repeat"] for record in found.get(point.key, [])} for point in group]
    if study.seeds:
        return next(number for number in range(study.repeats) if not all(number in of for of in numbers))
    return max((number for of in numbers for number in of), default=-1) + 1
