"""The plan "marques": a master and its slaves send what equation 5.1 says. Random networks train with it, bit for bit."""

from functools import partial

import numpy as np
import pytest

from gridgrad.experiments.papers import marques2016_scaling as volumes
from gridgrad.nn import (
    SGD,
    Context,
    Conv2d,
    Flatten,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    SoftmaxCrossEntropy,
)
from gridgrad.nn.sequence import shapes
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.grid.devices import use_device
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.placement.placements import MASTER
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.prediction.cost import slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.mpi import mpi
from tests.parallel.equality import assert_same, block, grids, parallel, serial

SHAPE = 13, 12, 3


def net_of(dtype=np.float64):
    """Layers as those of the paper's networks, with sizes that nothing divides, and a branch."""
    layers = [Conv2d(3, 7, 5), LocalResponseNorm(5), MaxPool2d(2), Residual([Conv2d(7, 7, 3, padding=1, bias=False)]),
              Conv2d(7, 11, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(11, 5)]  # fmt: skip
    return Sequential(layers, seed=3, dtype=dtype, input_shape=SHAPE)


def minibatch(samples, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((samples, *SHAPE)), rng.integers(0, 5, samples)


def test_equation_5_1_as_printed():
    """One slave with all kernels of the first layer, in the paper's own letters."""
    layer = volumes.MarquesConvolution((32, 32, 3), (28, 28, 50), (5, 5), (0, 50))
    assert layer.upload(64) == 32**2 * 3 * 64 + 5**2 * 50 * 3 + 28**2 * 50 * 64


@mpi(2, 3, 4, 6, long=(6,))
def test_a_step_sends_what_equation_5_1_says(comm):
    x, y = minibatch(6)
    for sizes in grids(comm.size):
        ranks = sizes["model"]
        uneven, master_alone, last_alone = [3, 0, 1.5, 1, 0, 2][:ranks], [1] + [0] * (ranks - 1), [0] * (ranks - 1) + [1]
        for weights in (None, uneven, master_alone, last_alone):
            with ProcessGrid(comm, **sizes) as grid:
                shares = {"model": tuple(weights)} if weights else None
                net = parallelize(net_of(np.float32), grid, "marques", shares=shares)
                expected = []
                for layer, before, after in shapes(net_of().layers, SHAPE):
                    if layer.kind == "conv":
                        kernels = tuple(net.splits["model"].of_length(layer.outputs).sizes)
                        expected.append(volumes.MarquesConvolution(before, after, layer.window.kernel, kernels))
                train_step(net, SoftmaxCrossEntropy(), SGD(net, 0.1), *block(net, x.astype(np.float32), y), 6)
                mine = sum(record.bytes for (_, kind), record in grid.tally.records.items() if kind.startswith("hand"))
                assert comm.allreduce(mine) == volumes.marques_step(6, expected, sizes["batch"]), (sizes, weights)
                place_of_rank = grid.coordinates["model"]
                assert mine == 0 or not weights or place_of_rank == MASTER or weights[place_of_rank]


@mpi(3)
def test_kernels_may_have_any_owners_and_the_halves_of_backward_may_be_separate(comm):
    batches, sgd = [minibatch(5, seed) for seed in range(3)], partial(SGD, lr=0.02, momentum=0.9)
    expected = serial(net_of(), sgd, "cross-entropy", batches)
    owners = {"0": [1, 0, 2, 0, 1, 2, 2], "4": [1] * 6 + [0] * 5}
    with ProcessGrid(comm, model=3) as grid:
        found = parallel(net_of(), grid, "marques", sgd, "cross-entropy", batches, owners=owners)
        assert_same(found, expected, 1e-10, "owners")
        alone, context = net_of(), Context()
        x = batches[0][0]
        ones = np.ones_like(alone.forward(x, context))
        dx = alone.backward(ones.copy(), context, input_gradient=True).copy()
        net, context = parallelize(net_of(), grid, "marques"), Context()
        rows = net.input_block(len(x))
        y = net.forward(np.ascontiguousarray(x[rows]), context, len(x))
        mine = net.input_gradients(np.ones_like(y), context, input_gradient=True).copy()
        net.parameter_gradients(context)
        net.reduction.finish()
        np.testing.assert_allclose(mine, dx[rows], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(net.grads, alone.grads[: net.size], rtol=1e-10, atol=1e-12)
        assert net.size == (alone.size if comm.rank == MASTER else 0)


def test_the_rank_with_the_most_work_is_the_master():
    shares = {"model": (1, 2, 3)}
    for plan, rank in (("marques", MASTER), ("conv=marques,linear=marques", MASTER), ("out", 2)):
        assert slowest_rank(net_of(), PlacementSpec({"model": 3}, plan, shares)).coordinates["model"] == rank


def test_the_axis_height_and_other_plans_beside_it_are_refused():
    for sizes, plan, words in (
        ({"height": 2, "model": 2}, "marques", "axis height"), ({"model": 2}, "conv=marques,linear=out", "whole algorithm"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            place(net_of(), GridDescription(sizes), plan)


@mpi(2)
def test_ranks_on_other_devices_are_refused_by_all(comm):
    use_device(comm, "stand-in,cpu")
    with ProcessGrid(comm, model=comm.size) as grid, pytest.raises(ValueError, match="--device cpu for all ranks"):
        parallelize(net_of(), grid, "marques")
