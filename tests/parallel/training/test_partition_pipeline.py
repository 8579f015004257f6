"""Pipelines of hypergraph partitions: whatever rank owns a filter, they train as the serial network."""

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.nn import (
    LOSSES,
    SGD,
    BatchNorm,
    Context,
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
from gridgrad.parallel import ProcessGrid, Trace, parallelize
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.training.steps import Diverged
from tests.mpi import mpi
from tests.parallel.equality import assert_same, on_first, parallel, serial
from tests.parallel.pipelines import train
from tests.parallel.stale_gradients import largest_difference, train_noting

SCHEDULES = "gpipe", "1f1b", "async:1", "async:3:bound=0"


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


@mpi(1, 2, 3, 4, 5, 7, 8, long=(4, 5, 7, 8))
def test_it_trains_the_serial_network(comm):
    data, p = batches(3), comm.size
    for model in [p, p // 2] if p > 1 and p % 2 == 0 else [p]:
        for seed, fine in enumerate((False, True)):
            for name in SCHEDULES:
                for micro_batches in (1,) if name.startswith("async") else ((1, 3), (2 * model + 1,))[fine]:
                    expected = on_first(comm, serial, net(), sgd, "cross-entropy", data, micro_batches)
                    with ProcessGrid(comm, model=model, batch=p // model) as grid:
                        options = {"pipeline": name, "owners": owners(model, seed, fine)}
                        found = parallel(net(), grid, "hypergraph", sgd, "cross-entropy", data, micro_batches, **options)
                    assert_same(found, expected, 1e-10, f"{name} {micro_batches} {grid}")


@mpi(2, 3, 4)
def test_ranks_do_not_wait_for_each_other_where_layers_go_back_and_forth(comm):
    """A rank that waits for the loss of an earlier step may be that for which the rank that knows it waits in a later one."""
    data = [(x[:, 0, :2].reshape(len(x), -1), y) for x, y in batches(14, samples=4)]
    for seed in range(3):
        for name in ("async:2", f"async:{2 * comm.size}"):
            random = np.random.default_rng(seed)
            layers = [layer for _ in range(8) for layer in (Linear(6, 6), Tanh())]
            deep = Sequential([*layers, Linear(6, 5)], 3, np.float64, (6,))
            weighted = [layer for layer in deep.leaves() if layer.kind]
            whole = {layer.name: np.full(layer.outputs, random.integers(comm.size)) for layer in weighted}
            with ProcessGrid(comm, model=comm.size) as grid:
                owned = Owners(comm.size, whole, {}, 0)
                found = train(parallelize(deep, grid, "hypergraph", pipeline=name, owners=owned), data, 1, sgd)
            assert np.isfinite(found[0]).all() and len(found[0]) == len(data), f"{name}, seed {seed}"


@mpi(3)
def test_a_rank_without_work_takes_part(comm):
    """As where there are more ranks than neurons: it has nothing to compute, to send or to receive, only losses to sum."""
    data, idle = batches(5), Owners(3, {layer.name: np.arange(layer.outputs) % 2 for layer in net().leaves() if layer.kind})
    expected = on_first(comm, serial, net(), sgd, "cross-entropy", data, 1)
    for name in ("async:1", "async:2:bound=0", "async:2", "1f1b"):
        with ProcessGrid(comm, model=3) as grid:
            found = train(parallelize(net(), grid, "hypergraph", pipeline=name, owners=idle), data, 1, sgd)
        if name != "async:2":  # its gradients are of older weights
            assert_same(found, expected, 1e-10, name)


@mpi(2, 3, 4)
def test_each_gradient_is_of_the_weights_that_its_forward_used(comm):
    """Of every minibatch, chunk and rank the weights are noted at forward; the serial network is given all of them together."""
    data = batches(7)
    with ProcessGrid(comm, model=comm.size) as grid:
        one = parallelize(net(), grid, "hypergraph", pipeline="async:3", owners=owners(comm.size, 1))
        trainer = one.trainer(SoftmaxCrossEntropy(), sgd(one))
        noted = comm.allgather(train_noting(one, trainer, data))
        assert comm.allreduce(max(trainer.staleness), MPI.MAX) > 0, "nothing was stale: the test shows nothing"
    assert on_first(comm, largest_difference, net, SoftmaxCrossEntropy(), data, noted) < 1e-10


@mpi(2)
def test_what_a_partition_cannot_do_is_said_in_one_line(comm):
    def message(serial, **options):
        with ProcessGrid(comm, model=2) as grid, pytest.raises(ValueError) as failure:
            parallelize(serial, grid, "hypergraph", **options)
        return str(failure.value)

    mine = {"owners": owners(2, 0)}
    assert message(net(), pipeline="zb-h1", **mine).startswith("pipeline zb-h1 is for whole layers: a partition takes gpipe")
    assert message(net(), pipeline="1f1b", cuts=(3,), **mine).startswith("cuts are for the axis stage")
    branched = lambda: Sequential([Linear(4, 6), Residual([Linear(6, 6)]), Linear(6, 3)], 0, np.float64, (4,))  # noqa: E731
    parts = {layer.name: np.arange(layer.outputs) % 2 for layer in branched().leaves() if layer.kind}
    words = message(branched(), pipeline="1f1b", owners=Owners(2, parts))
    assert "has no pipeline where branches" in words and "\n" not in words


@mpi(3)
def test_messages_and_bytes_are_those_of_the_exchanges(comm):
    (x, y), mine = batches(1)[0], owners(3, 0)
    sent = []
    for pipeline in (None, "1f1b"):
        with ProcessGrid(comm, model=3) as grid:
            one = parallelize(net(), grid, "hypergraph", owners=mine, pipeline=pipeline, micro_batches=3)
            one.learn(x, y, LOSSES["cross-entropy"](), sgd(one))
            records = [r for (_, kind), r in grid.tally.records.items() if kind in ("exchange", "send")]
            sent.append((sum(r.bytes for r in records), sum(r.messages for r in records)))
    assert sent[0] == sent[1] and sent[0][1] > 0


@mpi(2, 3)
def test_traces_and_divergence_of_all_ranks_together(comm):
    """Ranks with very different parts of the work are at different steps when the loss of one is known."""
    parts = {layer.name: np.minimum(np.arange(layer.outputs), comm.size - 1) for layer in net().leaves() if layer.kind}
    for name in ("async:4", "async:4:nostash"):
        with ProcessGrid(comm, model=comm.size) as grid:
            one = parallelize(net(), grid, "hypergraph", pipeline=name, owners=Owners(comm.size, parts, loss=comm.size - 1))
            optimizer = SGD(one, lr=lambda step: 0.01 if step < 6 else 1e200)
            trainer, losses = one.trainer(SoftmaxCrossEntropy(), optimizer), []
            with Trace(one, 3) as trace:
                for x, y in batches(3):
                    losses += trainer.step([one.blocks(x, y)], len(x))
                losses += trainer.flush()
            assert len(losses) == 3 and (trace.timeline() is None) == (comm.rank > 0)
            with pytest.raises(Diverged):
                for x, y in batches(20):
                    trainer.step([one.blocks(x, y)], len(x))
            assert trainer.flush() == []


@mpi(2)
def test_what_was_interrupted_is_not_trained_any_more(comm):
    (x, y), *_ = batches(1)
    with ProcessGrid(comm, model=2) as grid:
        one = parallelize(net(), grid, "hypergraph", pipeline="async:2", owners=owners(2, 0))
        loss, optimizer = SoftmaxCrossEntropy(), sgd(one)
        old = one.trainer(loss, optimizer)
        trainer = one.trainer(SoftmaxCrossEntropy(), optimizer)
        with pytest.raises(ValueError, match="no longer the newest"):
            old.step([one.blocks(x, y)], len(x))
        with pytest.raises(ValueError, match="leave the context out"):
            one.trainer(loss, optimizer, Context())
        trainer.step([one.blocks(x, y)], len(x))
        with pytest.raises(ValueError, match="under way"):
            one.learn(x, y, trainer.loss, optimizer)
        trainer.flush()
        one.chunks[0].forward = None
        with pytest.raises(TypeError):
            trainer.step([one.blocks(x, y)], len(x))
        for again in (trainer.flush, lambda: one.predict(x)):
            with pytest.raises(ValueError, match="make the network anew"):
                again()
