"""Whatever goes wrong on one rank while `train` runs, the job ends with a status that is not 0, and says what and where.

Run as `python -m ... WAY OPTIONS OF TRAIN` this is the job: `train` with a fault on rank 1. It comes in step 3, before the
forward pass of the first layer. For watchdogs no time passes before it, and no process is silent for having no core.
"""

import os
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.experiments import train
from gridgrad.experiments.launching.start_ranks import mpiexec
from gridgrad.nn.layers.linear import Linear
from gridgrad.parallel.faults import watchdog
from gridgrad.parallel.job.run import run

pytestmark = pytest.mark.mpi  # it starts jobs
NET = ["--net", "mlp:16,16,relu", "--batch-size", "32", "--steps", "8", "--quiet", "--reduction", "plain", "--grid", "batch=3"]
LIMIT = 300  # seconds, of which a job needs at most 10 on a machine that does nothing else
STEP, VICTIM = 3, 1
WAYS = {
    "sleeps": lambda layer: time.sleep(1000),
    "flips": lambda layer: np.bitwise_xor.at(layer.parameters[0].value.view(np.uint32), (0, 0), 1),
    "well": lambda layer: None,
}


@pytest.fixture
def faulty(tmp_path):
    """A function that runs a job with a fault on rank 1 and returns (status, what was printed to standard error)."""

    def call(way, *options):
        words = ["-m", "tests.parallel.faults.test_faults", way, *NET, *options]
        plain = {"GRIDGRAD_KERNELS": "plain"}  # nothing is measured at the start of a job, and nothing is said of it
        finished = mpiexec(3, words, LIMIT, plain | {"FAULT": f"{tmp_path}/fault"})
        assert finished.status is not None, f"still running at the time limit\n{finished.stderr}"
        return finished.status, finished.stderr

    return call


def test_without_a_fault_nothing_is_said(faulty):
    assert faulty("well", "--check-replicas", "1", "--check-finite", "--watchdog", "120") == (0, "")


def test_a_wrong_value_is_named_once_with_its_rank(faulty):
    status, error = faulty("flips", "--check-replicas", "1", "--lr", "1e-9")
    [line] = [line for line in error.splitlines() if "error: " in line]
    words = "step 2: the replicas of parameter 0.weight differ: values on rank 1 are not those on ranks 0, 2"
    assert status == 1 and words in line


def test_a_rank_that_hangs_is_named_and_where_and_so_are_those_that_wait(faulty):
    status, error = faulty("sleeps", "--watchdog", "3")
    ended = "watchdog: the job is ended, since a rank has waited longer than 3 s"
    where = r"watchdog: rank 1 is in no collective: for \d+ s it has computed in .* at tests/\S+test_faults.py:\d+.*, step 2"
    assert status == 1 and error.count(ended) == 1 and re.search(where, error)
    assert len(re.findall(r"rank [02] has waited for \d+ s in all-reduce of '\w+', group of ranks 0-2, step 2", error)) == 2


def main():
    action, fault, start = WAYS[sys.argv.pop(1)], Path(os.environ["FAULT"]), time.monotonic()
    watchdog.time = SimpleNamespace(monotonic=lambda: time.monotonic() if fault.exists() else start, sleep=time.sleep)
    watchdog.SILENT = 300.0
    honest, calls = Linear.forward, []

    def spoilt(layer, x, context):
        if layer.name == "0" and context.training:
            calls.append(layer)
            if len(calls) == STEP:
                fault.touch()  # tells the watchdogs of all ranks that the fault begins
                action(layer)
        return honest(layer, x, context)

    if MPI.COMM_WORLD.rank == VICTIM:
        Linear.forward = spoilt
    train.main()


if __name__ == "__main__":
    run(main)
