"""What this machine can do at the most, measured now: the rate of arithmetic and the rate of memory.

The process measures with the BLAS threads that it has: one where OMP_NUM_THREADS=1 is set.
"""

import time

import numpy as np

from nn.blas import product

SIDE = 2048  # of the square matrices whose product is timed
COPIED = 1 << 29  # bytes of the array that is copied: with its copy, more than the caches of processors hold


def gemm_peak(seconds=0.5):
    """The rate of a large float32 matrix product by the BLAS library in use, in flop/s: the best of repeated timings.

    seconds: about how long to measure.
    """
    factor = np.full((SIDE, SIDE), 0.5, np.float32)
    result = np.empty_like(factor)
    return 2 * SIDE**3 / least_seconds(lambda: product(factor, factor, result), seconds)


def copy_bandwidth(seconds=0.5):
    """The rate of copying a large array in memory, in bytes/s, reads and writes counted: the best of repeated timings.

    seconds: about how long to measure.
    """
    source = np.ones(COPIED // 8)
    copy = np.empty_like(source)
    return 2 * COPIED / least_seconds(lambda: np.copyto(copy, source), seconds)


def least_seconds(action, seconds):
    """The seconds of the fastest call of a function without arguments, called again and again for about `seconds`.

    It is called at least three times, and once before, to warm up.
    """
    action()
    found, end = [], time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return min(found)
