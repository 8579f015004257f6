"""What a rank sends and computes for an update protocol, counted in a job that computes nothing else."""

from collections import Counter

import numpy as np

from gridgrad.nn import SGD
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.process_grid import ProcessGrid
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.workers import divide, one_worker
from gridgrad.parallel.sync.reduction import BlockingReduction
from gridgrad.parallel.training.distribute import distribute


class CountedArray(np.ndarray):
    """An array that counts the operations of NumPy's functions on it, and on all that is made of it: one for each result.

    operations: so many since `take`, of all arrays in this process.
    """

    operations = 0
    __array_priority__ = 1.0  # above that of other arrays: so an array that is made of both kinds is counted

    def __array_ufunc__(self, function, method, *inputs, out=(), **options):
        plain = {"out": tuple(map(np.asarray, out))} if out else {}
        inputs = [np.asarray(array) if isinstance(array, CountedArray) else array for array in inputs]
        found = getattr(function, method)(*inputs, **plain, **options)
        CountedArray.operations += np.size(found)
        return out[0] if out else np.asarray(found).view(CountedArray)

    @classmethod
    def take(cls):
        """The operations so far; the count begins again."""
        taken, cls.operations = cls.operations, 0
        return taken


class CountedReduction(BlockingReduction):
    """Lets the parameters and gradients of a network be CountedArrays."""

    def memory(self, size, dtype):
        return tuple(array.view(CountedArray) for array in super().memory(size, dtype))


class CountedSGD(SGD):
    """Counts its own operations, those on its state too."""

    def update(self, p, g, state, constants):
        p, g, *state = (array.view(CountedArray) for array in (p, g, *state))
        super().update(p, g, state, constants)


def counted(comm, serial, text, samples, batch_size, steps):
    """Take training steps with gradients of zeros. Returns what this rank did, a Counter. Collective.

    comm: all ranks; each is a worker. serial: the network. text: names the protocol. samples: in the training data. batch_size:
    of the global minibatch.
    The workers meet after each turn, as if all computed equally fast, so that those that draw their shares take equally many.

    bytes: sent. messages: sent, where a collective counts as those that follow one another in it. operations: additions and
    multiplications on parameters and gradients; a rank that sums its even part of an all-reduce adds half of what it sends.
    """
    with ProcessGrid(comm, batch=comm.size) as grid:
        own, workers = (one_worker if text == protocol_names.SYNC else divide)(grid)
        net = distribute(serial, own, reduction=CountedReduction)
        protocol = protocol_names.parse(text)(net, workers, lambda updated: CountedSGD(updated, lr=0.1, momentum=0.9))
        CountedArray.take()  # those before the training
        for _ in protocol.turns(protocol.shares(samples, batch_size, seed=0), steps):
            net.grads.fill(0)
            net.reduction.finish()
            protocol.step()
            workers.wait_until(comm.Ibarrier().Test)
        protocol.finish()
        if workers.size > 1:
            own.free()
            workers.comm.Free()
        return sent(grid) + Counter(operations=CountedArray.take() + sums(grid, net.dtype.itemsize))


def sent(grid):
    """The bytes and messages of this rank by the tally of a grid, a Counter."""
    found = Counter()
    for (_, kind), record in grid.tally.records.items():
        rounds = COLLECTIVES[kind].rounds(grid.size) if kind in COLLECTIVES and kind != "exchange" else 0
        found += Counter(bytes=record.bytes, messages=record.messages or record.calls * rounds)
    return found


def sums(grid, itemsize):
    """How many additions all all-reduces have taken on this rank."""
    return sum(record.bytes for (_, kind), record in grid.tally.records.items() if kind == "all-reduce") / itemsize / 2
