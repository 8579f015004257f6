"""A rank that waits for what another one does alone sleeps, and does not spin in a collective of MPI."""

import numpy as np
import pytest

from gridgrad.parallel.choose.parallelize import of_first
from gridgrad.parallel.job import waiting
from gridgrad.parallel.job.run import on_root
from gridgrad.parallel.job.waiting import broadcast, meet, sleep_until
from tests.clock import Clock
from tests.mpi import mpi


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def test_naps_grow_with_the_time_since_something_happened_and_waiting_ends_in_time(clock):
    assert sleep_until(lambda: True) and clock.naps == []
    assert sleep_until(lambda: clock.now > 60)
    waited = np.cumsum([0, *clock.naps[:-1]])
    assert clock.naps[0] == waiting.SHORTEST and max(clock.naps) == waiting.LONGEST
    assert all(nap <= waiting.SHORTEST + 0.11 * before for nap, before in zip(clock.naps, waited, strict=True))
    clock.naps.clear()
    something = iter([False] * 20 + [True] + [False] * 20)
    assert sleep_until(lambda: len(clock.naps) == 40, serve=lambda: next(something))
    assert clock.naps[20] == waiting.SHORTEST and clock.naps[:20] == clock.naps[20:]
    clock.now = 0
    assert not sleep_until(lambda: False, seconds=3)
    assert 3 <= clock.now < 3 + 2 * waiting.LONGEST


class Alone:
    """What the first rank does alone: it asks all others to sleep, and ends when they have, or never if one does not.

    Making one is collective; so is `free`, which says how often it was done.
    """

    def __init__(self, comm, monkeypatch):
        self.comm, self.done, self._sleep = comm.Dup(), 0, waiting.time.sleep
        monkeypatch.setattr(waiting.time, "sleep", self.sleep)

    def __call__(self, result=None):
        for rank in range(1, self.comm.size):
            self.comm.send("sleep", rank)
        for rank in range(1, self.comm.size):
            self.comm.recv(source=rank)
        self.done += 1
        return result

    def sleep(self, seconds):
        if self.comm.rank and self.comm.iprobe(source=0):
            (call,) = waiting.here.calls  # which a watchdog names
            assert [*call.group.ranks] == [*range(self.comm.size)] and (call.layer, call.kind) == (waiting.ALONE, "barrier")
            self.comm.recv(source=0)
            self.comm.send("asleep", 0)
        self._sleep(seconds)

    def free(self):
        done = self.comm.allreduce(self.done)
        self.comm.Free()
        return done


def ends(comm, monkeypatch, action):
    """Whether action(alone) ends, in which the first rank calls alone()."""
    with monkeypatch.context() as patches:
        alone = Alone(comm, patches)
        action(alone)
        return alone.free() == 1


@mpi(3, timeout=60)
def test_what_the_first_rank_does_alone_is_waited_for_asleep(comm, monkeypatch):
    assert ends(comm, monkeypatch, lambda alone: on_root(comm, alone))
    assert not waiting.here.calls
    assert ends(comm, monkeypatch, lambda alone: of_first(comm, alone))
    assert ends(comm, monkeypatch, lambda alone: meet(comm) if comm.rank else (alone(), meet(comm)))
    assert ends(comm, monkeypatch, lambda alone: broadcast(comm, alone(1) if comm.rank == 0 else 2) == 1)
