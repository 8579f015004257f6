"""Whatever goes wrong on one rank while `train` runs, the job ends with a status that is not 0, and says what and where."""

import re

import pytest

from gridgrad.experiments.launching.start_ranks import mpiexec

pytestmark = pytest.mark.mpi  # it starts jobs
NET = ["--net", "mlp:16,16,relu", "--batch-size", "32", "--steps", "8", "--quiet", "--reduction", "plain"]
LIMIT = 300  # seconds, of which a job needs at most 10 on a machine that does nothing else
ENDED = "watchdog: the job is ended, since a rank has waited longer than 3 s"


@pytest.fixture
def faulty(tmp_path):
    """A function that runs a job with a fault on rank 1 and returns (status, what was printed to standard error)."""

    def call(way, *options, grid="batch=3", ranks=3):
        words = ["-m", "tests.parallel.faults.faulty", way, *NET, "--grid", grid, *options]
        plain = {"GRIDGRAD_KERNELS": "plain"}  # nothing is measured at the start of a job, and nothing is said of it
        finished = mpiexec(ranks, words, LIMIT, plain | {"FAULT": f"{tmp_path}/fault"})
        assert finished.status is not None, f"still running at the time limit\n{finished.stderr}"
        return finished.status, finished.stderr

    return call


def test_without_a_fault_nothing_is_said(faulty):
    options = ["--check-replicas", "1", "--check-finite"]
    assert faulty("well", *options, "--watchdog", "120", grid="batch=2,model=2", ranks=4) == (0, "")


def test_a_wrong_value_is_named_once_with_its_rank(faulty):
    status, error = faulty("flips", "--check-replicas", "1", "--lr", "1e-9")
    [line] = [line for line in error.splitlines() if "error: " in line]
    words = "step 2: the replicas of parameter 0.weight differ: values on rank 1 are not those on ranks 0, 2"
    assert status == 1 and words in line


@pytest.mark.parametrize(("way", "words", "waiting"), [
    ("sleeps", r"rank 1 is in no collective: for \d+ s it has computed in .* at tests/\S+faulty.py:\d+.*, step 2",
     r"rank [02] has waited for \d+ s in all-reduce of '\w+', group of ranks 0-2, step 2"),
    pytest.param("stopped", r"rank 1 has not answered for \d+ s: process \d+ is stopped by a signal; before, it \w+ in ",
                 "has waited for", marks=pytest.mark.long),
], ids=["sleeps", "stopped"])  # fmt: skip
def test_a_rank_that_hangs_is_named_and_where_and_so_are_those_that_wait(way, words, waiting, faulty):
    status, error = faulty(way, "--watchdog", "3")
    assert status == 1 and error.count(ENDED) == 1 and re.search(f"watchdog: {words}", error)
    assert len(re.findall(waiting, error)) == 2
