"""`serial.py` made parallel in samples and columns by hand, on a grid of ranks as square as their number allows."""

import numpy as np
from mpi4py import MPI

from gridgrad.datasets import load
from gridgrad.nn import MSE, SGD, Context, Linear, Sequential, Tanh
from gridgrad.nn.layer import Block

grid = MPI.COMM_WORLD.Create_cart(MPI.Compute_dims(MPI.COMM_WORLD.size, 2))
batch, model = grid.Sub([True, False]), grid.Sub([False, True])


class ColumnLinear(Linear):
    """The columns of a Linear that this rank holds; takes and returns all features."""

    def __init__(self, inputs, outputs):
        self.mine = slice(model.rank * outputs // model.size, (model.rank + 1) * outputs // model.size)
        super().__init__(inputs, outputs)
        self.weight.layout, self.bias.layout = Block((slice(0, inputs), self.mine)), Block((self.mine,))

    def forward(self, x, context):
        return np.concatenate(model.allgather(super().forward(x, context)), axis=1)

    def gradients(self, dy, context):
        super().gradients(dy[:, self.mine], context)

    def input_gradient(self, dy, context):
        dx = super().input_gradient(dy[:, self.mine], context)
        model.Allreduce(MPI.IN_PLACE, dx)
        return dx


train = load("airfoil", dtype=np.float64).train
net = Sequential([ColumnLinear(4, 64), Tanh(), ColumnLinear(64, 30), Tanh(), ColumnLinear(30, 1)], dtype=np.float64)
loss, optimizer, context = MSE(), SGD(net, lr=0.05, momentum=0.9), Context()

for epoch in range(3):
    order = np.random.default_rng(epoch).permutation(len(train))
    for start in range(0, len(train), 50):
        rows = order[start : start + 50]
        mine = rows[batch.rank :: batch.size]
        x, y = train.inputs(mine, ()), train.targets(mine)
        value = loss.forward(net.forward(x, context, len(rows)), y, context)  # this rank's part of the mean over `batch`
        net.backward(loss.backward(context), context)
        batch.Allreduce(MPI.IN_PLACE, net.grads)
        optimizer.step()
    print(epoch, batch.allreduce(value))
