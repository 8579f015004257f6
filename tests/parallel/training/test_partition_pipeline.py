"""Pipelines of hypergraph partitions: what they refuse; random networks train them and count what they send."""

import numpy as np
import pytest

from gridgrad.nn import (
    SGD,
    BatchNorm,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    SoftmaxCrossEntropy,
    Tanh,
)
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.plans.hypergraph import Owners
from tests.mpi import mpi


def net(dtype=np.float64):
    layers = [
        Conv2d(3, 7, 3, padding=1), BatchNorm(7), ReLU(), Conv2d(7, 5, 3), ReLU(), MaxPool2d(2), Flatten(),
        Linear(45, 11), Tanh(), Dropout(0.3), Linear(11, 9), ReLU(), Linear(9, 5),
    ]  # fmt: skip
    return Sequential(layers, 3, dtype, (8, 8, 3))


def owners(ranks, seed, fine=False):
    """Any partition of the network; some ranks may own nothing of a layer."""
    random = np.random.default_rng(seed)
    layers = [layer for layer in net().leaves() if layer.kind]
    pairs = {layer.name: random.integers(0, ranks, (layer.inputs, layer.outputs)) for layer in layers[1:3]} if fine else {}
    return Owners(ranks, {layer.name: random.integers(0, ranks, layer.outputs) for layer in layers}, pairs, seed % ranks)


@mpi(2)
def test_what_a_partition_cannot_do_is_said_in_one_line(comm):
    branched = Sequential([Linear(4, 6), Residual([Linear(6, 6)]), Linear(6, 3)], 0, np.float64, (4,))
    parts = {layer.name: np.arange(layer.outputs) % 2 for layer in branched.leaves() if layer.kind}
    for serial_net, options, word in (
        (net(), {"pipeline": "zb-h1", "owners": owners(2, 0)}, "zb-h1"),
        (net(), {"pipeline": "1f1b", "owners": owners(2, 0), "cuts": (3,)}, "cuts"),
        (branched, {"pipeline": "1f1b", "owners": Owners(2, parts)}, "branches"),
    ):
        with ProcessGrid(comm, model=2) as grid, pytest.raises(ValueError, match=word) as failure:
            parallelize(serial_net, grid, "hypergraph", **options)
        assert "\n" not in str(failure.value)


@mpi(2)
def test_what_was_interrupted_is_not_trained_any_more(comm):
    x, y = np.ones((9, 8, 8, 3)), np.arange(9) % 5
    with ProcessGrid(comm, model=2) as grid:
        one = parallelize(net(), grid, "hypergraph", pipeline="async:2", owners=owners(2, 0))
        trainer = one.trainer(SoftmaxCrossEntropy(), SGD(one, 0.1))
        one.chunks[0].forward = None
        with pytest.raises(TypeError):
            trainer.step([one.blocks(x, y)], len(x))
        for again in (trainer.flush, lambda: one.predict(x)):
            with pytest.raises(ValueError, match="make the network anew"):
                again()
