"""A small network on any grid, trained, saved and resumed: what the tests of checkpoints share."""

import shutil
import tempfile
from contextlib import contextmanager
from math import prod

import numpy as np
from mpi4py import MPI

from gridgrad.nn import LOSSES, BatchNorm, Conv2d, Dropout, Flatten, Linear, Sequential, Tanh
from gridgrad.nn.device import to_host
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import Saver
from gridgrad.parallel.checkpoint.state import NetworkState, OptimizerState
from gridgrad.parallel.job.waiting import meet
from tests.parallel.equality import block, micro_batches_of

SHAPE = 6, 4, 2
GRIDS = [
    {"batch": 1}, {"batch": 3}, {"model": 2}, {"batch": 2, "height": 2}, {"model": 5}, {"stage": 3}, {"batch": 2, "model": 3},
    {"batch": 2, "height": 2, "model": 2},
]  # fmt: skip


def images():
    layers = [Conv2d(2, 5, 3, padding=1), BatchNorm(5), Tanh(), Dropout(0.2), Flatten(), Linear(120, 7), Tanh(), Linear(7, 3)]
    return Sequential(layers, seed=3, dtype=np.float64, input_shape=SHAPE)


def minibatches(number, shape=SHAPE, classes=3):
    """(x, y) of each minibatch, a list: of different sizes, on which not all ranks of a grid may have samples."""
    rng = np.random.default_rng(7)
    sizes = [7, 5, 8, 2, 6, 3][:number]
    return [(rng.standard_normal((n, *shape)), rng.integers(0, classes, n)) for n in sizes]


@contextmanager
def folder(comm):
    """A folder that all ranks see, while a `with` block runs. Collective."""
    path = comm.bcast(tempfile.mkdtemp(prefix="gridgrad-checkpoints-") if comm.rank == 0 else None)
    try:
        yield path
        meet(comm)
    finally:
        if comm.rank == 0:
            shutil.rmtree(path)


@contextmanager
def part_of(comm, sizes):
    """A ProcessGrid of the first ranks of `comm`; None on ranks that it has no place for, which leave the cores to them.

    Collective.
    """
    some = comm.Split(0 if comm.rank < prod(sizes.values()) else MPI.UNDEFINED)
    if some == MPI.COMM_NULL:
        yield None
    else:
        with ProcessGrid(some, **sizes) as grid:
            yield grid
        some.Free()
    meet(comm)


class Training:
    """The training of one network on this rank of a grid, which can be saved and resumed.

    serial: the network. optimizer: a function of a network. loss: its name. options: of `parallelize`. losses: of all steps of
    this object.
    """

    def __init__(self, grid, serial, optimizer, plan=None, micro_batches=1, loss="cross-entropy", **options):
        self.grid, self.micro_batches = grid, micro_batches
        if grid.sizes["stage"] > 1:
            options["micro_batches"] = micro_batches
        self.net, self.loss, self.losses = parallelize(serial, grid, plan, **options), LOSSES[loss](), []
        self.optimizer = optimizer(self.net)
        self.participants = {"network": NetworkState(self.net), "optimizer": OptimizerState(self.net, self.optimizer)}

    def train(self, batches):
        """A step on each minibatch from the number of the network's step on. Collective."""
        for x, y in batches[self.net.step :]:
            parts = micro_batches_of(len(x), self.micro_batches)
            mine = [(*block(self.net, x[part], y[part]), part.stop - part.start) for part in parts]
            self.losses.append(self.net.trainer(self.loss, self.optimizer).complete_step(mine, len(x)))
        return self

    def save(self, directory, **options):
        """Write a checkpoint and wait until it is whole. Collective."""
        saver = Saver(self.grid.comm, self.net, self.participants, directory, **options)
        saver.save(self.net.step)
        saver.close()
        assert saver.saved == saver.written == 1
        return self

    def resume(self, directory):
        """Take over the newest checkpoint. Collective."""
        newest(self.grid.comm, directory).restore(self.net, self.participants)
        return self

    def state(self):
        """{name: array} of the network, on all ranks."""
        return self.net.state_dict(everywhere=True)

    def bits(self):
        """All that this rank needs to go on."""
        arrays = [self.net.params, *(buffer.value for _, buffer in self.net.buffers), *self.optimizer.state_arrays().values()]
        return [to_host(array).copy() for array in arrays], self.optimizer.state_numbers()
