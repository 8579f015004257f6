"""Whatever goes wrong on one rank while `train` runs, the job ends with a status that is not 0, and says what and where."""

import os
import re
import subprocess
import sys
import tempfile

import pytest

from gridgrad.experiments.launching.start_ranks import mpiexec

pytestmark = pytest.mark.mpi  # it starts jobs
NET = ["--net", "mlp:16,16,relu", "--batch-size", "32", "--steps", "8", "--quiet", "--reduction", "plain"]
WATCHED = ["--watchdog", "3"]
PLAIN = {"GRIDGRAD_KERNELS": "plain"}  # nothing is measured at the start of a job, and nothing is said of it
LIMIT = 300  # seconds, of which a job needs at most 10 on a machine that does nothing else
ENDED = "watchdog: the job is ended, since a rank has waited longer than 3 s"


def faulty(way, *options, grid="batch=3", ranks=3):
    """(status, what was printed to standard error) of a job with a fault on rank 1."""
    words = ["-m", "tests.parallel.faults.faulty", way, *NET, "--grid", grid, *options]
    with tempfile.TemporaryDirectory() as folder:
        finished = mpiexec(ranks, words, LIMIT, PLAIN | {"FAULT": f"{folder}/fault"})
    assert finished.status is not None, f"still running at the time limit\n{finished.stderr}"
    return finished.status, finished.stderr


def lines_of(error, word):
    return [line for line in error.splitlines() if word in line]


@pytest.mark.parametrize(
    ("way", "words"), [pytest.param("raises", "ZeroDivisionError: in a layer", marks=pytest.mark.long), ("killed", "")]
)
def test_a_rank_that_dies_ends_a_launched_job(way, words):
    command = [sys.executable, "-m", "gridgrad", "launch", "3", "tests.parallel.faults.faulty", way, *NET, "--grid", "batch=3"]
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | PLAIN | {"FAULT": f"{folder}/fault"}
        finished = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=env)
    assert finished.returncode != 0
    assert words in finished.stderr


def test_without_a_fault_nothing_is_said():
    options = ["--check-replicas", "1", "--check-finite"]
    assert faulty("well", *options, "--watchdog", "120", grid="batch=2,model=2", ranks=4) == (0, "")


def test_a_rank_that_hangs_is_named_and_where():
    status, error = faulty("sleeps", *WATCHED)
    assert status == 1
    (line,) = lines_of(error, "in no collective")
    assert re.match(
        r"watchdog: rank 1 is in no collective: for \d+ s it has computed in .* at tests/\S+faulty.py:\d+.*, step 2", line
    )
    for rank in (0, 2):
        assert re.search(
            rf"watchdog: rank {rank} has waited for \d+ s in all-reduce of '\w+', group of ranks 0-2, step 2", error
        )
    assert error.count(ENDED) == 1


@pytest.mark.long
def test_a_process_that_is_stopped_is_named_by_the_others():
    status, error = faulty("stopped", *WATCHED)
    assert status == 1
    assert re.search(
        r"watchdog: rank 1 has not answered for \d+ s: process \d+ is stopped by a signal; before, it \w+ in ", error
    )
    assert len(lines_of(error, "has waited for")) == 2 and error.count(ENDED) == 1


@pytest.mark.long
def test_a_collective_that_one_rank_skips_ends_in_the_watchdog():
    """That rank is a step ahead from then on, until it has no more steps."""
    status, error = faulty("skips", *WATCHED)
    assert status == 1
    assert re.search(r"watchdog: rank 1 has waited for \d+ s in MPI's Allreduce, min at parallel/grid/process_grid.py:", error)
    assert len(lines_of(error, "in all-reduce of 'gradients'")) == 2 and error.count(ENDED) == 1


def test_a_flipped_bit_is_found_on_its_rank():
    status, error = faulty("flips", "--check-replicas", "1", "--lr", "1e-9")
    assert status == 1
    (line,) = lines_of(error, "error: ")
    assert "step 2: the replicas of parameter 0.weight differ: values on rank 1 are not those on ranks 0, 2" in line


@pytest.mark.long
def test_nan_on_one_rank_is_named_on_all():
    status, error = faulty("spoils")
    assert status == 2
    (line,) = lines_of(error, "error: ")
    assert line.startswith("faulty: error: step 2: the loss is nan: first not finite: parameter 0.weight")
