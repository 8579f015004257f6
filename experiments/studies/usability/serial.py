"""Trains a network on airfoil noise, as a user writes it for one process; prints the loss of each epoch's last minibatch."""

import numpy as np

from gridgrad.datasets import load
from gridgrad.nn import MSE, SGD, Linear, Sequential, Tanh

train = load("airfoil", dtype=np.float64).train
net = Sequential([Linear(4, 64), Tanh(), Linear(64, 30), Tanh(), Linear(30, 1)], dtype=np.float64)
loss, optimizer = MSE(), SGD(net, lr=0.05, momentum=0.9)

for epoch in range(3):
    order = np.random.default_rng(epoch).permutation(len(train))
    for start in range(0, len(train), 50):
        rows = order[start : start + 50]
        x, y = train.inputs(rows, ()), train.targets(rows)
        value = net.learn(x, y, loss, optimizer)
    print(epoch, value)
