"""Timing functions: several in turns, so that a drift of the machine's speed affects all of them alike, or one on all ranks."""

from math import ceil
from statistics import median

import numpy as np

from gridgrad.nn.measured import in_turns, timed
from gridgrad.parallel.calibration.timing import slowest_in_turns

LEAST = 0.01  # seconds of a timing: quicker functions are called several times in a row


def times_in_turns(actions, rounds, least=LEAST):
    """{name: [seconds of a call, in each round]} of functions without arguments, {name: function}.

    A timing is of as many calls in a row as take about `least` seconds. All functions are called before, to warm up.
    """
    trials = [timed(action, calls_within(action, least)) for action in actions.values()]
    return dict(zip(actions, in_turns(trials, rounds).T.tolist(), strict=True))


def calls_within(action, least):
    """How many calls of a function take about `least` seconds; at least one. It is called twice."""
    action()
    return max(1, ceil(least / max(timed(action)(), 1e-9)))


def median_seconds(grid, action, rounds=7):
    """How long `action`, which all ranks run together, takes: the median over `rounds` of the slowest rank's time.

    Collective.
    """
    turns = slowest_in_turns(grid.comm, [timed(action)], most=rounds + 1)
    return median(turns[1:, 0].tolist())  # the first turn, in which memory is touched for the first time, does not count


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
