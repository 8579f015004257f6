"""Parallelism by hand: a serial network of this library made parallel with mpi4py, by somebody who knows both.

These are the programs `by_hand_data`, `by_hand_model` and `by_hand_2d` of `experiments/studies/usability` as they are written
for speed: arrays are sent from buffers, and a rank takes consecutive samples.
"""

import numpy as np
from mpi4py import MPI

from gridgrad.nn import SGD, Context, Linear, Sequential
from gridgrad.nn.layer import Block

LEARNING_RATE = 0.01


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


class ByHand:
    """A network, a loss and SGD on a grid of ranks: samples are divided along one axis, columns along the other.

    serial: a Sequential that was never used. sizes: {"batch", "model"} of the grid. x, y: all samples. With several ranks along
    the axis model, the layers must be Linear and activations.
    """

    def __init__(self, serial, loss, comm, sizes, x, y):
        cart = comm.Create_cart((sizes["batch"], sizes["model"]))
        self.comms = cart, *(cart.Sub(axes) for axes in ((True, False), (False, True)))
        _, self.batch, self.model = self.comms
        self.net = serial
        if self.model.size > 1:
            layers = [ColumnLinear(self.model, one.inputs, one.outputs) if one.kind else type(one)() for one in serial.layers]
            self.net = Sequential(layers, serial.seed, serial.dtype, serial.input_shape)
        self.net.allocate()
        self.loss, self.optimizer, self.context = loss, SGD(self.net, LEARNING_RATE), Context()
        self.x, self.y = x, y

    def step(self, rows):
        """One training step on some rows of the samples. Returns this rank's part of the mean loss."""
        parts = np.array_split(rows, self.batch.size)
        mine, first = parts[self.batch.rank], sum(map(len, parts[: self.batch.rank]))
        outputs = self.net.forward(self.x[mine], self.context, len(mine), first, len(rows))
        value = self.loss.forward(outputs, self.y[mine], self.context)
        self.net.backward(self.loss.backward(self.context), self.context)
        if self.batch.size > 1:
            self.batch.Allreduce(MPI.IN_PLACE, self.net.grads)
        self.optimizer.step()
        self.net.step += 1
        return value

    def mean(self, value):
        """The mean loss over a minibatch, of what `step` returned. Collective."""
        return self.batch.allreduce(value)

    def parameters(self):
        """All parameters, each whole: a list. Collective."""
        split = self.model.size > 1
        return [np.concatenate(self.model.allgather(p.value), axis=-1) if split else p.value for _, p in self.net.parameters]

    def free(self):
        for comm in self.comms:
            comm.Free()
