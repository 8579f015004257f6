"""Jobs of `train` with update protocols, and what is recorded of each protocol."""

import json
import tempfile
from itertools import product
from pathlib import Path
from statistics import median

from gridgrad.experiments.common.jobs import check_ended
from gridgrad.experiments.common.options import user_input
from gridgrad.experiments.common.programs import as_module
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.launching.start_ranks import mpiexec
from gridgrad.experiments.studies.protocols.protocol_runs import rates, rose, staleness
from gridgrad.experiments.studies.protocols.synchronous_workers import POWER_SGD

TIMEOUT = 1800  # seconds that a job may take
SETTINGS = "dataset", "data_dir", "net", "batch_size", "steps", "schedule", "seed"  # options that `train` has too
NOT_FINITE = "finite"  # a word of every message that a training has diverged


def timed(args):
    """Train with all protocols, without and with a handicap of the last rank, in turns; yields what is recorded of each.

    args: the options of the program `protocols`. Raises UserError if a job fails.
    A result has {"seconds", "score"} of its jobs, each as {"median", "min", "max"}, and "bytes", "staleness" and "turns" of the
    last of them. diverged: the message of a job that did, after which the protocol has no more jobs.
    """
    cases = list(product(args.protocols, dict.fromkeys((1.0, args.straggler))))
    reports, diverged = {case: [] for case in cases}, {}
    for _, case in progress(list(product(range(args.rounds), cases)), "jobs"):
        if case not in diverged:
            found = job(args, *case)
            if isinstance(found, str):
                diverged[case] = found
            else:
                reports[case].append(found)
    for (text, factor), found in reports.items():
        one = {"protocol": text, "straggler": factor, "diverged": diverged.get((text, factor))}
        yield one if one["diverged"] else one | recorded(found)


def job(args, text, factor):
    """The report of a job with a protocol, or the message with which it says that the training has diverged."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        chosen = ("--protocol", "sync", "--reduction", text) if text.startswith(POWER_SGD) else ("--protocol", text)
        arguments = [*as_module("train"), "--quiet", "--report", str(path), *chosen, "--grid", f"batch={args.measure}"]
        settings = {name: getattr(args, name) for name in SETTINGS} | rates(args, text)
        for name, value in settings.items():
            if value is not None:
                arguments += [f"--{name.replace('_', '-')}", str(value)]
        if args.sorted:
            arguments.append("--sorted")
        if factor > 1:
            arguments += ["--handicap", f"{args.measure - 1}={factor:g}"]
        with user_input():
            finished = mpiexec(args.measure, arguments, TIMEOUT)
        if finished.status == 2 and (said := [line for line in finished.stderr.splitlines() if NOT_FINITE in line]):
            return said[0].partition("error: ")[2]
        check_ended(finished, f"the job with {text}")
        report = json.loads(path.read_text())
        return rose(report["loss"]) or report


def recorded(reports):
    """What is recorded of the jobs of a protocol."""
    last = reports[-1]
    return {
        "seconds": spread(report["seconds_per_step"]["median"] for report in reports),
        "score": spread(report.get("test_accuracy", report["test_loss"]) for report in reports),
        "bytes": sum(row["bytes"] for row in last["communication"]),
        "staleness": staleness({int(updates): count for updates, count in last.get("staleness", {}).items()}),
        "turns": last.get("turns", [last["steps"]] * last["P"]), "versions": last["versions"],
    }  # fmt: skip


def spread(numbers):
    """{"median", "min", "max"} of some numbers."""
    numbers = list(numbers)
    return {"median": median(numbers), "min": min(numbers), "max": max(numbers)}
