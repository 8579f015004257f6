"""The Machine that this job runs on, which `gridgrad calibrate` measures in minutes, and else a probe in less than three
seconds. Either is stored as a machine file in the cache folder, one for each number of ranks and of ranks on a node, so that
the planner gives the same answer when a run is repeated. A calibration takes the place of a probe.

In a probe all measurements take turns until a budget of time is spent. Of each the fastest turn counts, because whatever
disturbs a measurement makes it longer. Computing is timed by the clock of one thread, which stands still while other programs
have its core. Matrices are taken to be multiplied on as many cores as the BLAS library of a rank has threads, but on no more
than the rank's share of them.
"""

import json
import os
import platform
import sys
import time

import numpy as np
from mpi4py import MPI
from threadpoolctl import threadpool_limits

from gridgrad.nn.files.documents import content_of
from gridgrad.nn.kernels.processor import blas
from gridgrad.nn.measured import answer_file, timed
from gridgrad.parallel.calibration import measure, timing
from gridgrad.parallel.calibration.timing import TimeLimit, on_machine
from gridgrad.parallel.grid.collectives import COLLECTIVES, all_reduce_elements, trial
from gridgrad.parallel.grid.process_grid import BATCH, ProcessGrid
from gridgrad.parallel.job.own_process import LINK
from gridgrad.parallel.prediction import machine

TABLES_SHARE = 0.8  # the share of a time limit within which the tables have to be complete
PROBE_SECONDS = 2.5  # the budget of a probe
SUMMED = 1, 1 << 20  # elements of a short and of a long all-reduce
CALLS = 8  # of the short one in a turn
AGREE = 0.25  # turns within this share of each other agree
CALM, DISTURBED = 0.5, 1.0  # the uncertainty of a probe whose turns agree, and of others
CROWDED = 3.0  # that where ranks share cores: how long they wait for each other differs most from one probe to the next


def machine_of_job(comm):
    """The Machine of these ranks, stored or probed now. Collective. ValueError if its file is damaged."""

    def probe():
        if comm.rank == 0:
            print(f"measuring this machine once, for {PROBE_SECONDS:g} seconds: products, memory, all-reduces; thoroughly, in "
                  f"minutes: mpiexec -n {comm.size} gridgrad calibrate", file=sys.stderr, flush=True)  # fmt: skip
        return json.dumps(measure_quickly(comm))

    path, without = machine_file(comm), "the next run measures again, and may choose another grid"
    text = timing.measured_once(comm, path, bytes.decode, probe, lambda text: without)
    try:
        return machine.checked(content_of(text))
    except ValueError:
        raise ValueError(f"{path} is not a machine file: delete it, and the machine will be measured again") from None


def machine_file(comm):
    """The path of the machine file for jobs like this one, which may not exist. Collective."""
    ranks = ranks_of_node(comm)
    threads = os.environ.get("OMP_NUM_THREADS")
    return answer_file(f"machine-{comm.size}-ranks-{ranks}-a-node", comm.size, ranks, threads, *timing.processors_and_links())


def ranks_of_node(comm):
    """The largest number of ranks on one node. Collective."""
    with ProcessGrid(comm, batch=comm.size) as grid:
        return comm.allreduce(grid.node.size, MPI.MAX)


def measure_quickly(comm):
    """The content of a machine file of constants alone, measured in `PROBE_SECONDS`. Collective."""
    trials = [timed(action, times, time.thread_time) for action, times in zip(measure.core_actions(), (1, 1, 1000))]
    limit, threads = TimeLimit(comm, PROBE_SECONDS), max(1, blas().threads)
    cores = (os.cpu_count() or 1) / max(on_machine(comm))  # of this rank
    with ProcessGrid(comm, batch=comm.size) as grid, threadpool_limits(1, "blas"):
        if comm.size > 1:
            trials += [timed(trial("all-reduce", grid.group(BATCH), n), CALLS // n or 1) for n in SUMMED]
        turns = timing.slowest_in_turns(comm, trials, limit)
    product, addition, call, *sums = turns.min(axis=0).tolist()
    part = min(1.0, cores)
    core = measure.core_of(product / min(threads, cores), addition / part, call / part)
    fastest = np.array([turns[half::2].min(axis=0, initial=np.inf) for half in (0, 1)])  # of every second turn, of the others
    agree = fastest.max(axis=0) <= (1 + AGREE) * fastest.min(axis=0)
    core |= {"crowd": max(1.0, 1 / cores), "uncertainty": CROWDED if cores < 1 else CALM if agree.all() else DISTURBED}
    curve = [[4 * all_reduce_elements(n, comm.size, 0), seconds] for n, seconds in zip(SUMMED, sums)]
    return content(comm, core, curve, "measured quickly")


def measure_thoroughly(comm, progress=iter, limit=None):
    """The content of a machine file with tables, measured in minutes or until a TimeLimit. Collective."""
    timer, limit = timing.NormalisedTimer(comm), limit or TimeLimit(comm)
    tables, (done, sizes) = measure.tables(timer, progress, limit.share(TABLES_SHARE))
    curves = measure.collectives(timer, progress, limit)
    constants = measure.core_of(*(measure.seconds(timer, action) for action in measure.core_actions()))
    core = constants | {"calm": timer.unloaded, "crowd": timer.crowd}
    found = content(comm, core, curves["all-reduce"][str(comm.size)] if curves else [], "measured", tables, curves)
    if done < sizes:
        found["source"] += f"; only {done} of {sizes} sizes of operations were measured: predictions may be far off"
    return found


def content(comm, core, curve, how, tables=None, curves=None):
    """The content of a machine file. Collective. curve: of the all-reduce, for both links; of one rank empty: then a message is
    a copy in memory. curves: the entry "collectives"."""
    link = {"alpha": core["call"], "beta": 2 / core["bandwidth"]}
    if curve:
        (_, least), (sent, most) = curve[0], curve[-1]
        link = {"alpha": least / COLLECTIVES["all-reduce"].rounds(comm.size), "beta": max(most - least, 1e-9) / sent}
    ranks = ranks_of_node(comm)
    memory = memory_of_machine() * ranks / max(on_machine(comm))
    return {
        "name": f"{comm.size} rank{'s' * (comm.size > 1)}, {ranks} a node, {os.environ.get(LINK, platform.machine())}",
        "source": f"{how} on {comm.size} ranks; {' '.join(map(str, MPI.get_vendor()))}",
        "core": core,
        "node": {"ranks": ranks, "bandwidth": core["bandwidth"] * ranks, "memory": memory},
        "links": {"node": link, "network": link},
        "tables": tables or {},
        "collectives": curves or {},
    }


def memory_of_rank(comm):
    """This rank's part of the bytes of memory of its machine. Collective."""
    return memory_of_machine() / on_machine(comm)[comm.rank]


def memory_of_machine():
    """The bytes of memory of this rank's machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
