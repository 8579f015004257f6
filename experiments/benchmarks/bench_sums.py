"""Sums of gradients in memory that ranks share, against the MPI library's own all-reduce and what memory allows: for `bench`.

    gridgrad launch 2 benchmarks.bench_sums --rounds 9

Arrays of each size are summed in place over all ranks, alternately in three ways: as `parallel/sync/shared_memory.py` does; by
`MPI_Allreduce` in place; and, as the limit, each rank only adds up and copies its part of private memory, all at once, without
communicating. Prints one line of JSON: {case: {"mpi": [ours over the library's, a round], "limit": [ours over the limit]}},
with the marks of `rounds.Rounds`.
"""

import json
from functools import partial

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.benchmarks.rounds import AGAIN, quiet_rounds
from gridgrad.experiments.common.machine_load import load_of_job
from gridgrad.experiments.common.options import Parser, whole
from gridgrad.experiments.common.timing import median_seconds
from gridgrad.parallel import ProcessGrid
from gridgrad.parallel.job.run import run
from gridgrad.parallel.sync.shared_memory import SharedRun, shared_arrays

SIZES = {"1 MB": 1 << 20, "16 MB": 1 << 24}  # bytes
REPEATS = 15  # sums of each way in a round; their median counts


class SumCase:
    """A size, by its name; for `rounds.selected`."""

    large = False

    def __init__(self, name):
        self.name = f"all-reduce of {name}, 2 ranks"


CASES = [SumCase(name) for name in SIZES]


def ways(grid, elements):
    """{name: function}: the three ways to sum float32 arrays of this size over the ranks."""
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


def check(sums, own, size):
    """Raise AssertionError unless our way computes the sum."""
    own.fill(1)
    sums["ours"]()
    assert (own == size).all()


def seconds_of(grid, sums):
    """{name: seconds} of each way to sum. Collective."""
    return {name: median_seconds(grid, action, REPEATS) for name, action in sums.items()}


def main():
    parser = Parser(prog="bench_sums", description="Compare sums in shared memory with the MPI library's all-reduce.")
    parser.add_argument("--rounds", type=whole(1), default=9, help="rounds, in each of which every way is timed")
    args = parser.parse_args()
    found = {}
    np.seterr(all="ignore")  # what is summed again and again overflows
    with ProcessGrid(MPI.COMM_WORLD, batch=MPI.COMM_WORLD.size) as grid:
        for case, size in zip(CASES, SIZES.values()):
            sums, own = ways(grid, size // 4)
            check(sums, own, grid.size)
            one_round = partial(seconds_of, grid, sums)
            one_round()  # it touches the memory for the first time
            rounds = quiet_rounds(one_round, range(AGAIN * args.rounds), args.rounds, partial(load_of_job, grid.comm))
            ratios = {name: [r["ours"] / r[name] for r in rounds.counted] for name in ("mpi", "limit")}
            found[case.name] = ratios | rounds.marks()
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    run(main)
