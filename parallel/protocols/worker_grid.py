"""From a process grid to the workers along its axis `batch`."""

from mpi4py import MPI

from gridgrad.parallel.grid.process_grid import BATCH, LAYER_AXES, STAGE, ProcessGrid
from gridgrad.parallel.protocols.workers import Workers

INSIDE = (STAGE, *(axis for axis in LAYER_AXES if axis != BATCH))  # the axes over which a worker is spread


def divide(grid: ProcessGrid) -> tuple[ProcessGrid, Workers]:
    """The workers of an update protocol: each coordinate along the axis `batch` of a grid is one. Collective.

    What ranks send each other within a worker and between workers is counted in the tally of `grid`.

    Parameters
    ----------
    grid : ProcessGrid
        The grid of all ranks.

    Returns
    -------
    The grid of this rank's worker, which has the other axes, and its Workers: how it reaches the ranks of other workers.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from gridgrad.parallel import ProcessGrid, divide
    >>> with ProcessGrid(MPI.COMM_WORLD, batch=MPI.COMM_WORLD.size) as grid:
    ...     own, workers = divide(grid)
    ...     print(own.size, workers.size == grid.size, workers.rank == grid.rank)
    ...     workers.comm.Free()
    ...     own.free()
    1 True True
    """
    own = ProcessGrid(grid.group(*INSIDE).comm, **{axis: grid.sizes[axis] for axis in INSIDE})
    own.count_in(grid.tally)
    comm = grid.comm.Split(own.rank, grid.coordinates[BATCH])  # no Cartesian communicator: see Workers
    return own, Workers(comm, own.comm, grid.tally)


def one_worker(grid):
    """(the grid, Workers without others): all ranks of the grid are one worker."""
    return grid, Workers(MPI.COMM_SELF, grid.comm, grid.tally)
