"""Our training steps against PyDTNN's, one thread each, alternately: for `bench`.

PyDTNN needs Python 3.13 and is under the GPL: it is installed in an environment of its own, and only ever run there, as
the program `pydtnn_peer.py`.
"""

import json
import math
import subprocess
import time
from pathlib import Path

from tqdm import tqdm

from experiments.benchmarks.bench_ranks import job
from experiments.benchmarks.bench_serial import Case
from parallel.job.run import UserError, one_line

PYTHON = Path(".venv-pydtnn/bin/python")  # that `make peers` sets up
CASES = [
    Case("mnist-cnn, batch 64", "mnist-cnn", (28, 28, 1), 10, 64, "cross-entropy", 0.5),
    Case("cifar-cnn, batch 64", "cifar-cnn", (32, 32, 3), 10, 64, "cross-entropy", 0.5),
]


def version(python):
    """The version of PyDTNN that an interpreter has; UserError if it has none."""
    # The import is tried as well: without an MPI library PyDTNN 3.11 is there but does not load.
    printed = _run(python, "-c", "import pydtnn.model, importlib.metadata as m; print(m.version('pydtnn'))")
    return printed.splitlines()[-1]


def pydtnn_ratios(case, python, rounds, steps, end=math.inf):
    """Round by round: the time of our step over that of PyDTNN's, a process each.

    end: the moment after which no round begins.
    """
    peer = ["-P", Path(__file__).with_name("pydtnn_peer.py"), "--net", case.net]
    found = []
    for _ in tqdm(range(rounds), unit=" rounds", delay=2, disable=None):
        ours = job(1, "step_time", case, steps)["seconds"]
        printed = _run(python, *peer, "--batch-size", case.batch_size, "--steps", steps)
        found.append(ours / json.loads(printed.splitlines()[-1])["seconds"])
        if time.monotonic() > end:
            break
    return found


def _run(python, *arguments):
    """What a run of PyDTNN's interpreter prints."""
    try:
        finished = subprocess.run([str(python), *map(str, arguments)], capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"PyDTNN does not run in {python}, see `make peers`: {one_line(error)}") from None
    if finished.returncode:
        last = (finished.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UserError(f"PyDTNN does not run in {python}, see `make peers`: {last}")
    return finished.stdout
