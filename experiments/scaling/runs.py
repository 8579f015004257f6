"""The runs of a study: which comes next, when a point was measured often enough, the job of a run, and the file of all.

All points that are not settled run once, in a random order, then again: a drift of the machine affects all alike. A point is
settled once the interval of its median is narrow, after `repeats` at least and `most_repeats` at most. Runs on a busy machine
do not count and are repeated, as often again. A point that fails is not tried again.

Runs of other settings, code or machines do not compare: they go to FILE.others, from where they come back when the sweep is as
it was. However a sweep ends, each run is in one of the two files, or for a moment in both, which counts once.
"""

import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from gridgrad.experiments.common.options import user_input
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.report import write_text
from gridgrad.experiments.launching.start_ranks import mpiexec, slots
from gridgrad.experiments.scaling import environment
from gridgrad.experiments.scaling.records import counts, key_of, lines, of_study, read, value_of
from gridgrad.experiments.scaling.statistics import interval_of
from gridgrad.experiments.scaling.study import Study, script_of
from gridgrad.nn.files.whole_files import Lock, resolved
from gridgrad.parallel.job.run import UserError, one_line

ENOUGH, REPEATED, BUSY, FAILED = "interval", "most repeats", "busy", "failed"
LATER = "time"  # of a point that needs more runs, for which there was no time


def settled(records, study):
    """Why a point needs no further run, one of the words above; None if it does. records: of its runs."""
    if any(record.get("failed") for record in records):
        return FAILED
    good = [value_of(record, study.metric) for record in records if counts(record)]
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
    """The Study of a record; None for one without settings, or with one that is no longer known."""
    return study_of(json.dumps(record["sweep"]))


@lru_cache
def study_of(given):
    with suppress(ValueError):
        return Study(json.loads(given)) if given != "{}" else None


def ended_by(records):
    """Why a point was not repeated more often; None where its records do not say."""
    study = study_of_record(records[0])
    return study and (settled(records, study) or LATER)


def by_point(records):
    """{key of a point: its records}."""
    found = defaultdict(list)
    for record in records:
        found[key_of(record)].append(record)
    return found


def rounds(groups, study, done, fits=lambda group: True):
    """The groups of points to run, one by one, until all are settled. done: records, to which the caller adds. fits: a function
    of a group, whether there is time for it; once there is none it stays so."""
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
    found, missing = by_point(done), 0
    for group in groups:
        of_points = [found.get(point.key, []) for point in group]
        least = [max(1, study.repeats - sum(map(counts, of))) for of in of_points if not settled(of, study)]
        missing += max(least, default=0) * len(group)
    return missing


def next_repeat(group, study, done):
    """The number of the next run of a group: with seeds the first that a point lacks, else one that is free."""
    found = by_point(done)
    numbers = [{record["repeat"] for record in found.get(point.key, [])} for point in group]
    if study.seeds:
        return next(number for number in range(study.repeats) if not all(number in of for of in numbers))
    return max((number for of in numbers for number in of), default=-1) + 1


# ----- jobs

SHOWN = 300  # characters of a reason


def records_of(group, repeat, timeout, seed=None, turns=False):
    """The records of one run of each point of a group, in one job, without their losses. timeout: seconds for each point. A run
    that fails is a record with the reason in `failed`. OSError if no job can be started."""
    start = time.monotonic()
    try:
        reports = reports_of(group, repeat, timeout, seed, turns)
    except UserError as error:
        reports = [{"net": point.settings["net"], "dataset": point.settings["dataset"], "P": point.ranks,
                    "grid": point.settings["grid"], "failed": one_line(error)[:SHOWN]} for point in group]  # fmt: skip
    how = {"seed": seed} if seed is not None else {}
    if turns:  # a rank has the memory of all of them together
        how |= {"turns": True, "peak_memory": None}
    how |= {"took": round((time.monotonic() - start) / len(group), 3), "loss": None, "environment": environment.here()}
    return [report | how | {"slots": slots(), "oversubscribed": point.ranks * point.job.get("threads", 1) > slots(),
                            "point": point.settings, "repeat": repeat} for point, report in zip(group, reports)]  # fmt: skip


