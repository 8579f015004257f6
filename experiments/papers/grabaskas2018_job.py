"""One run of `reproduce grabaskas2018`: a program that its launcher starts on 1, 2 or 4 ranks. One line of JSON.

    mpiexec -n 2 gridgrad papers.grabaskas2018_job --dataset mnist --net mnist-cnn --samples 4000 --period 100
    mpiexec -n 2 gridgrad papers.grabaskas2018_job --dataset mnist --net mlp3 --grid model=2 --plan in,in,in
    mpiexec -n 2 gridgrad papers.grabaskas2018_job --dataset cifar10 --read

Training is plain SGD at a constant learning rate, as in the thesis. The thesis names no learning rate; 0.01 is the default of
Torch's StochasticGradient.
"""

import json
import time
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from gridgrad import datasets
from gridgrad.experiments.common.options import Parser, add_grid, number, process_grid_of, user_input, whole
from gridgrad.experiments.common.report import losses_of_all
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.kernels.processor import processor
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import evaluate, parallelize, train_step
from gridgrad.parallel.job.run import UserError, run
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.protocols.averaging import LocalSGD
from gridgrad.parallel.protocols.parallel_sgd import Stripes
from gridgrad.parallel.protocols.protocol import Protocol
from gridgrad.parallel.protocols.workers import divide, one_worker
from gridgrad.parallel.training.minibatch_readers import EachRankReads
from gridgrad.parallel.training.steps import steps_per_epoch

WARM_UP = 3  # steps that are not timed
STANDSTILL = float(np.finfo(np.float32).tiny)  # a learning rate that changes no parameter
READINGS = 5
TEST_BATCH = 1000


def main():
    parser = Parser(prog="papers.grabaskas2018_job", description="One run of reproduce grabaskas2018.")
    add = parser.add_argument
    add("--dataset", required=True, choices=("mnist", "cifar10"), help="the data set; mnist is padded to 32x32")
    add("--data-dir", metavar="DIR", help="see train --help")
    add("--read", action="store_true", help="only time reading the data and standardising the part of each rank")
    add("--net", help=network_names.HELP)
    add("--samples", type=whole(1), help="use only so many training samples, the first ones; default all")
    add("--passes", type=whole(1), default=1, help="number of passes over these samples")
    words = "samples in the global minibatch, or with --period in the minibatch of a worker"
    add("--batch-size", type=whole(1), default=1, help=words)
    add("--period", type=whole(1), help="local SGD: average the workers after each of them has seen so many samples")
    add_grid(parser)
    add("--plan", default="fewest-bytes", help="see train --help")
    add("--lr", type=number(above=0), default=0.01, help="learning rate")
    add("--test", action="store_true", help="also compute the accuracy on all test samples")
    args = parser.parse_args()
    if bool(args.net) == args.read:
        raise UserError("give --net NAME to train, or --read")
    if args.period and args.period % args.batch_size:
        raise UserError(f"--period {args.period} is no multiple of --batch-size {args.batch_size}")
    comm = MPI.COMM_WORLD
    result = read(args, comm) if args.read else train(args, comm)
    processors = sorted(set(comm.allgather(processor().title)))
    if comm.rank == 0:
        print(json.dumps(result | {"processor": " and ".join(processors)}))


def read(args, comm):
    """{"seconds", "samples"}: of reading the training data and standardising this rank's part, on the slowest; the median."""
    seconds = []
    for _ in range(READINGS):
        comm.Barrier()
        start = time.perf_counter()
        part = load(args).train
        mine = Partition.even(args.samples or len(part), comm.size).part(comm.rank)
        part.inputs(np.arange(mine.start, mine.stop), tuple(slice(0, length) for length in part.sample_shape))
        seconds.append(comm.allreduce(time.perf_counter() - start, MPI.MAX))
    return {"seconds": float(np.median(seconds)), "samples": args.samples or len(part)}


def load(args):
    """The data set; digits are padded with background to 32x32, as Torch's are."""
    with user_input():
        data = datasets.load(args.dataset, args.data_dir)
    if args.dataset != "mnist":
        return data
    padded = lambda part: replace(part, x=np.pad(part.x, ((0, 0), (2, 2), (2, 2), (0, 0))))  # noqa: E731
    return replace(data, train=padded(data.train), test=padded(data.test))


def train(args, comm):
    """{"seconds", "samples", "loss"} of training, {"accuracy"} in percent with --test. Collective."""
    data = load(args)
    count = args.samples or len(data.train)
    with user_input():
        if count > len(data.train):
            raise ValueError(f"--samples {count}: there are {len(data.train)}")
        serial = network_names.build(args.net, data.sample_shape, data.outputs)
        grid = process_grid_of(args, comm)
        own_grid, workers = divide(grid) if args.period else one_worker(grid)
        net = parallelize(serial, own_grid, args.plan, "plain")
    data = data.reshaped(serial.input_shape)
    loss, reader = LOSSES[data.loss](), EachRankReads(net, data.train)
    for step in range(WARM_UP):
        indices = np.arange(step * args.batch_size, (step + 1) * args.batch_size) % count
        train_step(net, loss, SGD(net, STANDSTILL), *reader.load(indices), len(indices))
    net.step, losses = 0, []
    make_optimizer = lambda net: SGD(net, args.lr)  # noqa: E731
    if args.period:  # the stripes of ParallelSGD
        protocol = LocalSGD(net, workers, make_optimizer, args.period // args.batch_size)
        shares = Stripes(count, args.batch_size * workers.size, 0, workers.size)
    else:
        protocol = Protocol(net, workers, make_optimizer)
        shares = protocol.shares(count, args.batch_size, 0)
    comm.Barrier()
    start = time.perf_counter()
    for turn in protocol.turns(shares, args.passes * steps_per_epoch(count, shares.batch_size)):
        losses.append(train_step(net, loss, protocol, *reader.load(turn.indices), turn.samples))
    protocol.finish()
    comm.Barrier()
    result = {"seconds": comm.allreduce(time.perf_counter() - start, MPI.MAX), "samples": count * args.passes}
    losses = losses_of_all(grid, net, protocol, losses)
    result["loss"] = losses and losses[-1]  # of the last step of all workers, on rank 0
    if args.test:
        result["accuracy"] = evaluate(net, data.test, data.loss, EachRankReads(net, data.test), TEST_BATCH)["accuracy"]
    return result


if __name__ == "__main__":
    run(main)
