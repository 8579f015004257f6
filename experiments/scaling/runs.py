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


def record_of(point, repeat, timeout):
    """The record of one run, without its list of losses. A run that fails is a record too, with the reason in `failed`.

    repeat: the number of the run among those of the point. timeout: seconds that it may take. OSError if no job can be started.
    """
    start = time.monotonic()
    try:
        report = report_of(point, timeout)
    except UserError as error:
        report = {"net": point.settings["net"], "dataset": point.settings["dataset"], "P": point.ranks,
                  "grid": point.settings["grid"], "failed": one_line(error)[:SHOWN]}  # fmt: skip
    took = round(time.monotonic() - start, 3)
    crowded = {"slots": slots(), "oversubscribed": point.ranks * point.job.get("threads", 1) > slots()}
    return report | crowded | {
        "point": point.settings, "repeat": repeat, "took": took, "loss": None, "environment": environment.here(),
    }  # fmt: skip


def report_of(point, timeout):
    """The report of a run; UserError with the job's own words if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = [*as_module("train"), "--quiet", "--core-speed", *point.words, "--report", str(report)]
        job = mpiexec(point.ranks, words, timeout, **how_to_start(point))
        if job.status is None:
            raise UserError(f"took longer than --timeout {timeout} s and was ended")
        if job.status != 0:
            raise UserError(f"ended with status {job.status}: {reason(job.stderr)}")
        return json.loads(report.read_text())


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
