"""Networks over images on every grid of three axes equal the serial ones: every layer, sizes that nothing divides."""

from itertools import product

import numpy as np

from nn import (
    LOSSES,
    SGD,
    AvgPool2d,
    BatchNorm,
    Concat,
    Conv2d,
    Dropout,
    Flatten,
    LeakyReLU,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Sigmoid,
    Tanh,
    device,
)
from parallel import ProcessGrid, parallelize, train_step
from tests.mpi import mpi
from tests.parallel.test_network import error

RANKS = 1, 2, 3, 4, 5, 6, 7, 8
STEPS = 10


def grids(ranks):
    """All grids of `ranks` places over the three axes."""
    sizes = product(range(1, ranks + 1), repeat=3)
    return [{"batch": b, "height": h, "model": m} for b, h, m in sizes if b * h * m == ranks]


def everything():
    """Every layer, on 13x13; strips and blocks of channels are often empty."""
    return [
        Conv2d(3, 5, 3, padding=1), ReLU(), MaxPool2d(3, 2, 1), BatchNorm(5),
        Residual([Conv2d(5, 7, (3, 1), padding=(1, 0), bias=False), BatchNorm(7), Tanh(), Conv2d(7, 5, 1)]),
        LeakyReLU(0.1),
        Concat([Conv2d(5, 3, 5, padding=2), Sigmoid(), MaxPool2d(2, 1)], [MaxPool2d(3, 1, 1), Conv2d(5, 4, 2)], [AvgPool2d(2, 1)]),
        LocalResponseNorm(5, 0.3, 0.6, 2.0), Dropout(0.2),
        Conv2d(12, 7, 3, stride=2, padding=1), ReLU(), AvgPool2d(2), Flatten(),
        Linear(7, 11), Tanh(), Dropout(0.3), Linear(11, 3),
    ]  # fmt: skip


def strided():
    """Strides and windows that leave rows out, 17x17, and a residual whose shortcut convolves."""
    return [
        Conv2d(1, 7, 5, stride=3, padding=2), Tanh(),
        Residual([Conv2d(7, 5, 3, stride=2, padding=1), ReLU(), Conv2d(5, 9, 3, padding=1)], [Conv2d(7, 9, 1, stride=2)]),
        ReLU(), MaxPool2d(2, 1), Flatten(), BatchNorm(36), Dropout(0.1), Linear(36, 7),
    ]  # fmt: skip


def tall():
    """Large kernels over few rows, 7x9: halos reach over several strips."""
    return [Conv2d(2, 3, 5, padding=2), LocalResponseNorm(3), Conv2d(3, 4, (5, 3), padding=((4, 0), (1, 1))), ReLU(),
            AvgPool2d((3, 3), (1, 2), 1), Flatten(), Linear(4 * 7 * 5, 5)]  # fmt: skip


NETS = {everything: ((13, 13, 3), 3), strided: ((17, 17, 1), 7), tall: ((7, 9, 2), 5)}
PLANS = {
    everything: ["fewest-bytes", "out", "in", "replicate", "conv=height,linear=out", "conv=replicate,linear=fewest-bytes"],
    strided: ["fewest-bytes", "in", "conv=height,linear=in", "out,in,out,in,replicate", "replicate,out,in,out,in"],
    tall: ["fewest-bytes", "laugier", "conv=height,linear=replicate", "in,replicate,out"],
}
CASES = [
    (everything, np.float64, (5, 1)),
    (strided, np.float64, (7, 3)),
    (tall, np.float64, (4,)),
    (everything, np.float32, (6,)),
]


def data(layers, dtype, batch_size, step):
    rng, (shape, outputs) = np.random.default_rng(step), NETS[layers]
    return rng.standard_normal((batch_size, *shape)).astype(dtype), rng.integers(0, outputs, batch_size)


def serial(layers, dtype, batch_sizes):
    """The losses and the state after ten steps of the plain Sequential, with no parallel code involved."""
    net = Sequential(layers(), seed=3, dtype=dtype)
    optimizer, loss, losses = SGD(net, lr=0.02, momentum=0.9), LOSSES["cross-entropy"](), []
    for step in range(STEPS):
        batch_size = batch_sizes[step % len(batch_sizes)]
        x, y = (device.to_device(a) for a in data(layers, dtype, batch_size, step))
        losses.append(loss.forward(net.forward(x, training=True), y, batch_size))
        net.backward(loss.backward())
        optimizer.step()
        net.step += 1
    return losses, net.state_dict()


def parallel(grid, layers, dtype, batch_sizes, plan):
    net = parallelize(Sequential(layers(), seed=3, dtype=dtype, input_shape=NETS[layers][0]), grid, plan)
    optimizer, losses = SGD(net, lr=0.02, momentum=0.9), []
    for step in range(STEPS):
        batch_size = batch_sizes[step % len(batch_sizes)]
        x, y = data(layers, dtype, batch_size, step)
        x, y = x[net.input_block(batch_size)], y[net.output_rows(batch_size)]
        losses.append(train_step(net, LOSSES["cross-entropy"](), optimizer, np.ascontiguousarray(x), y, batch_size))
    return losses, net.state_dict()


@mpi(*RANKS, timeout=300)
def test_ten_steps_equal_serial(comm):
    for layers, dtype, batch_sizes in CASES:
        losses, expected = serial(layers, dtype, batch_sizes)
        tolerance = 1e-10 if dtype == np.float64 else 1e-4
        for sizes, plan in product(grids(comm.size), PLANS[layers]):
            if sizes["height"] > 1 and "height" in plan:
                continue  # refused, see below
            with ProcessGrid(comm, **sizes) as grid:
                parallel_losses, state = parallel(grid, layers, dtype, batch_sizes, plan)
            case = f"{layers.__name__} {dtype.__name__} {sizes} {plan}"
            assert np.allclose(parallel_losses, losses, rtol=tolerance, atol=tolerance), f"{case}: {parallel_losses} {losses}"
            assert error(state, expected) < tolerance, f"{case}: {error(state, expected)}"
