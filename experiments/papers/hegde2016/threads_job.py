"""A process of `study threads` that times products of samples with matrices whenever it is told to.

It takes lines of JSON and answers each with one: {"rows": n, "columns": m, "samples": b, "way": .., "seconds": s} with the
seconds of a product of b samples of n numbers with a matrix of n x m, the mean of those that end within s seconds. The first
line that it prints says what it is.
"""

import json
import os
import sys
import time
from functools import cache

import numpy as np

from gridgrad.experiments.common import report
from gridgrad.experiments.papers.hegde2016.threads import LAYER
from gridgrad.experiments.papers.hegde2016.times import pass_of
from gridgrad.nn import Linear, Sequential
from gridgrad.parallel.job.run import run_launcher

WARM_UP = 0.2  # the share of the time before what counts, in which the matrix comes into the caches that it fits


@cache
def layer_of(rows, columns):
    """A fully connected layer with its parameters."""
    layer = Linear(rows, columns)
    Sequential([layer], input_shape=(rows,)).allocate()
    return layer


@cache
def action_of(rows, columns, samples, way):
    """A function that computes a product once."""
    layer = layer_of(rows, columns)
    if way == LAYER:
        return pass_of(layer, (rows,), samples)
    x, weight = np.ones((samples, rows), np.float32), layer.weight.value
    out = x @ weight
    return lambda: np.matmul(x, weight, out=out)


def mean_seconds(action, seconds):
    """The mean time of the calls that end within so many seconds, after others that warm up."""
    start = time.perf_counter()
    while time.perf_counter() < start + WARM_UP * seconds:
        action()
    calls, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds or not calls:
        action()
        calls += 1
    return (time.perf_counter() - start) / calls


def main():
    print(json.dumps({"versions": report.versions(), "cores": sorted(os.sched_getaffinity(0))}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        seconds = asked.pop("seconds")
        action = action_of(**asked)
        print(json.dumps(mean_seconds(action, seconds) if seconds else 0.0), flush=True)


if __name__ == "__main__":
    run_launcher(main)
