"""The tally of a grid: how often this rank communicated, how many bytes it sent and how many seconds that took."""

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from gridgrad.nn.device import synchronise, xp
from gridgrad.nn.observer import Observable
from gridgrad.parallel.job.waiting import here

TRIPS = 20  # round trips in a comparison of two clocks


class WallClock:
    """Real time, `time.perf_counter`. Simulated workers have a clock whose time is virtual instead."""

    def __init__(self):
        self.now = time.perf_counter  # returns the time in seconds

    def compare(self, comm):
        """(now, offset, accuracy) in seconds: at the local time `now`, rank 0's clock shows `now + offset`. Collective."""
        # Cristian 1989: rank 0 answers a message with its time. Taken to be the middle of the round trip, that time is wrong by
        # at most half the round trip, the accuracy. The fastest of several round trips is used.
        word, trips = np.empty(1), []
        if comm.rank == 0:
            for other in range(1, comm.size):
                for _ in range(TRIPS):
                    comm.Recv(word, other)
                    word[0] = time.perf_counter()
                    comm.Send(word, other)
            return time.perf_counter(), 0.0, 0.0
        for _ in range(TRIPS):
            sent = time.perf_counter()
            comm.Send(word, 0)
            comm.Recv(word, 0)
            arrived = time.perf_counter()
            trips.append((arrived - sent, sent, float(word[0])))
        trip, sent, there = min(trips)
        middle = sent + trip / 2
        return middle, there - middle, trip / 2


@dataclass
class Record:
    """What one entry of a tally has counted."""

    calls: int = 0  # of this rank
    bytes: int = 0  # that it sent
    seconds: float = 0.0  # spent in the calls
    messages: int = 0  # from point to point that it sent; those within MPI's collectives are not known


class Tally(Observable):
    """Counts this rank's communication: `records` is {(layer, kind of collective): Record}.
    Observers that are registered here are told of every collective: see `nn/observer.py`."""

    def __init__(self):
        self.clock = WallClock()
        self.records = defaultdict(Record)

    def clear(self):
        self.records.clear()

    @contextmanager
    def set_aside(self):
        """A `with` block whose communication is neither counted nor reported to observers, such as that of an evaluation."""
        before, self.records, self.observer = (self.records, self.observer), defaultdict(Record), None
        try:
            yield
        finally:
            self.records, self.observer = before

    @property
    def seconds(self):
        """The seconds that this rank has spent in communication, over all entries."""
        return sum(record.seconds for record in self.records.values())


class Call:
    """A `with` block around one call of MPI, which is counted, timed, and told to the watchdog and observers.
    sent: bytes, by this rank. calls: 1 where a collective runs or begins, 0 where it is tested or waited for."""

    __slots__ = "calls", "group", "kind", "layer", "messages", "sent", "start"

    def __init__(self, group, kind, layer, sent, calls=1, messages=0):
        self.group, self.kind, self.layer = group, kind, layer
        self.sent, self.calls, self.messages = int(sent), calls, messages

    def __enter__(self):
        if not xp.is_cpu:
            synchronise()  # else the end of its earlier computations would be counted as communication
        self.start = self.group.tally.clock.now()
        here.entered += 1
        here.calls.append(self)

    def __exit__(self, error, *_):
        here.calls.pop()
        if error:
            return
        tally = self.group.tally
        stop, record = tally.clock.now(), tally.records[self.layer, self.kind]
        record.calls += self.calls
        record.bytes += self.sent
        record.seconds += stop - self.start
        record.messages += self.messages
        if tally.observer:
            tell = tally.observer.collective if self.calls else tally.observer.advanced
            tell(self.group, self.layer, self.kind, self.sent, self.start, stop)
