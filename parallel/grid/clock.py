"""The clocks of the ranks: the real one, and the comparison of those of different machines, which start at different times and
drift apart."""

import time

import numpy as np

TRIPS = 20


class WallClock:
    """What `time.perf_counter` shows. A tally asks it what time it is, and tells it of communication: `parallel/performance/simulation.py`
    has another one, whose time passes as a model says."""

    progresses = True  # whether it is worth testing what is under way

    @property
    def now(self):
        """A function that gives the time in seconds."""
        return time.perf_counter

    def blocked(self, group, kind, sent):
        """A blocking collective of which this rank sent so many bytes is over."""

    def completed(self, transfer):
        """What was under way is done; returns since when."""
        return self.now()

    def compare(self, comm):
        """See `compare_clocks`."""
        return compare_clocks(comm)


def compare_clocks(comm):
    """(now, offset, accuracy) in seconds: what to add to `time.perf_counter()` of this rank to have that of rank 0.

    A message goes to rank 0, which answers with its time, somewhere between sending and receiving here; taken as the
    middle it is off by at most half the round trip. The fastest of some round trips counts (Cristian 1989). Collective.
    """
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


def to_clock_of_rank_0(times, comparisons):
    """Times of this rank's clock as those of rank 0's: the offset is linear between two comparisons, constant outside.

    times: seconds, an array. comparisons: one or more of what `compare_clocks` gave, in the order of time.
    """
    now, offsets, _ = zip(*comparisons)
    return times + np.interp(times, now, offsets)


def accuracy(comparisons):
    """The largest error of these offsets, in seconds."""
    return max(error for *_, error in comparisons)
