"""Timing functions: several in turns, so that a drift of the machine's speed affects all of them alike, or one on all ranks."""

import time
from math import ceil
from statistics import median

from gridgrad.parallel.calibration.turns import TimeLimit, in_turns, timed

LEAST = 0.01  # seconds of a timing: quicker functions are called several times in a row


def times_in_turns(actions, rounds, least=LEAST):
    """{name: [seconds of a call, in each round]} of functions without arguments, {name: function}.

    A timing is of as many calls in a row as take about `least` seconds. All functions are called before, to warm up.
    """
    calls = {name: calls_within(action, least) for name, action in actions.items()}
    found = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            found[name].append(seconds_of(action, calls[name]) / calls[name])
    return found


def calls_within(action, least):
    """How many calls of a function take about `least` seconds; at least one. It is called twice."""
    action()
    return max(1, ceil(least / max(seconds_of(action, 1), 1e-9)))


def seconds_of(action, calls):
    """The seconds of so many calls in a row."""
    start = time.perf_counter()
    for _ in range(calls):
        action()
    return time.perf_counter() - start


def median_seconds(grid, action, rounds=7):
    """How long `action`, which all ranks run together, takes: the median over `rounds` of the slowest rank's time.

    Collective.
    """
    turns = in_turns(grid.comm, [timed(action)], TimeLimit(grid.comm), rounds + 1)
    return median(turns[1:, 0].tolist())  # the first turn, in which memory is touched for the first time, does not count
