"""What this machine can do at the most, measured now: the rate of arithmetic, and the rates of memory and of its caches.

The process measures with the BLAS threads that it has: one where OMP_NUM_THREADS=1 is set.
"""

import time
from itertools import count
from pathlib import Path

import numpy as np

from gridgrad.nn.measured import in_turns, timed

SIDE = 2048  # of the square matrices whose product is timed
COPIED = 1 << 29  # bytes of the array that is copied: with its copy, more than the caches of processors hold
READ = 1 << 22  # bytes that a call reads at least, so that the time of the call itself does not count
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")  # where Linux describes the caches of the first core


def gemm_peak(seconds=0.5):
    """The rate of a large float32 matrix product by the BLAS library in use, in flop/s: the best in about so many seconds."""
    factor = np.full((SIDE, SIDE), 0.5, np.float32)
    result = np.empty_like(factor)
    return 2 * SIDE**3 / least_seconds(lambda: np.matmul(factor, factor, out=result), seconds)


def copy_bandwidth(seconds=0.5, size=None):
    """The rate of copying an array, in bytes/s, reads and writes counted, but not what a processor reads of the copy before it
    writes there: the best of repeated timings. size: the bytes of the array and its copy together, by default more than the
    caches hold."""
    source = np.ones((size or 2 * COPIED) // 16)
    copy = np.empty_like(source)
    return 2 * source.nbytes / least_seconds(lambda: np.copyto(copy, source), seconds)


def read_bandwidth(size, seconds=0.5):
    """The rate of reading two vectors again and again, in bytes/s, in dot products: the best of repeated timings. Nothing large
    is written. size: the bytes of both vectors together."""
    vector = np.ones(size // 8, np.float32)
    times = -(-READ // (2 * vector.nbytes))
    left, right = np.broadcast_to(vector, (times, 1, len(vector))), np.ones((len(vector), 1), np.float32)
    results = np.empty((times, 1, 1), np.float32)
    return times * 2 * vector.nbytes / least_seconds(lambda: np.matmul(left, right, out=results), seconds)


def caches(folder=CACHES):
    """The sizes in bytes of the caches of a core that hold data, the nearest first; none where the system does not say."""
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if kind in ("Data", "Unified"):
                found[int(level)] = int(size.removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
    return [found[level] for level in sorted(found)]


def least_seconds(action, seconds):
    """The seconds of the fastest call of a function, called for about `seconds`, at least three times, after a first one."""
    action()
    end, calls = time.perf_counter() + seconds, count(1)
    return in_turns([timed(action)], is_over=lambda: next(calls) >= 3 and time.perf_counter() >= end).min()
