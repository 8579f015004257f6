"""The training of `serial.py` in PyTorch, on one process."""

import numpy as np
import torch
from torch.nn import Linear, MSELoss, Sequential, Tanh
from torch.optim import SGD

from gridgrad.datasets import load

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
train = load("airfoil", dtype=np.float64).train
net = Sequential(Linear(4, 64), Tanh(), Linear(64, 30), Tanh(), Linear(30, 1))
loss = MSELoss()
optimizer = SGD(net.parameters(), lr=0.05, momentum=0.9)

for epoch in range(3):
    order = np.random.default_rng(epoch).permutation(len(train))
    for start in range(0, len(train), 50):
        rows = order[start : start + 50]
        x, y = torch.from_numpy(train.inputs(rows, ())), torch.from_numpy(train.targets(rows))
        optimizer.zero_grad()
        value = loss(net(x), y)
        value.backward()
        optimizer.step()
    print(epoch, value.item())
