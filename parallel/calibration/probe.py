"""A quick probe of a machine: the constants of a machine file, in seconds, for where nobody has calibrated it. All measurements
take turns until a budget of time is spent. Of each the fastest turn counts, because whatever disturbs a measurement makes it
longer. How far the fastest of every second turn is from the fastest of the others is the uncertainty. Computing is timed by the
clock of one thread, which stands still while other programs have its core. Matrices are taken to be multiplied on as many cores
as the BLAS library of a rank has threads, but on no more than the rank's share of them."""

import os
import time

import numpy as np
from threadpoolctl import threadpool_limits

from gridgrad.nn.kernels.processor import blas
from gridgrad.parallel.calibration.core_speed import on_machine
from gridgrad.parallel.calibration.turns import in_turns, timed
from gridgrad.parallel.grid.collectives import COLLECTIVES, all_reduce_elements
from gridgrad.parallel.grid.process_grid import BATCH, ProcessGrid

SECONDS = 2.5  # the budget of a probe
PRODUCT = 512  # the side of the matrices that are multiplied
NUMBERS = 1 << 23  # in each of the arrays that are added: more than a cache holds
SUMMED = 1, 1 << 20  # elements of a short and of a long all-reduce
CALLS = 8  # of the short one in a turn
AGREE = 0.25  # turns within this share of each other agree
CALM, DISTURBED = 0.5, 1.0  # the uncertainty of a probe whose turns agree, and of others
CROWDED = 3.0  # that where ranks share cores: how long they wait for each other differs most from one probe to the next


def probed(comm, limit):
    """The entry `core` of a machine file, and the curve of the all-reduce for its links. Collective. limit: a TimeLimit."""
    a, b, c = (np.ones((PRODUCT, PRODUCT), np.float32) for _ in range(3))
    x, y, one, two = (np.ones(n, np.float32) for n in (NUMBERS, NUMBERS, 1, 1))
    trials = [
        timed(lambda: np.matmul(a, b, out=c), clock=time.thread_time),
        timed(lambda: np.add(x, y, out=y), clock=time.thread_time),
        timed(lambda: np.add(one, one, out=two), 1000, time.thread_time),
    ]
    cores, threads = (os.cpu_count() or 1) / max(on_machine(comm)), max(1, blas().threads)
    with ProcessGrid(comm, batch=comm.size) as grid, threadpool_limits(1, "blas"):
        if comm.size > 1:
            trials += [timed(COLLECTIVES["all-reduce"].trial(grid.group(BATCH), n), CALLS // n or 1) for n in SUMMED]
        turns = in_turns(comm, trials, limit)
    product, addition, call, *sums = turns.min(axis=0).tolist()
    core = {
        "flops": 2 * PRODUCT**3 / product * min(threads, cores),
        "bandwidth": 3 * x.nbytes / addition * min(1.0, cores),
        "call": call / min(1.0, cores),
        "crowd": max(1.0, 1 / cores),
        "uncertainty": CROWDED if cores < 1 else uncertainty(turns),
    }
    return core, [[4 * all_reduce_elements(n, comm.size, 0), s] for n, s in zip(SUMMED, sums)]


def uncertainty(turns):
    """How uncertain the fastest of the turns are, relative: CALM or DISTURBED. turns: see `in_turns`."""
    if len(turns) == 1:
        return DISTURBED
    one, other = turns[::2].min(axis=0), turns[1::2].min(axis=0)
    apart = (np.maximum(one, other) / np.minimum(one, other)).max() - 1
    return CALM if apart <= AGREE else DISTURBED
