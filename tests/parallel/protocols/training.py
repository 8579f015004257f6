"""A tiny network and its data, trained with a protocol: what the tests of protocols share."""

from contextlib import contextmanager

import numpy as np
from mpi4py import MPI

from gridgrad.nn import LOSSES, SGD, BatchNorm, Linear, Sequential, Tanh
from gridgrad.nn.device import to_host
from gridgrad.parallel import ProcessGrid, distribute
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.simulated_workers import Simulation
from gridgrad.parallel.protocols.workers import divide
from tests.parallel.equality import micro_batches_of

LR, BATCH = 0.1, 8


def dense(norm=False):
    layers = [Linear(3, 5), *([BatchNorm(5)] if norm else []), Tanh(), Linear(5, 4)]
    return Sequential(layers, seed=1, dtype=np.float64, input_shape=(3,))


def samples(net, count):
    """(x, y): random ones for a network."""
    numbers = np.random.default_rng(count)
    return numbers.normal(size=(count, *net.input_shape)), numbers.integers(0, 4, count)


def train(net, workers, text, data, steps, lr=LR, momentum=0.0, batch_size=BATCH, seconds=None):
    """Train the network of one worker; returns (the Protocol, {step: parameters of this rank after it}).

    seconds: that a worker in virtual time computes in each turn.
    """
    protocol = protocol_names.parse(text)(net, workers, lambda updated: SGD(updated, lr, momentum))
    trainer, history = net.trainer(LOSSES["cross-entropy"](), protocol), {}
    x, y = data
    if protocol.shuffles or protocol.exchanges:
        protocol.hold(lambda indices: (x[indices], y[indices]), len(x), seed=0)
    for turn in protocol.turns(protocol.shares(len(x), batch_size, 0), steps):
        if seconds:
            workers.compute(seconds)
        parts = micro_batches_of(turn.samples, net.micro_batches)
        trainer.step([net.blocks(x[turn.indices[part]], y[turn.indices[part]]) for part in parts], turn.samples)
        history[turn.step] = to_host(net.params).copy()
    trainer.flush()
    protocol.finish()
    return protocol, history


def simulated(workers, build, text, data, steps, machine=None, **options):
    """The same for workers in virtual time: ([(Protocol, history) of each], [state_dict of each]). machine: of a Simulation."""
    with ProcessGrid(MPI.COMM_SELF) as alone:
        nets = [distribute(build(), alone) for _ in range(workers)]
        found = Simulation(workers, **machine or {}).run(lambda own: train(nets[own.rank], own, text, data, steps, **options))
        return found, [net.state_dict() for net in nets]


@contextmanager
def spread(comm, sizes, serial, **options):
    """(the network of this rank's worker, its Workers) on a grid. options: of `distribute`. Collective."""
    with ProcessGrid(comm, **sizes) as grid:
        own, workers = divide(grid)
        try:
            yield distribute(serial, own, **options), workers
        finally:
            own.free()
            workers.comm.Free()
