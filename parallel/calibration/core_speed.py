"""How fast a core is at the moment: whatever else runs on a machine, or on its host, slows it down for moments or minutes.

A time is *normalised to an unloaded core* when it is multiplied by the time that a small matrix product took on the unloaded
core, and divided by the time that it takes now. Times of different moments can then be compared.
"""

import os
import platform
import time
from pathlib import Path
from statistics import median

import numpy as np

SIDE, PROBES = 128, 10
_A, _B, _C = (np.ones((SIDE, SIDE), np.float32) for _ in range(3))


def pace(probes=PROBES):
    """Seconds of a product of two matrices of 128 x 128 that lie in the core's own cache: the median of some."""
    found = []
    for _ in range(probes):
        start = time.perf_counter()
        np.matmul(_A, _B, out=_C)
        found.append(time.perf_counter() - start)
    return median(found)


class Paced:
    """Normalises times to an unloaded core where each rank has a core of its own; else it leaves them as they are.

    comm: of all ranks. calm: seconds of the product while this rank's core was unloaded; by default the fastest of a hundred.
    seconds, raw: the time of the last `with` block, normalised and as measured. slowness: their ratio.
    """

    def __init__(self, comm, calm=None):
        self.comm = comm
        self.crowded = max(on_machine(comm)) > (os.cpu_count() or 1)
        self.calm = calm or min(pace() for _ in range(100))

    def __enter__(self):
        self.before = pace()
        self.start = time.perf_counter()
        return self

    def __exit__(self, *exception):
        self.raw = time.perf_counter() - self.start
        self.slowness = 1.0 if self.crowded else (self.before + pace()) / 2 / self.calm
        self.seconds = self.raw / self.slowness


def on_machine(comm):
    """For each rank, how many ranks share its machine. Collective."""
    names = comm.allgather(machine())
    return [names.count(name) for name in names]


def machine():
    """What tells this machine from others; the hosts that one machine plays have it in common."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()
