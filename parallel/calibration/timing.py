"""Measuring what all ranks of a job do together: in turns until a time limit, once, and normalised to an unloaded core.

Whatever else runs on a machine, or on its host, slows it down for moments or minutes. A time is *normalised to an unloaded
core* when it is multiplied by the time that a small matrix product took on the unloaded core, and divided by the time that it
takes now. Times of different moments can then be compared.
"""

import math
import os
import platform
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from gridgrad.nn.kernels.processor import processor
from gridgrad.nn.measured import in_turns, store, stored, timed

TRANSPORT = "GRIDGRAD_LINK", "FI_", "UCX_", "OMPI_MCA_", "MPIR_CVAR_"  # how the names of such environment variables begin
SIDE, PROBES = 128, 10
START_ID = Path("/proc/sys/kernel/random/boot_id")  # of this start of the system: no two machines have the same
_A, _B, _C = (np.ones((SIDE, SIDE), np.float32) for _ in range(3))


class TimeLimit:
    """It ends `seconds` from now. Only the clock of rank 0 counts, so all ranks get the same answer."""

    def __init__(self, comm, seconds=math.inf):
        self.comm, self.end = comm, time.monotonic() + seconds

    def is_over(self):
        """Whether the time is over. Collective."""
        return self.comm.bcast(time.monotonic() > self.end)

    def share(self, part):
        """A TimeLimit for a part of the time that is left. part: a number between 0 and 1."""
        return TimeLimit(self.comm, part * max(0.0, self.end - time.monotonic()))


def slowest_in_turns(comm, trials, limit=None, most=None):
    """What trials return on the rank where it is the most, (turns, trials), until a TimeLimit or `most` turns. Collective."""
    turns = in_turns(trials, most, limit.is_over if limit else lambda: False, comm.Barrier)
    comm.Allreduce(MPI.IN_PLACE, turns, MPI.MAX)
    return turns


def times_in_turns(actions, rounds, least=0.01):
    """{name: [seconds of a call, in each round]} of functions without arguments, {name: function}, which warm up before.
    A timing is of as many calls in a row as take about `least` seconds."""
    trials = []
    for action in actions.values():
        action()
        trials.append(timed(action, max(1, math.ceil(least / timed(action)()))))
    return dict(zip(actions, in_turns(trials, rounds).T.tolist(), strict=True))


def measured_once(comm, path, read, measure, without):
    """The answer that is stored at `path`, or the text that `measure()` returns now, which is stored. Collective, but only the
    first rank reads and writes. read: as for `stored`. without(answer): what the user gets where it can not be stored."""
    text = comm.bcast(stored(path, read) if comm.rank == 0 else None)
    if text is None:
        text = comm.bcast(measure())
        if comm.rank == 0:
            store(path, text, without(text))
    return text


def processors_and_links():
    """What a measurement of a job depends on, whatever its grid: the processor, the MPI library, and the environment variables
    that choose or describe the network between nodes."""
    links = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(TRANSPORT))
    return processor().title, os.cpu_count(), *MPI.get_vendor(), *links


def core_seconds(probes=PROBES):
    """Seconds of the reference product, of two 128 x 128 matrices that lie in the core's own cache: the median of `probes`."""
    return float(np.median(in_turns([timed(lambda: np.matmul(_A, _B, out=_C))], probes)))


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
