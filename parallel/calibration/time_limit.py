"""A limit on the time of a measurement that all ranks make together, and a measure of how much the measured times vary."""

import math
import time
from statistics import median

import numpy as np


class TimeLimit:
    """A time limit that ends `seconds` from now. Only the clock of rank 0 counts, so all ranks get the same answer."""

    def __init__(self, comm, seconds=math.inf):
        self.comm, self.end = comm, time.monotonic() + seconds

    def is_over(self):
        """Whether the time is over. Collective."""
        return self.comm.bcast(time.monotonic() > self.end)

    def share(self, part):
        """A TimeLimit for a part of the time that is left. part: a number between 0 and 1."""
        return TimeLimit(self.comm, part * max(0.0, self.end - time.monotonic()))


def spread(times):
    """The ratio of a slow to a fast repetition of the same measurement: the 90th percentile over the 10th."""
    slow, fast = np.percentile(times, [90, 10])
    return float(slow / fast)


def in_words(spreads):
    """How much times vary, for people; steady load does not show in it. spreads: see `spread`, several of them."""
    typical, worst = median(spreads), max(spreads)
    return (
        f"the same training step took {typical:.2f} times as long at slow moments as at fast ones (at worst {worst:.2f} times)"
    )
