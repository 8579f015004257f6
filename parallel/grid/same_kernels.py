"""All ranks of a grid use the same table of kernels, so that they add in the same order, whatever their processors are."""

from nn.device import is_cpu
from nn.kernels import PRESET, kernels, store, stored, use
from nn.measure_kernels import announce, measured


def agree_on_kernels(comm):
    """Make all ranks of `comm` use the table of rank 0. Collective.

    If rank 0 has none, all ranks measure at the same time, because they share the memory's bandwidth when they compute, too.
    Raises ValueError, on all ranks, if rank 0's GRIDGRAD_KERNELS names no table.
    """
    table, problem = comm.bcast(_of_this_rank() if comm.rank == 0 else None)
    if problem:
        raise ValueError(problem)
    if table is None:
        if comm.rank == 0:
            announce()
        table = comm.bcast(measured())
        if comm.rank == 0:
            store(table)
    use(table)


def _of_this_rank():
    """(table, problem): this rank's table, None if it must be measured; what is wrong with GRIDGRAD_KERNELS, or None."""
    try:
        table = kernels()
    except ValueError as error:
        return None, str(error)
    return (stored() if table == PRESET and is_cpu() else table), None
