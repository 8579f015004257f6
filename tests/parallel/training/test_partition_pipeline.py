"""Pipelines of hypergraph partitions: what they send, what they refuse, and ranks without work; random networks train them."""

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
from tests.parallel.equality import assert_same, on_first, serial
from tests.parallel.pipelines import train


def net(dtype=np.float64):
    layers = [
        Conv2d(3, 7, 3, padding=1), BatchNorm(7), ReLU(), Conv2d(7, 5, 3), ReLU(), MaxPool2d(2), Flatten(),
        Linear(45, 11), Tanh(), Dropout(0.3), Linear(11, 9), ReLU(), Linear(9, 5),
    ]  # fmt: skip
    return Sequential(layers, 3, dtype, (8, 8, 3))


def batches(number, samples=9):
    random = np.random.default_rng(0)
    return [(random.standard_normal((samples, 8, 8, 3)), random.integers(0, 5, samples)) for _ in range(number)]


def owners(ranks, seed, fine=False):
    """Any partition of the network; some ranks may own nothing of a layer."""
    random = np.random.default_rng(seed)
    layers = [layer for layer in net().leaves() if layer.kind]
    pairs = {layer.name: random.integers(0, ranks, (layer.inputs, layer.outputs)) for layer in layers[1:3]} if fine else {}
    return Owners(ranks, {layer.name: random.integers(0, ranks, layer.outputs) for layer in layers}, pairs, seed % ranks)


def sgd(net):
    return SGD(net, lr=0.1, momentum=0.9)


@mpi(3)
def test_a_rank_without_work_takes_part(comm):
    """It has nothing to compute, to send or to receive, only losses to sum."""
    data, idle = batches(4), Owners(3, {layer.name: np.arange(layer.outputs) % 2 for layer in net().leaves() if layer.kind})
    expected = on_first(comm, serial, net(), sgd, "cross-entropy", data, 1)
    for name in ("async:2:bound=0", "async:2", "1f1b"):
        with ProcessGrid(comm, model=3) as grid:
            found = train(parallelize(net(), grid, "hypergraph", pipeline=name, owners=idle), data, 1, sgd)
        if name != "async:2":  # its gradients are of older weights
            assert_same(found, expected, 1e-10, name)


@mpi(3)
def test_messages_and_bytes_are_those_of_the_exchanges(comm):
    (x, y), mine = batches(1)[0], owners(3, 0)
    sent = []
    for pipeline in (None, "1f1b"):
        with ProcessGrid(comm, model=3) as grid:
            one = parallelize(net(), grid, "hypergraph", owners=mine, pipeline=pipeline, micro_batches=3)
            one.learn(x, y, SoftmaxCrossEntropy(), sgd(one))
            records = [r for (_, kind), r in grid.tally.records.items() if kind in ("exchange", "send")]
            sent.append((sum(r.bytes for r in records), sum(r.messages for r in records)))
    assert sent[0] == sent[1] and sent[0][1] > 0


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
    (x, y), *_ = batches(1)
    with ProcessGrid(comm, model=2) as grid:
        one = parallelize(net(), grid, "hypergraph", pipeline="async:2", owners=owners(2, 0))
        trainer = one.trainer(SoftmaxCrossEntropy(), sgd(one))
        one.chunks[0].forward = None
        with pytest.raises(TypeError):
            trainer.step([one.blocks(x, y)], len(x))
        for again in (trainer.flush, lambda: one.predict(x)):
            with pytest.raises(ValueError, match="make the network anew"):
                again()
