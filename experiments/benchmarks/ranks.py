"""A job of several ranks of one thread on made-up data, a line of JSON, for `bench`: training steps, or sums of gradients.

    mpiexec -n 2 python -m gridgrad.experiments.benchmarks.ranks steps --case "cifar-cnn, batch 64" --times 10
    mpiexec -n 2 python -m gridgrad.experiments.benchmarks.ranks sums --times 9

`steps` trains with batch parallelism. "seconds" is the median over the steps of the time that passed on the slowest rank,
"cpu_seconds" that of the time that its processor worked. "core" is how long a small matrix product takes on the slowest rank:
where it grows, the core itself is slower, perhaps for another virtual machine on it, which no counter here shows.

`sums` adds up arrays in place over all ranks in three ways by turns: in shared memory (`parallel/sync/shared_memory.py`); by
`MPI_Allreduce`; and, as the limit, each rank only adds up and copies its part of private memory, without communicating.
{case: {"mpi": [ours over the library's, a round], "limit": [ours over the limit]}}, with the marks of rounds.
"""

import json
from functools import partial

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.benchmarks.cases import SUMS, TWO_RANKS, step_case
from gridgrad.experiments.benchmarks.rounds import AGAIN, CLOCKS, quiet_rounds
from gridgrad.experiments.common.machine_load import load_of_job
from gridgrad.experiments.common.options import Parser, whole
from gridgrad.experiments.common.problems import minibatch, own_block
from gridgrad.nn import LOSSES, SGD
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.calibration.timing import core_seconds, median_seconds
from gridgrad.parallel.job.run import run
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.sync.shared_memory import SharedRun, shared_arrays

WARM_UP = 3  # steps
REPEATS = 15  # sums of each way in a round; their median counts


def steps(world, case, times, apart):
    """The seconds of training steps of a StepCase. apart: each rank trains a network of its own on its part of the batch."""
    comm, batch_size = world, case.batch_size
    if apart:
        comm, batch_size = MPI.COMM_SELF, Partition.even(batch_size, world.size).size(world.rank)
    with ProcessGrid(comm, batch=comm.size) as grid:
        net = parallelize(case.network(), grid)
        optimizer, loss = SGD(net, 0.01, 0.9), LOSSES[case.loss]()
        x, y = own_block(net, *minibatch(case.network().input_shape, case.outputs, batch_size))
        found = []
        for _ in range(WARM_UP + times):
            core = core_seconds()
            world.Barrier()
            starts = [read() for read in CLOCKS.values()]
            train_step(net, loss, optimizer, x, y, batch_size)
            found.append([*(read() - start for read, start in zip(CLOCKS.values(), starts)), core])
    slowest = np.array(found[WARM_UP:])
    slowest[:, 2] = np.median(slowest[:, 2])
    world.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
    return dict(zip(("cpu_seconds", "seconds", "core"), np.median(slowest, axis=0).tolist()))


def ways(grid, elements):
    """({name: a function that sums float32 arrays of this size over the ranks}, the array that "ours" sums)."""
    comm = grid.comm
    arrays = shared_arrays(comm, elements, np.float32)
    own, private, kept = arrays[comm.rank], np.empty(elements, np.float32), np.empty(elements, np.float32)
    for array in (own, private, kept):
        array.fill(1)
    shared = SharedRun(arrays, comm.rank)

    def ours():
        comm.Barrier()
        shared.add_up_part(shared.others)
        comm.Barrier()

    def limit():
        for start in range(shared.part.start, shared.part.stop, shared.chunk):
            piece = slice(start, min(start + shared.chunk, shared.part.stop))
            for _ in range(comm.size - 1):
                np.add(private[piece], kept[piece], out=private[piece])
            for _ in range(comm.size - 1):
                np.copyto(kept[piece], private[piece])

    return {"ours": ours, "mpi": lambda: comm.Allreduce(MPI.IN_PLACE, private), "limit": limit}, own


def sums(world, rounds):
    """{case: ratios of time} of `SUMS`. Collective."""
    found = {}
    np.seterr(all="ignore")  # what is summed again and again overflows
    with ProcessGrid(world, batch=world.size) as grid:
        for case in SUMS:
            sides, own = ways(grid, case.bytes // 4)
            sides["ours"]()
            assert (own == world.size).all()
            trials = [partial(median_seconds, grid, side, REPEATS) for side in sides.values()]
            for trial in trials:
                trial()  # it touches the memory for the first time
            turns, marks = quiet_rounds(trials, rounds, AGAIN * rounds, load_of=partial(load_of_job, grid.comm))
            found[case.name] = {name: [turn[0] / turn[i] for turn in turns] for i, name in ((1, "mpi"), (2, "limit"))} | marks
    return found


def main():
    parser = Parser(prog="ranks", description="Time training steps or sums of gradients on several ranks.")
    parser.add_argument("what", choices=["steps", "sums"])
    parser.add_argument("--case", type=step_case, default=TWO_RANKS[0].name, help="the comparison of training steps")
    parser.add_argument("--times", type=whole(1), default=10, help="steps that are timed, or rounds of sums")
    parser.add_argument("--apart", action="store_true", help="each rank trains alone on its part of the batch")
    args = parser.parse_args()
    world = MPI.COMM_WORLD
    found = sums(world, args.times) if args.what == "sums" else steps(world, args.case, args.times, args.apart)
    if world.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    run(main)
