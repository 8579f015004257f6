"""What the algorithms of section 5 of Hegde and Usmani 2016 send and compute, counted in jobs that compute nothing else.

    mpiexec -n 2 python -m gridgrad.experiments.papers.hegde2016_count --samples 60000

Prints what was counted in an epoch of made-up samples, sorted by label, as one line of JSON: a row for each algorithm.
"""

import json
from collections import Counter
from functools import partial
from math import prod

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common.options import Parser, whole
from gridgrad.experiments.papers.hegde2016_costs import BATCH, CLASSES, EXCHANGE, IMAGE, NET, SHUFFLE, algorithms
from gridgrad.nn import SGD
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.process_grid import ProcessGrid
from gridgrad.parallel.job.run import run
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.parallel_sgd import exchange_halves, shuffle
from gridgrad.parallel.protocols.workers import divide, one_worker
from gridgrad.parallel.sync.reduction import BlockingReduction
from gridgrad.parallel.training.distribute import distribute


class CountedArray(np.ndarray):
    """An array that counts the operations of NumPy's functions on it, and on all that is made of it: one for each result.
    operations: so many since `take`, of all arrays in this process."""

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


def moved(comm, samples, move):
    """The bytes and messages of this rank in a move of samples of a byte a number. Collective. move: a function of the group
    and of this rank's inputs, targets and indices."""
    indices = np.arange(samples)[Partition.even(samples, comm.size).part(comm.rank)]
    labels = (indices * CLASSES // samples).astype(np.uint8)
    with ProcessGrid(comm, batch=comm.size) as grid:
        move(grid.group("batch"), np.zeros((len(indices), prod(IMAGE)), np.uint8), labels, indices)
        return sent(grid)


def row(comm, algorithm, count):
    """What all ranks did, from the Counter of each: bytes of all, and the most that one rank has of each. Collective."""
    counts = comm.allgather(count)
    most = {f"most_{name}": max(one[name] for one in counts) for name in count}
    return {"algorithm": algorithm, "k": comm.size, "bytes": sum(one["bytes"] for one in counts)} | most


def main():
    parser = Parser(prog="papers.hegde2016_count", description="Count what the algorithms send and compute in an epoch.")
    parser.add_argument("--samples", required=True, type=whole(1), help="samples of all ranks")
    args, comm = parser.parse_args(), MPI.COMM_WORLD
    moves = {SHUFFLE: partial(shuffle, seed=0), EXCHANGE: partial(exchange_halves, seed=0, round=1)}
    rows = [row(comm, name, moved(comm, args.samples, move)) for name, move in moves.items()]
    serial = network_names.build(NET, IMAGE, CLASSES)
    for name, algorithm in algorithms(args.samples, comm.size).items():
        count = counted(comm, serial, algorithm.text, args.samples, BATCH * comm.size, algorithm.steps)
        rows.append(row(comm, name, count))
    if comm.rank == 0:
        print(json.dumps(rows))


if __name__ == "__main__":
    run(main)
