"""How fast a core is at the moment: whatever else runs on a machine, or on its host, slows it down for moments or minutes. A
time is *normalised to an unloaded core* when it is multiplied by the time that a small matrix product took on the unloaded
core, and divided by the time that it takes now. Times of different moments can then be compared."""

import os
import platform
import time
from pathlib import Path
from statistics import median

import numpy as np

SIDE, PROBES = 128, 10
START_ID = Path("/proc/sys/kernel/random/boot_id")  # of this start of the system: no two machines have the same
_A, _B, _C = (np.ones((SIDE, SIDE), np.float32) for _ in range(3))


def core_seconds(probes=PROBES):
    """Seconds of the reference product, of two 128 x 128 matrices that lie in the core's own cache: the median of `probes`."""
    found = []
    for _ in range(probes):
        start = time.perf_counter()
        np.matmul(_A, _B, out=_C)
        found.append(time.perf_counter() - start)
    return median(found)


class NormalisedTimer:
    """Times `with` blocks, normalised to an unloaded core where each rank of `comm` has a core of its own; else as measured."""

    def __init__(self, comm, unloaded=None):
        self.comm = comm
        self.crowd = max(1, max(on_machine(comm)) / (os.cpu_count() or 1))  # how many ranks share a core
        # Seconds of the reference product on this rank's unloaded core: `core.calm` of a machine file.
        self.unloaded = unloaded or min(core_seconds() for _ in range(100))

    def __enter__(self):
        self.before = core_seconds()
        self.start, self.had_core = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *exception):
        self.raw, had_core = time.perf_counter() - self.start, time.process_time() - self.had_core
        self.slowness = 1.0 if self.crowd > 1 else (self.before + core_seconds()) / 2 / self.unloaded
        self.seconds = self.raw / self.slowness  # of the last `with` block
        # What the block takes while all ranks compute, if it computes only. Where ranks share cores, an operation that is
        # shorter than a time slice of the system would else seem to have a core of its own, and other programs would count.
        self.computing = self.crowd * had_core if self.crowd > 1 else self.seconds


def on_machine(comm):
    """For each rank, how many ranks share its machine. Collective."""
    names = comm.allgather(machine())
    return [names.count(name) for name in names]


def machine():
    """An identifier of this machine. Emulated hosts on one machine share it."""
    try:
        return START_ID.read_text().strip() or platform.node()
    except (OSError, ValueError):
        return platform.node()
