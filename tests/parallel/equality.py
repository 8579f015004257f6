"""Training on one rank and on every grid, to be compared: what the tests of whole networks share."""

from itertools import product
from math import prod

import numpy as np

from nn import LOSSES, Context
from nn.device import to_device
from parallel import parallelize
from parallel.placement.partition import Partition, size
from parallel.training.steps import accumulated_step

RANKS = 1, 2, 3, 4, 5, 6, 7, 8


def grids(ranks, axes=("batch", "model")):
    """All grids of `ranks` places over the axes."""
    sizes = product(range(1, ranks + 1), repeat=len(axes))
    return [dict(zip(axes, places)) for places in sizes if prod(places) == ranks]


def serial(net, optimizer, loss, batches):
    """The losses and the state after a step on each (x, y) by the plain Sequential, with no parallel code involved.

    optimizer: a function of a network. loss: its name.
    """
    optimizer, loss, losses = optimizer(net), LOSSES[loss](), []
    context = Context()
    for x, y in batches:
        losses.append(loss.forward(net.forward(to_device(x), context), to_device(y), context))
        net.backward(loss.backward(context), context)
        optimizer.step()
        net.step += 1
    return losses, net.state_dict()


def parallel(net, grid, plan, optimizer, loss, batches, micro_batches=1, **options):
    """The same by the network that this rank of a grid runs. options: of `parallelize`."""
    net, losses = parallelize(net, grid, plan, **options), []
    optimizer = optimizer(net)
    for x, y in batches:
        parts = [part for part in Partition.even(len(x), micro_batches).parts if size(part)]
        mine = [(*block(net, x[part], y[part]), size(part)) for part in parts]
        losses.append(accumulated_step(net, LOSSES[loss](), optimizer, mine, len(x)))
    return losses, net.state_dict(everywhere=True)


def block(net, x, y):
    """This rank's block of a minibatch."""
    return np.ascontiguousarray(x[net.input_block(len(x))]), y[net.output_rows(len(x))]


def error(state, expected):
    """The largest difference of two states, relative to the largest number."""
    scale = max(np.abs(value).max() for value in expected.values())
    return max(np.abs(state[name] - value).max() for name, value in expected.items()) / scale
