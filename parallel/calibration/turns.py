"""Measurements that all ranks make in turns, within a time that is a budget: on a busy machine there are fewer turns."""

import time

import numpy as np
from mpi4py import MPI


def timed(action, times=1, clock=time.perf_counter):
    """A function that runs an action so many times and returns how many seconds one of them took by a clock."""

    def run():
        start = clock()
        for _ in range(times):
            action()
        return max((clock() - start) / times, 1e-12)

    return run


def in_turns(comm, trials, limit, most=None):
    """The seconds of trials that all ranks run together, in turns: an array (turns, trials). Collective.

    The time of the slowest rank counts. trials: functions that return their seconds, see `timed`. limit: a TimeLimit at which
    no further turn begins; there is one at least. most: the largest number of turns.
    """
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
