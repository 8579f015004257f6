"""Whole networks on small grids, to be read as examples of how to use the library.

A network is written as a serial one. `parallelize` gives each rank of a grid its part of it, and every rank passes the same
whole minibatches, of which it takes its part. Losses, weights and outputs are those of the serial network. Random
networks draw all other networks, grids, plans and options; they use the comparison that is tested at the end.
"""

import numpy as np
import pytest

from gridgrad.nn import (
    SGD,
    Adam,
    BatchNorm,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Sequential,
    SoftmaxCrossEntropy,
    Tanh,
)
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.plans.hypergraph import Owners
from tests.mpi import mpi
from tests.parallel.equality import SMALL, assert_same, error
from tests.random_networks.case import own_file

rng = np.random.default_rng(0)
FEATURES, IMAGES, LABELS = rng.standard_normal((9, 7)), rng.standard_normal((9, 8, 6, 2)), rng.integers(0, 3, 9)


def mlp():
    layers = [Linear(7, 11), ReLU(), Dropout(0.3), Linear(11, 13), Tanh(), Linear(13, 3)]
    net = Sequential(layers, seed=3, dtype=np.float64, input_shape=(7,))
    net.step = 2  # as if it had been trained before
    return net


def convolutional():
    layers = [
        Conv2d(2, 4, 3, padding=1), BatchNorm(4), ReLU(), MaxPool2d(2), Dropout(0.2),
        Conv2d(4, 5, 3, padding=1), ReLU(), Flatten(), Linear(60, 3),
    ]  # fmt: skip
    return Sequential(layers, seed=3, dtype=np.float64, input_shape=(8, 6, 2))


def many_channels():
    """Enough for Winograd's algorithm, also where two ranks divide them."""
    layers = [Conv2d(2, 50, 3, padding=1), ReLU(), Conv2d(50, 49, 5, padding=2), MaxPool2d(2), Flatten(), Linear(588, 3)]
    return Sequential(layers, seed=3, dtype=np.float32, input_shape=(8, 6, 2))


def sgd(net):
    return SGD(net, lr=lambda step: 0.1 / (1 + step), momentum=0.9)


def adam(net):
    return Adam(net, lr=0.01, eps=1e-3)


def learned(net, x, optimizer):
    """(losses of three steps, the state with the outputs for the first samples) of a network, serial or parallel."""
    optimizer, loss = optimizer(net), SoftmaxCrossEntropy()
    losses = [net.learn(x[:samples], LABELS[:samples], loss, optimizer) for samples in (9, 4, 1)]  # ranks may have none
    outputs = net.predict(x[:5])  # of a parallel network it is on the first rank alone, as is the state
    state = net.state_dict()
    return losses, state if state is None else state | {"outputs": outputs}


def trains_as_the_serial_network(comm, make, x, sizes, optimizer=sgd, **options):
    """Hold a network on a grid of these sizes against the serial one. options: of `parallelize`. Collective."""
    with ProcessGrid(comm, **sizes) as grid:
        losses, state = learned(parallelize(make(), grid, **options), x, optimizer)
    if comm.rank == 0:
        tolerance = 1e-10 if x.dtype == np.float64 else 1e-4
        assert_same((losses, state), learned(make(), x, optimizer), tolerance, (sizes, options))


@mpi(2)
def test_two_ranks_divide_samples_or_channels(comm):
    trains_as_the_serial_network(comm, mlp, FEATURES, {"batch": 2})
    trains_as_the_serial_network(comm, many_channels, IMAGES.astype(np.float32), {"model": 2}, plan="out")


@mpi(3)
def test_three_ranks_divide_layers_or_share_out_the_optimizer(comm):
    for plan in ("out,in,out", "out,in,redundant"):
        trains_as_the_serial_network(comm, mlp, FEATURES, {"model": 3}, plan=plan)
    trains_as_the_serial_network(comm, mlp, FEATURES, {"model": 3}, plan="out", shares={"model": (3, 2, 0)})
    trains_as_the_serial_network(comm, mlp, FEATURES, {"batch": 3}, adam, reduction="overlap:1", update="sharded")


@mpi(4)
def test_four_ranks_divide_samples_and_images_by_rows_or_channels(comm):
    trains_as_the_serial_network(comm, convolutional, IMAGES, {"batch": 2, "height": 2})
    trains_as_the_serial_network(comm, convolutional, IMAGES, {"batch": 2, "model": 2}, plan="conv=out,linear=in")


@mpi(2, 3, 4)
def test_pipelines_with_known_schedules_own_ones_and_asynchronous_ones(comm):
    sizes, options = {
        2: ({"stage": 2}, {"pipeline": "async:3"}),
        3: ({"stage": 3}, {"pipeline": own_file(3, 3).name}),
        4: ({"stage": 2, "batch": 2}, {"pipeline": "1f1b", "micro_batches": 3, "cuts": (3,)}),
    }[comm.size]
    trains_as_the_serial_network(comm, mlp, FEATURES, sizes, **options)


@mpi(3)
def test_a_partition_of_the_network(comm):
    layers = [layer for layer in mlp().leaves() if layer.kind]
    owners = Owners(3, {layer.name: np.arange(layer.outputs) % 3 for layer in layers})
    for options in ({}, {"pipeline": "gpipe", "micro_batches": 3}):
        trains_as_the_serial_network(comm, mlp, FEATURES, {"model": 3}, plan="hypergraph", owners=owners, **options)


# ----- the comparison with the serial network


def test_each_array_is_measured_by_its_own_scale_or_the_least_one():
    expected = {"weight": np.array([[1.0, -100.0], [3.0, 4.0]]), "bias": np.array([0.5, 0.25]), "none": np.zeros((0, 3))}
    rounding = expected | {"bias": np.array([3e-17, -1e-17])}
    assert error(expected, expected) == 0
    assert error(expected | {"bias": expected["bias"] + [0.01, 0]}, expected) == pytest.approx(0.02)
    assert error(rounding | {"bias": np.array([1e-3, 0])}, rounding) == pytest.approx(1e-3 / (100 * SMALL))
    other = expected | {"bias": np.array([np.nan, 0.25])}
    assert error(other, expected) == error(expected, other) == error(other, other) == np.inf
    with pytest.raises(AssertionError):
        error({"weight": expected["weight"]}, expected)
