"""`serial.py` made data-parallel by hand: each rank takes some samples of each minibatch, gradients are summed."""

import numpy as np
from mpi4py import MPI

from gridgrad.datasets import load
from gridgrad.nn import MSE, SGD, Context, Linear, Sequential, Tanh

comm = MPI.COMM_WORLD
train = load("airfoil", dtype=np.float64).train
net = Sequential([Linear(4, 64), Tanh(), Linear(64, 30), Tanh(), Linear(30, 1)], dtype=np.float64)
loss, optimizer, context = MSE(), SGD(net, lr=0.05, momentum=0.9), Context()

for epoch in range(3):
    order = np.random.default_rng(epoch).permutation(len(train))
    for start in range(0, len(train), 50):
        rows = order[start : start + 50]
        mine = rows[comm.rank :: comm.size]
        x, y = train.inputs(mine, ()), train.targets(mine)
        value = loss.forward(net.forward(x, context, len(rows)), y, context)  # this rank's part of the mean over all ranks
        net.backward(loss.backward(context), context)
        comm.Allreduce(MPI.IN_PLACE, net.grads)
        optimizer.step()
    print(epoch, comm.allreduce(value))
