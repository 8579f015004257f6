"""The algorithms of section 5 on made-up samples that are sorted by label, for `reproduce hegde2016`.

    mpiexec -n 2 python -m gridgrad.experiments.papers.hegde2016.count_job --samples 60000

Prints what was counted in an epoch as one line of JSON, a list with a row for each algorithm. No gradients are computed.
"""

import json
from functools import partial
from math import prod

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common.options import Parser, whole
from gridgrad.experiments.papers.hegde2016.costs import BATCH, CLASSES, EXCHANGE, IMAGE, NET, SHUFFLE, algorithms
from gridgrad.experiments.papers.hegde2016.counts import counted, sent
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid
from gridgrad.parallel.job.run import run
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.protocols.parallel_sgd import exchange_halves, shuffle


def moved(comm, samples, move):
    """The bytes and messages of this rank in a move of samples of a byte a number. Collective.

    move: a function of the group and of this rank's inputs, targets and indices.
    """
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
    parser = Parser(prog="papers.hegde2016.count_job", description="Count what the algorithms send and compute in an epoch.")
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
