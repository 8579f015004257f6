"""All ranks of a grid use the same table of kernels, so that they add in the same order, whatever their processors are."""

from math import inf

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.kernel_table import PRESET, kernels, store, stored, use
from gridgrad.nn.kernels.measure_table import BUDGET, QUICKLY, announce, measured
from gridgrad.parallel.grid.devices import ranks_on_cpus
from gridgrad.parallel.job.waiting import broadcast


def agree_on_kernels(comm, first):
    """Make all ranks of `comm` use the table of the rank `first`, the first one on a CPU: GPUs need none. Collective.

    If that rank has none, it is measured within `BUDGET` seconds.
    Raises ValueError, on all ranks, if its GRIDGRAD_KERNELS names no table.
    """
    table, problem = comm.bcast(_own_table() if comm.rank == first else None, first)
    if problem:
        raise ValueError(problem)
    if table is not None:
        use(table)
        return
    if comm.rank == first:
        announce()
    _measure(comm, first, BUDGET)


def calibrate_kernels(comm):
    """Measure the table of kernels anew and without a budget if it was measured quickly. Collective."""
    first = min(ranks_on_cpus(comm), default=0)
    agree_on_kernels(comm, first)
    if comm.bcast(kernels().name.startswith(QUICKLY), first):
        _measure(comm, first, inf)


def _measure(comm, first, budget):
    """Measure a table for all ranks, store it and use it. budget: the most seconds that it takes. Collective.

    All ranks on CPUs measure at the same time, because they share the memory's bandwidth when they compute, too; that of the
    rank `first` counts.
    """
    table = broadcast(comm, measured(budget) if xp.is_cpu else None, first, "the measurement of kernels")
    if comm.rank == first:
        store(table)
    use(table)


def _own_table():
    """(table, problem): this rank's table, None if it must be measured; what is wrong with GRIDGRAD_KERNELS, or None."""
    try:
        table = kernels()
    except ValueError as error:
        return None, str(error)
    return stored() if table == PRESET and xp.is_cpu else table, None
