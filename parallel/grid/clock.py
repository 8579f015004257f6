"""The clock of a rank, and the comparison of the clocks of different ranks.

The clocks of different machines start at different times and drift apart. A trace of all ranks needs one time scale.
"""

import time

import numpy as np

TRIPS = 20  # round trips in a comparison of two clocks


class WallClock:
    """Real time, `time.perf_counter`. A tally asks it for the time and reports communication to it.

    Simulated workers replace it by a clock whose time is virtual (`parallel/protocols/simulated_workers.py`).
    """

    def __init__(self):
        self.now = time.perf_counter  # returns the time in seconds

    def compare(self, comm):
        """See `compare_clocks`. Collective."""
        return compare_clocks(comm)


def compare_clocks(comm):
    """Compare this rank's clock, `time.perf_counter`, with that of rank 0. Collective over `comm`.

    Returns (now, offset, accuracy) in seconds: at the local time `now`, rank 0's clock shows `now + offset`, with an error of
    at most `accuracy`. Method (Cristian 1989): a message goes to rank 0, which answers with its time. If that time is taken to
    be the middle of the round trip, the error is at most half the round trip. The fastest of several round trips is used.
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
    """Convert an array of times in seconds from this rank's clock to that of rank 0.

    comparisons: one or more results of `compare_clocks`, in the order of time. The offset is interpolated linearly between two
    comparisons and constant before the first and after the last.
    """
    now, offsets, _ = zip(*comparisons)
    return times + np.interp(times, now, offsets)


def accuracy(comparisons):
    """The largest error of the offsets of some comparisons, in seconds."""
    return max(error for *_, error in comparisons)
