"""Measure what a checkpoint costs: by how many seconds it lengthens training.

    mpiexec -n 2 gridgrad study checkpoint-cost --net cifar-cnn --shape 32,32,3 --outputs 10 --batch-size 64 --dir DIR

Blocks of training steps alternate. One is without a checkpoint. In the other one a checkpoint is begun, written by a thread
while training goes on, and made whole, all before the block ends. The cost is the median of the differences. It contains the
copy, the time that the thread takes from training where every core computes, and the manifest, which comes after the disk has
everything.
"""

import os
import shutil
import tempfile
import time
from contextlib import contextmanager

from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.made_up_data import problem_of
from gridgrad.experiments.common.options import Parser, add_device, add_grid, add_problem, check_writable, number, whole
from gridgrad.experiments.common.progress import progress
from gridgrad.experiments.common.tables import range_of, spread, table
from gridgrad.nn import LOSSES, OPTIMIZERS, device
from gridgrad.parallel import train_step
from gridgrad.parallel.checkpoint.manifest import found_in
from gridgrad.parallel.checkpoint.saver import Saver
from gridgrad.parallel.checkpoint.state import NetworkState, OptimizerState
from gridgrad.parallel.job.run import on_root, run

MINUTE = 60.0
RATE = 1e-9  # at which nothing is learnt, so that all steps take equally long


def options():
    parser = Parser(prog="study checkpoint-cost", description="What does a checkpoint cost?")
    add_problem(parser, "mlp:1024,1024,relu", [784], outputs=10, batch_size=128)
    add_grid(parser)
    add = parser.add_argument
    add("--optimizer", default="adam", choices=OPTIMIZERS, help="the optimizer, whose state is saved too")
    add(
        "--dir",
        default="checkpoint-cost",
        metavar="DIR",
        help="the folder to write into, in a new folder of its own, which is deleted at the end",
    )
    add("--block", type=number(above=0), default=3.0, metavar="SECONDS", help="seconds of a block of steps")
    add("--rounds", type=whole(1), default=10, help="how many blocks of each kind")
    add("--out", metavar="FILE.json", help="also write the numbers to this file")
    add_device(parser)
    return parser


def seconds(comm, step, steps, between):
    """The seconds of so many steps, on the slowest rank. between: called before each step with its number. Collective."""
    comm.Barrier()
    start = time.perf_counter()
    for done in range(steps):
        between(done)
        step()
    device.synchronise()
    return comm.allreduce(time.perf_counter() - start, MPI.MAX)


@contextmanager
def new_folder(comm, directory):
    """A new folder within a folder that all ranks see. When it is deleted, ranks must have closed their Savers. Collective."""

    def make():
        os.makedirs(directory, exist_ok=True)
        return tempfile.mkdtemp(prefix="cost-", dir=directory)

    folder = comm.bcast(on_root(comm, make))
    try:
        yield folder
    finally:
        if comm.rank == 0:
            shutil.rmtree(folder)


def measured(saver, step, steps, rounds):
    """([seconds that a checkpoint cost, for each round], [seconds that training stood still for it]). Collective."""
    saving = lambda done: saver.save(saver.net.step) if done == 0 else saver.boundary(saver.net.step)  # noqa: E731
    differences, still = [], []
    for number_of_round in progress(range(rounds + 1), "rounds", saver.comm.rank == 0):
        without, before = seconds(saver.comm, step, steps, nothing), saver.seconds
        whole_before = saver.written
        with_one = seconds(saver.comm, step, steps, saving)
        complete = saver.written > whole_before
        saver.complete()
        if number_of_round:  # in the first one arrays are made that are used again later
            differences.append(with_one - without)
            still.append(saver.seconds - before)
            if not complete and saver.comm.rank == 0:
                print(f"round {number_of_round}: the block ended before the checkpoint was whole: use a longer --block")
    return differences, still


def nothing(done):
    """What is done between the steps of a block without a checkpoint."""


def row(found):
    """The cells of the table that is printed."""
    return {
        "network": found["net"], "ranks": found["P"], "MiB": f"{found['mib']:.1f}",
        "s longer, a checkpoint": spread(found["checkpoint_seconds"]),
        "% of a minute": spread(found["checkpoint_seconds"], MINUTE / 100),
        "ms standing still": spread(found["standing_still_seconds"], 1e-3),
    }  # fmt: skip


def main():
    args = options().parse_args()
    comm = MPI.COMM_WORLD
    on_root(comm, lambda: check_writable(args.out) if args.out else None)
    grid, net, x, y = problem_of(args, comm)
    optimizer, loss = OPTIMIZERS[args.optimizer](net, RATE), LOSSES["cross-entropy"]()
    step = lambda: train_step(net, loss, optimizer, x, y, args.batch_size)  # noqa: E731
    seconds(comm, step, 3, nothing)
    steps = max(10, int(args.block / (seconds(comm, step, 10, nothing) / 10)))
    with new_folder(comm, args.dir) as folder:
        saver = Saver(comm, net, {"network": NetworkState(net), "optimizer": OptimizerState(net, optimizer)}, folder, keep=1)
        differences, still = measured(saver, step, steps, args.rounds)
        saver.close()
        found, _ = found_in(folder) if comm.rank == 0 else ([], [])
    if comm.rank == 0:
        content = {
            "settings": vars(args), "versions": report.versions(), "net": args.net, "P": comm.size, "steps_a_block": steps,
            "checkpoint_seconds": range_of(differences), "standing_still_seconds": range_of(still),
            "mib": sum(entry["size"] for entry in found[0].files) / 2**20,
        }  # fmt: skip
        print(table([row(content)]))
    if args.out:
        on_root(comm, lambda: report.write_json(args.out, content))
    grid.free()


if __name__ == "__main__":
    run(main)
