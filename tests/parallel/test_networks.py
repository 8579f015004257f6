"""Whole networks on small grids, to be read as examples of how to use the library.

A network is written as a serial one. `parallelize` gives each rank of a grid its part of it, and every rank passes the same
whole minibatches, of which it takes its part. Losses, weights and outputs are those of the serial network. Random
networks draw all other networks, grids, plans and options; they use the comparison that is tested at the end.
"""

import numpy as np
import pytest

from gridgrad.datasets import Part
from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.nn import (
    MSE,
    SGD,
    Adam,
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
    SoftmaxCrossEntropy,
    Tanh,
)
from gridgrad.parallel import ProcessGrid, evaluate, parallelize, predict, train_step
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


def branching():
    layers = [
        Conv2d(2, 4, 3, padding=1), ReLU(),
        Residual([Conv2d(4, 4, 3, padding=1), BatchNorm(4), ReLU()]),
        Concat([Conv2d(4, 3, 1)], [MaxPool2d(3, 1, 1), Conv2d(4, 2, 3, padding=1)]),
        Flatten(), Linear(240, 3),
    ]  # fmt: skip
    return Sequential(layers, seed=3, dtype=np.float64, input_shape=(8, 6, 2))


def many_channels():
    """Enough for Winograd's algorithm, also where two ranks divide them."""
    layers = [Conv2d(2, 50, 3, padding=1), ReLU(), Conv2d(50, 49, 5, padding=2), MaxPool2d(2), Flatten(), Linear(588, 3)]
    return Sequential(layers, seed=3, dtype=np.float32, input_shape=(8, 6, 2))


def sgd(net):
    return SGD(net, lr=lambda step: 0.1 / (1 + step), momentum=0.9)


def learned(net, x, optimizer=sgd):
    """(losses of three steps, the state with the outputs for the first samples) of a network, serial or parallel."""
    optimizer, loss = optimizer(net), SoftmaxCrossEntropy()
    losses = [net.learn(x[:samples], LABELS[:samples], loss, optimizer) for samples in (9, 4, 1)]  # ranks may have none
    outputs = net.predict(x[:5])  # of a parallel network it is on the first rank alone, as is the state
    state = net.state_dict()
    return losses, state if state is None else state | {"outputs": outputs}


def trains_as_the_serial_network(comm, make, x, sizes, tolerance=1e-10, optimizer=sgd, **options):
    """Hold a network on a grid of these sizes against the serial one. options: of `parallelize`. Collective."""
    with ProcessGrid(comm, **sizes) as grid:
        losses, state = learned(parallelize(make(), grid, **options), x, optimizer)
    if comm.rank == 0:
        assert_same((losses, state), learned(make(), x, optimizer), tolerance, (sizes, options))


@mpi(2)
def test_ranks_divide_the_samples(comm):
    trains_as_the_serial_network(comm, mlp, FEATURES, {"batch": 2})


@mpi(3)
def test_ranks_divide_the_weights_or_compute_a_layer_redundantly(comm):
    for plan in ("out,in,out", "out,in,redundant"):
        trains_as_the_serial_network(comm, mlp, FEATURES, {"model": 3}, plan=plan)


@mpi(3)
def test_ranks_have_uneven_shares_of_the_weights_or_none(comm):
    trains_as_the_serial_network(comm, mlp, FEATURES, {"model": 3}, plan="out", shares={"model": (3, 2, 0)})


@mpi(4)
def test_a_convolutional_network_divides_samples_and_rows_of_images(comm):
    trains_as_the_serial_network(comm, convolutional, IMAGES, {"batch": 2, "height": 2})


@mpi(4)
def test_a_convolutional_network_divides_samples_and_channels(comm):
    trains_as_the_serial_network(comm, convolutional, IMAGES, {"batch": 2, "model": 2}, plan="conv=out,linear=in")


@mpi(2)
def test_convolutions_with_many_channels(comm):
    trains_as_the_serial_network(comm, many_channels, IMAGES.astype(np.float32), {"model": 2}, 1e-4, plan="out")


@mpi(3)
def test_branches(comm):
    trains_as_the_serial_network(comm, branching, IMAGES, {"model": 3})


