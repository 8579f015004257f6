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

from gridgrad.experiments.scaling.busy import is_busy
from gridgrad.experiments.scaling.median import median_of
from gridgrad.experiments.scaling.records import key_of
from gridgrad.experiments.scaling.study import Study

ENOUGH, REPEATED, BUSY, FAILED = "interval", "most repeats", "busy", "failed"
LATER = "time"  # of a point that needs more runs, for which there was no time


def seconds_of(record):
    """The median seconds of a step of a run; None if the run failed, or had too few steps to time."""
    return (record.get("seconds_per_step") or {}).get("median")


def settled(records, study):
    """Why a point needs no further run, one of the words above; None if it does. records: of its runs."""
    if any(record.get("failed") for record in records):
        return FAILED
    good = [seconds_of(record) for record in records if not is_busy(record)]
    if len(good) >= study.most_repeats:
        return REPEATED
    if len(good) >= study.repeats:
        timed = [seconds for seconds in good if seconds]
        if len(timed) < len(good):  # with too few steps to time no interval gets narrower
            return REPEATED
        found = median_of(timed)
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


def rounds(points, study, done, fits=lambda point: True):
    """The points to run, one after another, until all are settled. done: a list of records, to which the caller adds.

    fits: a function of a point, whether there is time for another run of it. Once there is none there must never be any again.
    """
    number = 0
    is_wanted = lambda point: not settled(by_point(done).get(point.key, []), study) and fits(point)  # noqa: E731
    while wanted := [point for point in points if is_wanted(point)]:
        order = random.Random(f"{len(done)} {number}")
        yield from filter(is_wanted, order.sample(wanted, len(wanted)))
        number += 1


def fewest_left(points, study, done):
    """How many runs are still to be done at least."""
    found = by_point(done)
    missing = 0
    for point in points:
        records = found.get(point.key, [])
        if not settled(records, study):
            missing += max(1, study.repeats - sum(not is_busy(record) for record in records))
    return missing
