"""A training that is saved and resumed in any other way to run it goes on as if nothing had been."""

from dataclasses import replace

from gridgrad.parallel.checkpoint.restore import newest
from gridgrad.parallel.checkpoint.saver import Saver
from gridgrad.parallel.checkpoint.state import NetworkState, OptimizerState
from tests.parallel.checkpoint.training import folder
from tests.parallel.equality import on_cpus, on_first
from tests.parallel.pipelines import parts_of
from tests.random_networks import feeding
from tests.random_networks.case import random_case
from tests.random_networks.checks import agree, grid_of, placed, serial

SAVED = 1  # the step behind which the training is saved
# Of both ways to train:
ALIKE = "layers", "shape", "optimizer", "lr", "loss", "smoothing", "batch_sizes", "samples", "dtype", "start", "seed"


def resumes_elsewhere(case, comm):
    """Save on the grid of a Case; resume on that of another one; the end is that of uninterrupted serial training."""
    case = replace(case, micro_batches=1)
    expected = on_first(comm, serial, case)
    found, _ = resumed(case, comm)
    agree(found, expected, case, comm)


def resumed(case, comm):
    """(what `parallel` returns of the resumed training, the records of its grid's tally). case: without micro-batches."""
    other = random_case(case.seed, comm.size)
    other = replace(other, micro_batches=1, **{name: getattr(case, name) for name in ALIKE})
    if not on_cpus(comm):
        other = other.on_devices()
    if other.pipeline and other.plan == "hypergraph" and not case.has_chain:
        other = replace(other, pipeline=None)
    if "clip_norm" in case.optimizer[1] and (other.pipeline or "").startswith("async"):
        other = replace(other, pipeline="gpipe")
    with folder(comm) as directory:
        with grid_of(case, comm) as grid:
            training = Training(case, grid)
            training.train(0, SAVED)
            training.save(directory)
        with grid_of(other, comm) as grid:
            training = Training(other, grid)
            newest(comm, directory).restore(training.net, training.participants)
            losses = training.train(SAVED, len(case.batch_sizes))
            found = losses, training.net.state_dict(everywhere=True), feeding.outputs(case, training.net)
            return found, grid.tally.records


class Training:
    """The training of a Case on this rank of a grid."""

    def __init__(self, case, grid):
        self.case, self.grid, self.net = case, grid, placed(case, grid)
        self.optimizer = case.make_optimizer(self.net)
        self.participants = {"network": NetworkState(self.net), "optimizer": OptimizerState(self.net, self.optimizer)}

    def train(self, start, stop):
        """The losses of the steps from `start` to `stop`. Collective."""
        trainer, losses = self.net.trainer(self.case.make_loss(), self.optimizer), []
        for x, y in self.case.batches()[start:stop]:
            losses += trainer.step(parts_of(self.net, x, y, self.case.micro_batches), len(x))
        return losses + trainer.flush()

    def save(self, directory):
        """Write a checkpoint and wait until it is whole. Collective."""
        saver = Saver(self.grid.comm, self.net, self.participants, directory)
        saver.save(self.net.step)
        saver.close()
