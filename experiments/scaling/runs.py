"""One run of a point: a job of its own, and what becomes of it, as a record."""

import json
import sys
import tempfile
import time
from pathlib import Path

from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.launching.start_ranks import mpiexec, slots
from gridgrad.experiments.scaling import environment
from gridgrad.parallel.job.run import UserError, one_line

SHOWN = 300  # characters of a reason
GIBBERISH = "no message"


def records_of(group, repeat, timeout, seed=None, turns=False):
    """The records of one run of each point of a group, in one job, without their lists of losses.

    repeat: the number of the run among those of a point. timeout: seconds that each may take. seed: of the run, in place of
    that of its point. turns: whether the points take turns. Runs that fail are records too, with the reason in `failed`.
    OSError if no job can be started.
    """
    start = time.monotonic()
    try:
        reports = reports_of(group, repeat, timeout, seed, turns)
    except UserError as error:
        reports = [{"net": point.settings["net"], "dataset": point.settings["dataset"], "P": point.ranks,
                    "grid": point.settings["grid"], "failed": one_line(error)[:SHOWN]} for point in group]  # fmt: skip
    how = {"seed": seed} if seed is not None else {}
    if turns:  # of the memory of a rank, in which all of them are, nobody knows which part is whose
        how |= {"turns": True, "peak_memory": None}
    how |= {"took": round((time.monotonic() - start) / len(group), 3), "loss": None, "environment": environment.here()}
    return [
        report | how | {"slots": slots(), "oversubscribed": point.ranks * point.job.get("threads", 1) > slots(),
                        "point": point.settings, "repeat": repeat}
        for point, report in zip(group, reports)
    ]  # fmt: skip


def reports_of(group, repeat, timeout, seed, turns):
    """The reports of a job; UserError with the job's own words if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"report-{number}.json" for number in range(len(group))]
        always = ["--quiet", "--core-speed", *(["--seed", str(seed)] if seed is not None else [])]
        words = [[*always, *point.words, "--report", str(path)] for point, path in zip(group, paths)]
        if turns:
            asked = Path(folder) / "turns.json"
            asked.write_text(json.dumps({"trainings": words, "first": repeat}))
            command = [*as_module("scaling.turns"), str(asked)]
        else:
            command = [*as_module("train"), *words[0]]
        job = mpiexec(group[0].ranks, command, timeout * len(group), **how_to_start(group[0]))
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
    return GIBBERISH


def how_to_start(point):
    """The arguments of `mpiexec` for the settings of JOB of a point: threads a rank, and emulated hosts."""
    job = dict(point.job)
    threads = job.pop("threads", None)
    how = {"env": {"OMP_NUM_THREADS": str(threads)}} if threads else {}
    if "hosts" in job:
        options = [word for name, value in job.items() for word in (f"--{name}", f"{value:g}")]
        how["launcher"] = [sys.executable, *as_module("launch"), *options]
    return how
