"""Seconds of a training step on made-up data, as one line of JSON: what `bench` runs on 1 and 2 ranks.

mpiexec -n 2 gridgrad benchmarks.step_time --net mlp:2048,1024,tanh --features 1024 --outputs 10 --batch-size 1024
mpiexec -n 2 gridgrad benchmarks.step_time --net cifar-cnn --shape 32,32,3 --outputs 10 --batch-size 128

"seconds" is the median over the steps of the time that passed on the slowest rank, and "cpu_seconds" that of the time that its
processor worked. "pace" is the rate in GFLOP/s of a small matrix product on the slowest rank, timed before each step. If it
drops, the core itself is slower, perhaps because another virtual machine is on it, which no counter here shows.
"""

import json
import time

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.made_up_data import minibatch, own_block
from gridgrad.experiments.common.options import (
    Parser,
    add_device,
    add_grid,
    add_problem,
    add_reduction,
    process_grid_of,
    reduction_of,
    user_input,
    whole,
)
from gridgrad.nn import LOSSES, SGD, device
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import parallelize, train_step
from gridgrad.parallel.grid.devices import use_device
from gridgrad.parallel.job.run import UserError, run
from gridgrad.parallel.placement.partition import Partition


class Pace:
    """The rate, in GFLOP/s, of a matrix product that stays in the cache, so that it depends on the core alone."""

    SIZE, REPEATS = 192, 6

    def __init__(self):
        self.factor, self.rates = np.full((self.SIZE, self.SIZE), 1e-3, np.float32), []
        self.product = np.empty_like(self.factor)

    def take(self):
        start = time.perf_counter()
        for _ in range(self.REPEATS):
            np.matmul(self.factor, self.factor, out=self.product)
        self.rates.append(2e-9 * self.SIZE**3 * self.REPEATS / (time.perf_counter() - start))


def main():
    parser = Parser(prog="step_time", description="Time training steps on made-up data.")
    add_problem(parser, "mlp:2048,1024,tanh", [1024], outputs=10, batch_size=1024)
    add_grid(parser)
    words = "each rank trains a network of its own on its part of the batch: the speed of ranks that do not communicate"
    parser.add_argument("--apart", action="store_true", help=words)
    parser.add_argument("--steps", type=whole(1), default=10, help="steps that are timed, after 3 steps of warm-up")
    add_device(parser)
    add_reduction(parser)
    args = parser.parse_args()
    world = comm = MPI.COMM_WORLD
    batch_size = args.batch_size
    if args.apart:
        if args.grid:
            raise UserError("--apart and --grid do not go together: leave one out")
        comm, batch_size = MPI.COMM_SELF, Partition.even(batch_size, world.size).size(world.rank)
    with user_input():
        use_device(world, args.device, args.tf32)
        grid = process_grid_of(args, comm)
        serial = network_names.build(args.net, args.shape, args.outputs)
        net = parallelize(serial, grid, **reduction_of(args))
    optimizer, loss = SGD(net, 0.01, 0.9), LOSSES["cross-entropy"]()
    x, y = own_block(net, *minibatch(serial.input_shape, args.outputs, batch_size))
    seconds, cpu_seconds, pace = [], [], Pace()
    for step in range(args.steps + 3):
        if step == 3:
            grid.tally.clear()
            net.reduction.clear()
            pace = Pace()
        pace.take()
        world.Barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        train_step(net, loss, optimizer, x, y, batch_size)
        device.synchronise()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    rate = world.allreduce(float(np.median(pace.rates)), MPI.MIN)
    slowest = np.array([seconds[3:], cpu_seconds[3:]])
    world.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
    median, cpu_median = map(float, np.median(slowest, axis=1))
    overlap, measured = report.overlap(net), report.time_and_bytes(grid, seconds[3:], 0.0)
    if world.rank == 0:
        found = {"seconds": median, "cpu_seconds": cpu_median, "pace": rate, "time": measured["time"]}
        print(json.dumps(found | {"reduction": str(net.reduction), "overlap": overlap}))
    grid.free()


if __name__ == "__main__":
    run(main)
