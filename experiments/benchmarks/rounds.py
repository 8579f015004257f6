"""What the comparisons of `bench` share: how long each may take, and rounds that count.

In a round all sides take their turn. A round in which others computed on the machine (`experiments/common/machine_load.py`)
does not count and is made again. Where no round is without others, all of them are told and marked, and nothing is judged.
"""

import math
import time
from functools import partial

import numpy as np

from gridgrad.experiments.common.machine_load import Watch, load_of_process
from gridgrad.nn.measured import in_turns
from gridgrad.parallel.job.run import UserError

CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
AGAIN = 2  # rounds that are made at most, over those that are asked for, where others compute


class OutOfTime(UserError):
    """A job was ended because the time of its comparison was over."""


def in_minutes(minutes):
    """The moment, of `time.monotonic`, that is so many minutes away."""
    return time.monotonic() + 60 * minutes


def shares(end, weights):
    """For each comparison, when it begins, the moment by which it should end: a part of the time left by its weight."""
    for number_, weight in enumerate(weights):
        now = time.monotonic()
        yield now + weight / sum(weights[number_:]) * max(0.0, end - now)


def quiet_rounds(sides, wanted, most, end=math.inf, calm=len):
    """([what the sides return in a round, an array], marks) until `wanted` rounds count, at most `most` and at least one. None
    begins that would end after the moment `end`, or once a job is OutOfTime. calm: says how many of these rounds count."""
    found, quiet = [], []
    for _ in range(most):
        start, watch = time.monotonic(), Watch()
        try:
            turn = in_turns(sides, 1)[0]
        except OutOfTime:
            break
        load = load_of_process(watch.seen())
        found.append((turn, load and load.verdict))
        quiet = [turn for turn, busy in found if not busy]
        if quiet and calm(quiet) >= wanted or 2 * time.monotonic() - start > end:
            break
    if quiet or not found:
        return quiet, {"left_out": len(found) - len(quiet), "busy": None}
    return [turn for turn, _ in found], {"left_out": 0, "busy": found[-1][1]}


def ratios(sides, rounds, seconds, end=math.inf):
    """{"cpu", "wall": our time over theirs, round by round} and marks. sides: (ours, theirs, ..), which do a step each. Of each
    side the median of some steps counts, about `seconds` of them, and the fastest of theirs."""
    trials = [partial(step_seconds, step, max(1, round(seconds / step_seconds(step, 1)[1]))) for step in sides]
    found, marks = quiet_rounds(trials, rounds, AGAIN * rounds, end)
    return {clock: [float(turn[0, i] / turn[1:, i].min()) for turn in found] for i, clock in enumerate(CLOCKS)} | marks


def step_seconds(step, steps):
    """The medians of so many steps in seconds, by each of CLOCKS."""
    return np.median([clocked(step) for _ in range(steps)], axis=0)


def clocked(step):
    """The seconds of a step that the processor worked for this process, and that passed."""
    starts = [read() for read in CLOCKS.values()]
    step()
    return [read() - start for read, start in zip(CLOCKS.values(), starts)]
