"""One run of `reproduce marques2016`: where the time of a training step goes. Its launcher starts it on 1 to 4 ranks.

    mpiexec -n 1 gridgrad papers.marques2016_job --net marques-50-500 --batch-size 64
    mpiexec -n 2 gridgrad papers.marques2016_job --net marques-50-500 --batch-size 64 --grid model=2 --plan marques

Prints one line of JSON. "convolution", "computation" and "communication" are lists of seconds, one number a step: the most time
that a rank spends in convolutions, the most that a rank spends in all else that it computes, and the rest of the step, which is
communication, copies for it, and waiting. "bytes" is what all ranks together send in a step, "peak_memory" the most memory that
each has used so far, in bytes, added over the ranks.

Some things could be counted otherwise. In the plan "marques" the seconds of convolutions include the copies of kernels and of
their gradients into messages and out of them. The bias is added by a layer of its own there, which counts as computation;
elsewhere a convolution adds its bias itself.
"""

import json
import time

import numpy as np
from mpi4py import MPI

from gridgrad.experiments.common import report
from gridgrad.experiments.common.options import Parser, add_device, add_grid, number, process_grid_of, user_input, whole
from gridgrad.experiments.common.problems import add_problem, minibatch, own_block
from gridgrad.nn import LOSSES, SGD, device
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import parallelize, train_step, use_device
from gridgrad.parallel.job.run import run
from gridgrad.parallel.observe.span_observer import SpanObserver

CONVOLUTIONS = "Conv2d", "HandedConv2d"
MOVES = ("Redistribute",)  # what they do beside the communication itself, they do for it: copies into messages
LEARNING_RATE = 1e-6  # so small that the network stays as it is, and all steps do the same work


class Parts(SpanObserver):
    """Adds up, while it is open, the seconds that this rank spends in convolutions, and in copies for messages. Neither holds
    the communication itself, which the tally measures."""

    def __init__(self, net):
        super().__init__(net)
        self.convolution = self.copies = 0.0

    def record(self, span):
        (_, kind, _), start, stop, inner, _ = span
        if kind in CONVOLUTIONS:
            self.convolution += stop - start - inner
        elif kind in MOVES:
            self.copies += stop - start - inner


def main():
    parser = Parser(prog="papers.marques2016_job", description="One run of reproduce marques2016.")
    add_problem(parser, "marques-50-500", [32, 32, 3], outputs=10, batch_size=64)
    add_grid(parser)
    add_device(parser)
    parser.add_argument("--plan", default="out", help="see train --help")
    words = "time steps for about so long, but at least one, after a first step that is not timed"
    parser.add_argument("--seconds", type=number(least=0), default=3.0, help=words)
    parser.add_argument("--most", type=whole(1), default=20, metavar="STEPS", help="time no more than so many steps")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    with user_input():
        use_device(comm, args.device, args.tf32)
        grid = process_grid_of(args, comm)
        serial = network_names.build(args.net, args.shape, args.outputs)
        net = parallelize(serial, grid, args.plan, reduction="plain")
    step = timed_step(net, *own_block(net, *minibatch(serial.input_shape, args.outputs, args.batch_size)), args.batch_size)
    (first, *_), _ = step()
    steps = comm.bcast(int(max(1, min(args.most, args.seconds / first))))
    found = [step() for _ in range(steps)]
    memory = comm.allreduce(report.peak_memory())
    if comm.rank == 0:
        names = "convolution", "computation", "communication"
        parts = {name: [float(parts[i]) for (_, *parts), _ in found] for i, name in enumerate(names)}
        about = {"batch_size": args.batch_size, "bytes": found[-1][1], "versions": report.versions(), "peak_memory": memory}
        print(json.dumps(parts | about))
    grid.free()


def timed_step(net, x, y, batch_size):
    """A function that does one training step. It returns ([seconds of the step, convolution, computation, communication], bytes
    that all ranks send), see the module's text, on all ranks. Collective. x, y: this rank's part of the minibatch."""
    comm, loss, optimizer = net.grid.comm, LOSSES["cross-entropy"](), SGD(net, LEARNING_RATE, 0.9)

    def step():
        net.grid.tally.clear()
        comm.Barrier()
        start = time.perf_counter()
        with Parts(net) as parts:
            train_step(net, loss, optimizer, x, y, batch_size)
            device.synchronise()
        seconds = time.perf_counter() - start
        other = seconds - parts.convolution - parts.copies - net.grid.tally.seconds
        most = np.array([seconds, parts.convolution, other])
        comm.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
        sent = comm.allreduce(sum(record.bytes for record in net.grid.tally.records.values()))
        whole, convolution, other = most.tolist()
        other = min(other, whole - convolution)  # of different ranks, they may overlap
        return [whole, convolution, other, whole - convolution - other], sent

    return step


if __name__ == "__main__":
    run(main)
