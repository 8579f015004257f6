"""A small network on any grid, trained, saved and resumed: what the tests of checkpoints share."""

import shutil
import tempfile
from contextlib import contextmanager

import numpy as np

from gridgrad.nn import LOSSES, BatchNorm, Conv2d, Dropout, Flatten, Linear, Sequential, Tanh
from gridgrad.nn.device import to_host
from gridgrad.parallel import parallelize
from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import Saver
from gridgrad.parallel.checkpoint.state import OptimizerState, states_of
from gridgrad.parallel.job.waiting import meet
from tests.parallel.equality import block

SHAPE = 6, 4, 2


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


class Training:
    """The training of one network on this rank of a grid, which can be saved and resumed.

    serial: the network. optimizer: a function of a network. options: of `parallelize`. losses: of all steps of this object.
    """

    def __init__(self, grid, serial, optimizer, **options):
        self.grid, self.net, self.losses = grid, parallelize(serial, grid, **options), []
        self.optimizer, self.loss = optimizer(self.net), LOSSES["cross-entropy"]()
        self.participants = states_of(self.net) | {"optimizer": OptimizerState(self.net, self.optimizer)}

    def train(self, batches):
        """A step on each minibatch from the number of the network's step on. Collective."""
        for x, y in batches[self.net.step :]:
            trainer = self.net.trainer(self.loss, self.optimizer)
            self.losses.append(trainer.complete_step([(*block(self.net, x, y), len(x))], len(x)))
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

    def bits(self):
        """All that this rank needs to go on, a list of lists of numbers."""
        arrays = [self.net.params, *(buffer.value for _, buffer in self.net.buffers), *self.optimizer.state_arrays().values()]
        return [to_host(array).tolist() for array in arrays], self.optimizer.state_numbers()
