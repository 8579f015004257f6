"""Measurements that all ranks make in turns within a time limit, so that on a busy machine there are fewer turns."""

import math
import time
from statistics import median

import numpy as np
from mpi4py import MPI


class TimeLimit:
    """It ends `seconds` from now. Only the clock of rank 0 counts, so all ranks get the same answer."""

    def __init__(self, comm, seconds=math.inf):
        self.comm, self.end = comm, time.monotonic() + seconds

    def is_over(self):
        """Whether the time is over. Collective."""
        return self.comm.bcast(time.monotonic() > self.end)

    def share(self, part):
        """A TimeLimit for a part of the time that is left. part: a number between 0 and 1."""
        return TimeLimit(self.comm, part * max(0.0, self.end - time.monotonic()))


def timed(action, times=1, clock=time.perf_counter):
    """A function that runs an action so many times and returns the seconds of one of them by a clock."""

    def run():
        start = clock()
        for _ in range(times):
            action()
        return max((clock() - start) / times, 1e-12)

    return run


def in_turns(comm, trials, limit, most=None):
    """Seconds of the slowest rank, (turns, trials), of `timed` trials, until a TimeLimit or `most` turns. Collective."""
    turns = []
    while not turns or len(turns) != most and not limit.is_over():
        turn = []
        for trial in trials:
            comm.Barrier()
            turn.append(trial())
        turns.append(turn)
    turns = np.array(turns)
    comm.Allreduce(MPI.IN_PLACE, turns, MPI.MAX)
    return turns


def spread(times):
    """The ratio of a slow to a fast repetition of the same measurement: the 90th percentile over the 10th."""
    slow, fast = np.percentile(times, [90, 10])
    return float(slow / fast)


def in_words(spreads):
    """How much times vary, for people; steady load does not show in it. spreads: several of `spread`."""
    typical, worst = median(spreads), max(spreads)
    return (
        f"the same training step took {typical:.2f} times as long at slow moments as at fast ones (at worst {worst:.2f} times)"
    )
