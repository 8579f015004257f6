"""Networks, schedules and training runs that the tests of pipelines share."""

from functools import partial

import numpy as np

from gridgrad.nn import (
    SGD,
    BatchNorm,
    Concat,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Tanh,
)
from gridgrad.parallel.pipeline.schedule import Instruction, Route, Schedule
from tests.parallel.equality import block, micro_batches_of

momentum = partial(SGD, lr=0.05, momentum=0.9)


def mlp():
    return [Linear(7, 11), ReLU(), Linear(11, 13), Tanh(), Linear(13, 5), ReLU(), Linear(5, 3)]


def dense():
    """With statistics of each micro-batch, random masks and branches."""
    start = [Linear(7, 11), BatchNorm(11), ReLU(), Dropout(0.3), Residual([Linear(11, 11), Tanh()])]
    return [*start, Linear(11, 5), BatchNorm(5), ReLU(), Linear(5, 3)]


def images():
    branch = [Conv2d(4, 4, 3, padding=1), BatchNorm(4), ReLU()]
    return [Conv2d(2, 4, 3, padding=1), BatchNorm(4), ReLU(), MaxPool2d(2), Residual(branch),
            Concat([Conv2d(4, 2, 3, padding=1)], [MaxPool2d(3, 1, 1)]), Dropout(0.2), Flatten(), Linear(6 * 12, 5), ReLU(),
            Linear(5, 3)]  # fmt: skip


SHAPES = {mlp: (7,), dense: (7,), images: (8, 6, 2)}


def serial_net(layers, dtype=np.float64):
    return Sequential(layers(), seed=5, dtype=dtype, input_shape=SHAPES[layers])


def minibatches(layers, sizes, dtype=np.float64):
    """(x, y) of each minibatch, a list."""
    rng = np.random.default_rng(1)
    return [(rng.standard_normal((n, *SHAPES[layers])).astype(dtype), rng.integers(0, 3, n)) for n in sizes]


def parts_of(net, x, y, micro_batches=1):
    """This rank's (x, y, samples) of each micro-batch."""
    return [(*block(net, x[part], y[part]), part.stop - part.start) for part in micro_batches_of(len(x), micro_batches)]


def own_schedule(stages, micro_batches):
    """Unlike all known ones: the first chunk is on the last rank, the last gradients come first, those of parameters last."""
    route = Route.of_stages(reversed(range(stages)))
    rows = [
        [Instruction("F", chunk, b) for b in range(micro_batches)]
        + [Instruction("I", chunk, b) for b in reversed(range(micro_batches))]
        + [Instruction("W", chunk, b) for b in range(micro_batches)]
        for chunk in reversed(range(stages))
    ]
    return Schedule(rows, route)
