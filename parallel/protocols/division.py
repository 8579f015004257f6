"""From a process grid to the workers along its axis `batch`."""

from mpi4py import MPI

from gridgrad.parallel.grid.process_grid import LAYER_AXES, STAGE, ProcessGrid
from gridgrad.parallel.protocols.workers import Workers

INSIDE = (STAGE, *(axis for axis in LAYER_AXES if axis != "batch"))  # the axes over which a worker is spread


def divide(grid):
    """(the ProcessGrid of this rank's worker, its Workers): each coordinate along `batch` is a worker. Collective.

    What ranks send each other within a worker and between workers is counted in the tally of `grid`.
    """
    own = ProcessGrid(grid.group(*INSIDE).comm, **{axis: grid.sizes[axis] for axis in INSIDE})
    own.tally = grid.tally
    comm = grid.comm.Split(own.rank, grid.coordinates["batch"])  # no Cartesian communicator: see Workers
    return own, Workers(comm, own.comm, grid.tally)


def one_worker(grid):
    """(the grid, Workers without others): all ranks of the grid are one worker."""
    return grid, Workers(MPI.COMM_SELF, grid.comm, grid.tally)
