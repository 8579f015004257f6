"""Winograd's algorithm on channels that ranks divide, which random networks are too small for, and their comparison itself."""

import numpy as np
import pytest

from gridgrad.nn import SGD, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential, SoftmaxCrossEntropy
from gridgrad.parallel import ProcessGrid, parallelize
from tests.mpi import mpi
from tests.parallel.equality import SMALL, assert_same, error


def many_channels():
    layers = [Conv2d(2, 50, 3, padding=1), ReLU(), Conv2d(50, 49, 5, padding=2), MaxPool2d(2), Flatten(), Linear(588, 3)]
    return Sequential(layers, seed=3, dtype=np.float32, input_shape=(8, 6, 2))


def learned(net):
    """(losses of three steps, state) of a network, serial or parallel."""
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((9, 8, 6, 2)).astype(np.float32), rng.integers(0, 3, 9)
    optimizer, loss = SGD(net, 0.1, 0.9), SoftmaxCrossEntropy()
    return [net.learn(x[:samples], labels[:samples], loss, optimizer) for samples in (9, 4, 1)], net.state_dict()


@mpi(2)
def test_many_channels_that_ranks_divide_train_as_on_one_rank(comm):
    with ProcessGrid(comm, model=2) as grid:
        found = learned(parallelize(many_channels(), grid, plan="out"))
    if comm.rank == 0:  # which has the state
        assert_same(found, learned(many_channels()), 1e-4, "model=2")


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
