"""`serial.py` made model-parallel by hand: each rank holds some columns of every weight matrix."""

import numpy as np
from mpi4py import MPI

from gridgrad.datasets import load
from gridgrad.nn import MSE, SGD, Linear, Sequential, Tanh
from gridgrad.nn.layer import Block

comm = MPI.COMM_WORLD


class ColumnLinear(Linear):
    """The columns of a Linear that this rank holds; takes and returns all features."""

    def __init__(self, inputs, outputs):
        self.mine = slice(comm.rank * outputs // comm.size, (comm.rank + 1) * outputs // comm.size)
        super().__init__(inputs, outputs)
        self.weight.layout, self.bias.layout = Block((slice(0, inputs), self.mine)), Block((self.mine,))

    def forward(self, x, context):
        return np.concatenate(comm.allgather(super().forward(x, context)), axis=1)

    def gradients(self, dy, context):
        super().gradients(dy[:, self.mine], context)

    def input_gradient(self, dy, context):
        dx = super().input_gradient(dy[:, self.mine], context)
        comm.Allreduce(MPI.IN_PLACE, dx)
        return dx


train = load("airfoil", dtype=np.float64).train
net = Sequential([ColumnLinear(4, 64), Tanh(), ColumnLinear(64, 30), Tanh(), ColumnLinear(30, 1)], dtype=np.float64)
loss, optimizer = MSE(), SGD(net, lr=0.05, momentum=0.9)

for epoch in range(3):
    order = np.random.default_rng(epoch).permutation(len(train))
    for start in range(0, len(train), 50):
        rows = order[start : start + 50]
        x, y = train.inputs(rows, ()), train.targets(rows)
        value = net.learn(x, y, loss, optimizer)
    print(epoch, value)
