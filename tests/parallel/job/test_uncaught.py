"""A user's own script, started by mpiexec without `run`: an exception on one rank ends the job, with its traceback."""

import pytest

from gridgrad.experiments.launching.start_ranks import mpiexec


def script(way, ranks=3):
    finished = mpiexec(ranks, ["-m", "tests.parallel.job.uncaught_script", way], 300)
    assert finished.status is not None, f"{way}: still running at the time limit"
    return finished


OTHERS = "thread", "chained", "chained_and_broken"


@pytest.mark.parametrize("way", ["exception", *(pytest.param(way, marks=pytest.mark.long) for way in OTHERS)])
def test_an_exception_on_one_rank_ends_all(way):
    finished = script(way)
    assert finished.status != 0
    lines = [line for line in finished.stderr.splitlines() if "ZeroDivisionError: on one rank" in line]
    assert "[rank 2] ZeroDivisionError: on one rank" in lines
    assert "[rank 2] Traceback (most recent call last):" in finished.stderr
    assert len(lines) == 1 or way == "chained_and_broken"
    assert ("the user's own hook on rank 2" in finished.stderr) == (way == "chained")


@pytest.mark.long
def test_what_parallelize_refuses_on_one_rank_ends_all():
    finished = script("in_parallelize")
    assert finished.status != 0
    assert "[rank 2] ValueError: parallelize takes a Sequential, not a list" in finished.stderr


def test_a_serial_run_keeps_the_traceback_of_python():
    finished = script("exception", ranks=1)
    assert finished.status != 0
    assert "ZeroDivisionError: on one rank" in finished.stderr and "[rank" not in finished.stderr


@pytest.mark.parametrize(
    "way", ["well", *(pytest.param(way, marks=pytest.mark.long) for way in ("interactive", "under_pytest"))]
)
def test_nothing_else_changes(way):
    finished = script(way)
    assert finished.status == 0, finished.stderr
    assert "".join(finished.stdout.split()) == "well" * 3  # lines of several ranks may run together


@pytest.mark.long
def test_minibatches_of_other_lengths_on_the_axis_model_end_the_job():
    """MPI may refuse their messages before the numbers of samples are compared."""
    finished = script("other_lengths", ranks=2)
    assert finished.status not in (0, None)
    assert "truncated" in finished.stderr or "different lengths" in finished.stderr
