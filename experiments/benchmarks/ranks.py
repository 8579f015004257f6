"""A job of several ranks of one thread that trains on made-up data with batch parallelism, for `bench`: a line of JSON.

    mpiexec -n 2 python -m gridgrad.experiments.benchmarks.ranks --case "cifar-cnn, batch 64" --times 10

"seconds" is the median over the steps of the time that passed on the slowest rank, "cpu_seconds" that of the time that its
processor worked. "core" is how long a small matrix product takes on the slowest rank: where it grows, the core itself is
slower, perhaps for another virtual machine on it, which no counter here shows.
"""

import json
from functools import partial

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.benchmarks.cases import TWO_RANKS, step_case
from gridgrad.experiments.benchmarks.rounds import clocked
from gridgrad.experiments.common.options import Parser, whole
from gridgrad.experiments.common.problems import minibatch, own_block
from gridgrad.nn import LOSSES, SGD
from gridgrad.parallel import Partition, ProcessGrid, parallelize, train_step
from gridgrad.parallel.calibration.timing import core_seconds
from gridgrad.parallel.job.run import run

WARM_UP = 3  # steps


def steps(world, case, times, apart):
    """The seconds of training steps of a StepCase. apart: each rank trains a network of its own on its part of the batch."""
    comm, batch_size = world, case.batch_size
    if apart:
        comm, batch_size = MPI.COMM_SELF, Partition.even(batch_size, world.size).size(world.rank)
    with ProcessGrid(comm, batch=comm.size) as grid:
        net = parallelize(case.network(), grid)
        optimizer, loss = SGD(net, 0.01, 0.9), LOSSES[case.loss]()
        x, y = own_block(net, *minibatch(case.network().input_shape, case.outputs, batch_size))
        step, found = partial(train_step, net, loss, optimizer, x, y, batch_size), []
        for _ in range(WARM_UP + times):
            core = core_seconds()
            world.Barrier()
            found.append([*clocked(step), core])
    slowest = np.array(found[WARM_UP:])
    slowest[:, 2] = np.median(slowest[:, 2])
    world.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
    return dict(zip(("cpu_seconds", "seconds", "core"), np.median(slowest, axis=0).tolist()))


def main():
    parser = Parser(prog="ranks", description="Time training steps on several ranks.")
    parser.add_argument("--case", type=step_case, default=TWO_RANKS[0].name, help="the comparison of training steps")
    parser.add_argument("--times", type=whole(1), default=10, help="steps that are timed")
    parser.add_argument("--apart", action="store_true", help="each rank trains alone on its part of the batch")
    args, world = parser.parse_args(), MPI.COMM_WORLD
    found = steps(world, args.case, args.times, args.apart)
    if world.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    run(main)
