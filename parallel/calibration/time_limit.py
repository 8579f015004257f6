"""A bound on the time of a measurement that all ranks take together, and how much the measured times vary."""

import math
import time
from statistics import median

import numpy as np

TOO_BUSY = 2.0  # how many times as long the same thing may take, before a machine is too busy to be judged


class TimeLimit:
    """Until `seconds` from now. All ranks ask together, and are told what the clock of rank 0 says."""

    def __init__(self, comm, seconds=math.inf):
        self.comm, self.end = comm, time.monotonic() + seconds

    def is_over(self):
        """Collective."""
        return self.comm.bcast(time.monotonic() > self.end)

    def share(self, part):
        """A limit for the given part of the time that is left."""
        return TimeLimit(self.comm, part * max(0.0, self.end - time.monotonic()))


def spread(times):
    """How many times as long the same thing took at a slow moment as at a fast one: the 90th over the 10th percentile."""
    slow, fast = np.percentile(times, [90, 10])
    return float(slow / fast)


def verdict(spreads):
    """(whether the machine is too busy to be judged, the numbers in words). spreads: of several things, as `spread` says."""
    typical, worst = median(spreads), max(spreads)
    words = (
        f"the same training step took {typical:.2f} times as long at slow moments as at fast ones (at worst {worst:.2f} times)"
    )
    return typical >= TOO_BUSY, words
