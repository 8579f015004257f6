"""`torch_serial.py` made data-parallel with PyTorch's DistributedDataParallel.

    torchrun --nproc-per-node 4 experiments/studies/usability/ddp.py

The minibatch is split without PyTorch's DistributedSampler, which repeats samples until the ranks have equally many:
then the mean would not be that of the serial program.
"""

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import Linear, MSELoss, Sequential, Tanh
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from gridgrad.datasets import load

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
train = load("airfoil", dtype=np.float64).train
net = Sequential(Linear(4, 64), Tanh(), Linear(64, 30), Tanh(), Linear(30, 1))
net = DistributedDataParallel(net)
loss = MSELoss(reduction="sum")
optimizer = SGD(net.parameters(), lr=0.05, momentum=0.9)

for epoch in range(3):
    order = np.random.default_rng(epoch).permutation(len(train))
    for start in range(0, len(train), 50):
        rows = order[start : start + 50]
        mine = rows[rank::size]
        x, y = torch.from_numpy(train.inputs(mine, ())), torch.from_numpy(train.targets(mine))
        optimizer.zero_grad()
        value = loss(net(x), y) / len(rows)
        (value * size).backward()  # DistributedDataParallel takes the mean over the ranks
        optimizer.step()
    value = value.detach()
    dist.all_reduce(value)
    print(epoch, value.item())
dist.destroy_process_group()
