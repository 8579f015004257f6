"""Training with an update protocol in virtual time: see `parallel/protocols/simulated_workers.py`."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from gridgrad.nn.sequential import Sequential
from gridgrad.parallel.grid.process_grid import ProcessGrid
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.protocols.parallel_sgd import Exchanged, shuffle
from gridgrad.parallel.protocols.simulated_workers import SimulatedGroup
from gridgrad.parallel.training.distribute import distribute


class Trained(NamedTuple):
    """A turn that has ended. seconds: when. worker: whose. step: the global minibatch. loss: the mean over the samples."""

    seconds: float
    worker: int
    step: int
    samples: int
    loss: float


@dataclass(frozen=True)
class Training:
    """history: all Trained turns, in the order of their ends. protocols, states: of each worker the Protocol and the state_dict
    of its network at the end. seconds: the virtual time at the end.
    """

    history: list
    protocols: list
    states: list
    seconds: float

    @property
    def staleness(self):
        """A Counter of all gradients by their staleness, see Protocol."""
        return sum((protocol.staleness for protocol in self.protocols), Counter())


@dataclass(frozen=True)
class Task:
    """What is trained, whatever the protocol: a copy of `serial` on each worker. x, y: the training data. batch_size, steps: of
    global minibatches. seed: of the order of samples.
    """

    serial: Sequential
    make_optimizer: Callable
    loss: Any
    x: np.ndarray
    y: np.ndarray
    batch_size: int
    steps: int
    seed: int = 0


def train(simulation, task, make_protocol, seconds, watch=None, every=1):
    """The Training of a Task in a Simulation. make_protocol: as `parse_protocol` returns. seconds: function of the samples in a
    minibatch. watch: called as watch(seconds, samples, nets), in no virtual time, every `every` samples or somewhat more.
    """
    history, nets, x, y, trained = [], [None] * simulation.size, task.x, task.y, 0

    def note(turn, workers, loss):
        nonlocal trained
        history.append(Trained(workers.now(), workers.rank, turn.step, turn.samples, loss))
        before, trained = trained, trained + turn.samples
        if watch is not None and trained // every > before // every:
            watch(workers.now(), trained, nets)

    def work(workers):
        net = nets[workers.rank]
        protocol = make_protocol(net, workers, task.make_optimizer)
        trainer = net.trainer(task.loss, protocol)
        if protocol.shuffles or protocol.exchanges:
            protocol.hold(held(protocol, SimulatedGroup(workers), x, y, task.seed))
        for turn in protocol.turns(protocol.shares(len(x), task.batch_size, task.seed), task.steps):
            workers.compute(seconds(turn.samples))
            (loss,) = trainer.step([net.blocks(x[turn.indices], y[turn.indices])], turn.samples)
            note(turn, workers, loss)
        protocol.finish()
        return protocol, net.state_dict()

    with ProcessGrid(MPI.COMM_SELF) as alone:  # all networks use it, since nobody communicates on a grid of one rank
        nets[:] = (distribute(task.serial, alone) for _ in nets)
        protocols, states = zip(*simulation.run(work))
    return Training(history, list(protocols), list(states), simulation.time)


def held(protocol, group, x, y, seed):
    """What `ParallelSGD.hold` takes. Samples move although all workers have x and y. Collective over the Group of workers."""
    stripe = np.arange(len(x))[Partition.even(len(x), group.size).part(group.rank)]
    samples = x[stripe], y[stripe], stripe
    if protocol.shuffles:
        samples = shuffle(group, *samples, seed)
    return Exchanged(group, samples, seed) if protocol.exchanges else samples[-1]
