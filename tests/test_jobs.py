"""Tests that share a job: a failure is reported once and in time, tests do not affect each other, and nothing remains."""

import os
import time
from types import SimpleNamespace

import numpy as np
import pytest

from gridgrad.experiments.launching.leftovers import processes
from gridgrad.nn.kernels import gemm
from tests import jobs
from tests.jobs import Jobs
from tests.mpi import mpi

LIMIT = 300  # seconds after which something hangs, however busy the machine is


@pytest.fixture(scope="module")
def own():
    """Jobs of these tests alone, of which no process and no folder remains."""
    own = Jobs()
    yield own
    job = own.job
    own.end()
    assert job is None or gone(job)


def gone(job):
    return not processes(job.mark) and not job.folder.exists()


def run(own, body, timeout=LIMIT):
    return own.run(2, f"{__name__}:{body.__name__}", timeout)


@mpi(2)
def passes(comm):
    assert comm.allreduce(comm.rank) == 1


@mpi(2)
def fails_on_rank_1(comm):
    if comm.rank == 1:
        print("what it printed")
        raise ZeroDivisionError("on one rank")
    comm.Barrier()


@mpi(2)
def hangs(comm):
    if comm.rank == 0:
        time.sleep(1000)


@mpi(2)
def changes_the_process(comm, monkeypatch):
    """All of this is put back."""
    os.environ["GRIDGRAD_LEFT"] = "1"
    np.seterr(all="raise")
    monkeypatch.setattr(gemm, "LONG_PRODUCT", "changed")


@mpi(2)
def finds_the_process_unchanged(comm):
    assert "GRIDGRAD_LEFT" not in os.environ and np.geterr()["divide"] == "warn" and gemm.LONG_PRODUCT != "changed"


@mpi(2)
def leaves_a_module_changed(comm):
    gemm.LONG_PRODUCT = "changed"


@mpi(2)
def leaves_a_message(comm):
    comm.Isend(np.ones(3), 1 - comm.rank).Wait()


@mpi(2)
def leaves_a_communicator(comm):
    comm.Split(0, comm.rank)


def test_tests_share_a_job_and_leave_nothing_to_the_next(own):
    assert run(own, passes) is None
    first = own.job
    assert len(processes(first.mark)) >= 3  # and the launcher
    assert run(own, changes_the_process) is None
    assert run(own, finds_the_process_unchanged) is None and own.job is first
    own.end()
    assert gone(first)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (fails_on_rank_1, ["[rank 1 of 2]\n", "ZeroDivisionError: on one rank", "[printed]\nwhat it printed"]),
        (leaves_a_module_changed, ["[ranks 0, 1 of 2]\n", "nn.kernels.gemm.LONG_PRODUCT changed"]),
        (leaves_a_message, ["[ranks 0, 1 of 2]\n", "leaves a message behind"]),
        (leaves_a_communicator, ["[ranks 0, 1 of 2]\n", "the test leaves 1 communicators behind"]),
    ],
)
def test_a_failure_is_told_once_and_the_next_test_has_a_new_job(own, body, words, monkeypatch):
    monkeypatch.setattr(jobs, "GRACE", 1.0 if body is fails_on_rank_1 else LIMIT)  # if not all ranks report
    assert run(own, passes) is None
    job = own.job
    failure = run(own, body)
    assert all(failure.count(word) == 1 for word in words) and "tests/worker.py" not in failure, failure
    assert own.job is None and gone(job)
    assert run(own, passes) is None


def test_a_test_that_hangs_is_ended_in_time_and_says_where(own, monkeypatch):
    """For pytest no time passes until both ranks have said where they are: one waits for the other."""
    assert run(own, passes) is None
    job, words = own.job, ("in hangs\n", "in meet\n")
    places = [job.folder / f"hung-{rank}" for rank in (0, 1)]

    def now():
        return 2.0 * all(place.exists() and word in place.read_text() for word, place in zip(words, places, strict=True))

    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=now, time=time.time, sleep=time.sleep))
    failure = run(own, hangs, timeout=2)
    assert gone(job)
    assert failure.count("not finished after 2 s") == 2 and all(failure.count(word) == 1 for word in words), failure
