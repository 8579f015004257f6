"""The program of docs/tutorial.md: trains a network on airfoil noise on the grid that is named, such as batch=2,model=2."""

import sys

import numpy as np

from gridgrad.datasets import load
from gridgrad.nn import MSE, SGD, Linear, Sequential, Tanh
from gridgrad.parallel import parallelize

train = load("airfoil", dtype=np.float64).train
layers = [Linear(4, 64), Tanh(), Linear(64, 30), Tanh(), Linear(30, 1)]
net = Sequential(layers, seed=0, dtype=np.float64)
net = parallelize(net, sys.argv[1])
loss, optimizer = MSE(), SGD(net, lr=0.05, momentum=0.9)
first = net.grid.rank == 0
if first:
    print(net.grid, *net.layers, sep="\n  ")

for epoch in range(3):
    order = np.random.default_rng(epoch).permutation(len(train))
    for start in range(0, len(train), 50):
        rows = order[start : start + 50]
        value = net.learn(train.inputs(rows, ()), train.targets(rows), loss, optimizer)
    if first:
        print(f"epoch {epoch}, loss of the last minibatch {value:.8f}")