def reports_of(group, repeat, timeout, seed, turns):
    """The reports of a job; UserError with the job's own words if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"report-{number}.json" for number in range(len(group))]
        always = ["--quiet", "--core-speed", *(["--seed", str(seed)] if seed is not None else [])]
        words = [[*always, *point.words, "--report", str(path)] for point, path in zip(group, paths)]
        if "program" in group[0].job:
            command = ["-m", "mpi4py", str(script_of(group[0])), *words[0]]
        elif turns:
            asked = Path(folder) / "turns.json"
            asked.write_text(json.dumps({"trainings": words, "first": repeat}))
            command = [*as_module("scaling.turns"), str(asked)]
        else:
            command = [*as_module("train"), *words[0]]
        of_job = group[0].job
        env = {"OMP_NUM_THREADS": str(of_job["threads"])} if "threads" in of_job else None
        network = [word for name in ("hosts", "rate", "delay") if name in of_job for word in (f"--{name}", f"{of_job[name]:g}")]
        launcher = [sys.executable, *as_module("launch"), *network] if "hosts" in of_job else None
        job = mpiexec(group[0].ranks, command, timeout * len(group), env, launcher)
        if job.status is None:
            raise UserError(f"took longer than --timeout {timeout} s and was ended")
        if job.status != 0:
            raise UserError(f"ended with status {job.status}: {reason(job.stderr)}")
        return [json.loads(path.read_text()) for path in paths]


def reason(stderr):
    """The line of a job's messages that says best why it failed: the last error, which ends a traceback."""
    lines = stderr.splitlines()
    errors = [line for line in lines if "rror" in line and not line.lstrip().startswith("raise ")]
    if errors:
        return errors[-1].strip()
    if any(word in line.lower() for line in lines for word in ("killed", "signal 9", "signal: 9", "out of memory", "oom")):
        return "a rank was killed, as the system does where memory is full"
    return "no message"


# ----- the file


class StudyFile:
    """The records of a Study in a file. anew: whether runs that are there are measured again, each kept until its new one is.
    runs: the records that count, in the order of measuring. Points that failed or were always disturbed are tried again."""

    def __init__(self, path, study, environment, anew=False):
        self.path, self.others_path, self.study = Path(path), Path(f"{path}.others"), study
        with user_input():
            here, beside = read(self.path), read(self.others_path)
        mine, self.predicted, others = of_study(here + beside, study, environment)
        mine = [record for record in mine if not record.get("failed")]
        again = {key for key, records_of in by_point(mine).items() if anew or settled(records_of, study) == BUSY}
        self.replaced = [record for record in mine if key_of(record) in again]
        self.runs = [record for record in mine if key_of(record) not in again]
        if beside or others:  # without any, what may be at FILE.others is somebody else's
            self._write_others(others + of_study(beside, study, environment)[0])  # none is only in memory in between
        if here or beside:
            self._write()
        if beside or others:
            self._write_others(others)

    def add(self, record):
        """Add a run that is done, in place of one with its number."""
        key = key_of(record), record["repeat"]
        self.runs[:] = [one for one in self.runs if (key_of(one), one["repeat"]) != key] + [record]
        self._write()

    def end(self):
        """Drop old runs of points that were measured anew."""
        done = by_point(self.runs)
        self.replaced = [record for record in self.replaced if not settled(done.get(key_of(record), []), self.study)]
        self._write()  # also without runs, as where a sweep has more parts than points

    def _write(self):
        new = {(key_of(record), record["repeat"]) for record in self.runs}
        old = [record for record in self.replaced if (key_of(record), record["repeat"]) not in new]
        numbers = {point.key: number for number, point in enumerate(self.study.points)}
        measured = sorted(self.runs + old, key=lambda record: (numbers[key_of(record)], record["repeat"]))
        write_text(self.path, lines(measured + self.predicted))

    def _write_others(self, others):
        if others:
            write_text(self.others_path, lines(others))
        else:
            self.others_path.unlink(missing_ok=True)


@contextmanager
def locked(path):
    """Within it no other sweep writes a file; UserError if one does already."""
    with user_input():
        lock = Lock(f"{resolved(path)}.lock", f"another sweep writes {path}", "wait for its end, or give another --out")
    if lock.note:
        print(lock.note, file=sys.stderr)
    with lock:
        yield
