"""Parallelism by hand, as `automation.toml` compares it with gridgrad's: a serial network, made parallel with mpi4py for speed.

Takes the options of `train` that it knows, and writes a report as `train` does: samples are divided along the axis batch, the
columns of Linear layers along the axis model. Any script that does so can be a series of `sweep`: see docs/scaling.md.
"""

import time

import numpy as np
from mpi4py import MPI

from gridgrad import datasets
from gridgrad.experiments import train
from gridgrad.experiments.common import report
from gridgrad.nn import LOSSES, SGD, Context, Linear, Sequential
from gridgrad.nn.layer import Block
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import minibatch_indices, parse_grid

WARM_UP = 5  # steps that are not timed


class ColumnLinear(Linear):
    """The columns of a Linear that this rank of a communicator holds; takes and returns all features."""

    def __init__(self, comm, inputs, outputs):
        self.comm = comm
        ends = [rank * outputs // comm.size for rank in range(comm.size + 1)]
        self.parts = [slice(start, stop) for start, stop in zip(ends, ends[1:])]
        self.mine = self.parts[comm.rank]
        super().__init__(inputs, outputs)
        self.weight.layout, self.bias.layout = Block([slice(0, inputs), self.mine]), Block([self.mine])

    def forward(self, x, context):
        y = super().forward(x, context)
        counts = [len(x) * (part.stop - part.start) for part in self.parts]
        blocks, whole = np.empty(sum(counts), y.dtype), np.empty((len(x), self.outputs), y.dtype)
        self.comm.Allgatherv(y, [blocks, counts])
        start = 0
        for part, count in zip(self.parts, counts):
            whole[:, part] = blocks[start : start + count].reshape(len(x), -1)
            start += count
        return whole

    def gradients(self, dy, context):
        super().gradients(dy[:, self.mine], context)

    def input_gradient(self, dy, context):
        dx = super().input_gradient(dy[:, self.mine], context)
        self.comm.Allreduce(MPI.IN_PLACE, dx)
        return dx


def main():
    args, comm = train.options().parse_args(), MPI.COMM_WORLD
    sizes = {"batch": 1, "model": 1} | (parse_grid(args.grid) if args.grid != "auto" else {"batch": comm.size})
    cart = comm.Create_cart((sizes["batch"], sizes["model"]))
    batch, model = (cart.Sub(axes) for axes in ((True, False), (False, True)))
    data = datasets.load(args.dataset, args.data_dir, args.dtype)
    net = network_names.build(args.net, data.sample_shape, data.outputs, args.seed, args.dtype)
    part = data.reshaped(net.input_shape).train
    whole = tuple(slice(0, length) for length in part.sample_shape)
    if model.size > 1:
        layers = [ColumnLinear(model, one.inputs, one.outputs) if one.kind else type(one)() for one in net.layers]
        net = Sequential(layers, args.seed, args.dtype, net.input_shape)
    net.allocate()
    loss, optimizer, context = LOSSES[data.loss](), SGD(net, args.lr or 0.02, args.momentum or 0.9), Context()
    seconds, losses = [], []
    for step in range(args.steps):
        rows, _ = minibatch_indices(len(part), args.batch_size, args.seed, step)
        parts = np.array_split(rows, batch.size)
        mine, first = parts[batch.rank], sum(map(len, parts[: batch.rank]))
        x, y = part.inputs(mine, whole), part.targets(mine)
        start = time.perf_counter()
        outputs = net.forward(x, context, len(mine), first, len(rows))
        losses.append(loss.forward(outputs, y, context))
        net.backward(loss.backward(context), context)
        if batch.size > 1:
            batch.Allreduce(MPI.IN_PLACE, net.grads)
        optimizer.step()
        net.step += 1
        seconds.append(time.perf_counter() - start)
    slowest = comm.allreduce(float(np.median(seconds[WARM_UP:])), MPI.MAX)
    found = batch.allreduce(losses[-1])
    if comm.rank == 0:
        report.write_json(args.report, {
            "net": args.net, "dataset": args.dataset, "P": comm.size, "grid": args.grid, "settings": vars(args),
            "final_loss": float(found), "seconds_per_step": {"median": slowest},
        })  # fmt: skip


if __name__ == "__main__":
    main()
