"""`serial.py` made parallel by one line and its import: on any number of ranks, the planner chooses the grid.

    mpiexec -n 4 python experiments/studies/usability/automatic.py

`parallelize(net, "batch=4")` is data parallelism, "model=4" model parallelism, "batch=2,model=2" both at once.
"""

import numpy as np

from gridgrad.datasets import load
from gridgrad.nn import MSE, SGD, Linear, Sequential, Tanh
from gridgrad.parallel import parallelize

train = load("airfoil", dtype=np.float64).train
net = Sequential([Linear(4, 64), Tanh(), Linear(64, 30), Tanh(), Linear(30, 1)], dtype=np.float64)
net = parallelize(net)
loss, optimizer = MSE(), SGD(net, lr=0.05, momentum=0.9)

for epoch in range(3):
    order = np.random.default_rng(epoch).permutation(len(train))
    for start in range(0, len(train), 50):
        rows = order[start : start + 50]
        x, y = train.inputs(rows, ()), train.targets(rows)
        value = net.learn(x, y, loss, optimizer)
    print(epoch, value)