@mpi(3)
def test_a_rank_updates_its_shard_of_gradients_that_are_summed_during_backward(comm):
    def adam(net):
        return Adam(net, lr=0.01, eps=1e-3)

    trains_as_the_serial_network(comm, mlp, FEATURES, {"batch": 3}, optimizer=adam, reduction="overlap:1", update="sharded")


@mpi(4)
def test_a_pipeline_of_micro_batches(comm):
    options = {"pipeline": "1f1b", "micro_batches": 3, "cuts": (3,)}
    trains_as_the_serial_network(comm, mlp, FEATURES, {"stage": 2, "batch": 2}, **options)


@mpi(3)
def test_a_schedule_in_a_file(comm):
    trains_as_the_serial_network(comm, mlp, FEATURES, {"stage": 3}, pipeline=own_file(3, 3).name)


@mpi(2)
def test_an_asynchronous_pipeline(comm):
    trains_as_the_serial_network(comm, mlp, FEATURES, {"stage": 2}, pipeline="async:3")
    with ProcessGrid(comm, stage=2) as grid:
        net = parallelize(mlp(), grid, pipeline="async:3")
        trainer = net.trainer(SoftmaxCrossEntropy(), sgd(net))
        losses = [trainer.step([net.blocks(FEATURES, LABELS)], 9) for _ in range(5)]
        assert [len(known) for known in losses] == [0, 0, 0, 1, 1] and len(trainer.flush()) == 3
        assert net.step == 7 and comm.allreduce(max(trainer.staleness)) > 0  # gradients of older weights


@mpi(3)
def test_a_partition_of_the_network(comm):
    layers = [layer for layer in mlp().leaves() if layer.kind]
    owners = Owners(3, {layer.name: np.arange(layer.outputs) % 3 for layer in layers})
    for options in ({}, {"pipeline": "gpipe", "micro_batches": 3}):
        trains_as_the_serial_network(comm, mlp, FEATURES, {"model": 3}, plan="hypergraph", owners=owners, **options)


@mpi(4)
def test_a_data_set_is_read_by_the_ranks_that_need_it(comm):
    """Or rank 0 reads all and scatters it. Errors have the units of the data."""
    targets = np.random.default_rng(1).standard_normal((9, 3))
    part = Part(FEATURES, targets, FEATURES.mean(0), FEATURES.std(0), targets.mean(0), targets.std(0), dtype=np.float64)
    outputs = mlp().predict((FEATURES - FEATURES.mean(0)) / FEATURES.std(0))
    errors = np.square(outputs * targets.std(0) + targets.mean(0) - targets).mean(axis=0)
    for reader in READERS:
        with ProcessGrid(comm, batch=2, model=2) as grid:
            net = parallelize(mlp(), grid, "out,in,redundant")
            samples = READERS[reader](net, part)
            found = evaluate(net, part, "mse", samples, batch_size=4)
            assert found["rmse"] == pytest.approx(np.sqrt(errors), rel=1e-12), reader
            predicted = predict(net, part, samples, batch_size=4)
            assert (predicted is None) == (comm.rank > 0) and (comm.rank or np.allclose(predicted, outputs, rtol=1e-12))
            loss = train_step(net, MSE(), sgd(net), *samples.load(np.arange(9)), 9)  # with dropout
            assert np.isfinite(loss) and net.step == 3


# ----- the comparison with the serial network


def test_each_array_is_measured_by_its_own_scale_or_the_least_one():
    expected = {"weight": np.array([[1.0, -100.0], [3.0, 4.0]]), "bias": np.array([0.5, 0.25]), "none": np.zeros((0, 3))}
    rounding = expected | {"bias": np.array([3e-17, -1e-17])}
    assert error(expected, expected) == 0
    assert error(expected | {"bias": expected["bias"] + [0.01, 0]}, expected) == pytest.approx(0.02)
    assert error(rounding | {"bias": np.array([-2e-17, 0])}, rounding) < 1e-15
    assert error(rounding | {"bias": np.array([1e-3, 0])}, rounding) == pytest.approx(1e-3 / (100 * SMALL))
    for number in np.nan, np.inf:
        other = expected | {"bias": np.array([number, 0.25])}
        assert error(other, expected) == error(expected, other) == error(other, other) == np.inf
    for other in ({"weight": expected["weight"]}, expected | {"bias": expected["bias"][:1]}):
        with pytest.raises(AssertionError):
            error(other, expected)
