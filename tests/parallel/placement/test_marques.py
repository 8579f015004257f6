"""The plan "marques": a master and its slaves compute what one rank does, and send what equation 5.1 says."""

import json
from functools import partial

import numpy as np
import pytest

from gridgrad.experiments.papers import marques2016_scaling as volumes
from gridgrad.nn import (
    SGD,
    BatchNorm,
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
from gridgrad.parallel import ProcessGrid, Redistribute, Trace, parallelize, train_step
from gridgrad.parallel.grid.devices import use_device
from gridgrad.parallel.placement.partition import Partition, Split
from gridgrad.parallel.placement.placements import MASTER, AtMaster, C, Copies, N, Shard
from gridgrad.parallel.placement.plan import OUTPUTS
from gridgrad.parallel.plans.marques import EachWhole
from gridgrad.parallel.prediction.cost import slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.mpi import mpi
from tests.parallel.equality import RANKS, assert_same, block, grids, parallel, serial


def published():
    """The layers of the paper's networks, with sizes that nothing divides."""
    return [Conv2d(3, 7, 5), LocalResponseNorm(5), MaxPool2d(2), Conv2d(7, 11, 3), LocalResponseNorm(3), MaxPool2d(2),
            Flatten(), Linear(11, 5)]  # fmt: skip


def branching():
    """Containers, batch normalisation, strides, convolutions without biases, and several layers at the master."""
    return [Conv2d(3, 5, 3, stride=2, padding=1, bias=False), BatchNorm(5), ReLU(),
            Residual([Conv2d(5, 4, 3, padding=1), ReLU(), Conv2d(4, 5, 1)]), ReLU(), MaxPool2d(2), Flatten(),
            Linear(45, 9), BatchNorm(9), ReLU(), Linear(9, 5)]  # fmt: skip


NETS = {published: (13, 12, 3), branching: (13, 12, 3)}
UNEVEN = [3, 2, 1.5, 1, 1, 2, 0.5, 1]


def shares_of(ranks):
    """Even shares, uneven ones, some that are 0, and all kernels at one rank: the master, or a slave."""
    zeros = [0 if rank % 2 else 1 for rank in range(ranks)]
    without_master = [0, *UNEVEN[1:ranks]]
    found = [None, UNEVEN[:ranks], zeros, without_master, [1] + [0] * (ranks - 1), [0] * (ranks - 1) + [1]]
    return [{"model": tuple(weights)} if weights else None for weights in found if weights is None or any(weights)]


def net_of(layers, dtype=np.float64):
    return Sequential(layers(), seed=3, dtype=dtype, input_shape=NETS[layers])


def batches(layers, samples, steps=10, dtype=np.float64):
    for step in range(steps):
        rng = np.random.default_rng(step)
        yield rng.standard_normal((samples, *NETS[layers])).astype(dtype), rng.integers(0, 5, samples)


sgd = partial(SGD, lr=0.02, momentum=0.9)


def trained(layers, grid, samples=5, **options):
    return parallel(net_of(layers), grid, "marques", sgd, "cross-entropy", batches(layers, samples), **options)


@mpi(3, 4)
def test_the_same_grid_twice_is_bitwise_equal(comm):
    for shares in shares_of(comm.size):
        with ProcessGrid(comm, model=comm.size) as grid:
            (losses, one), (again, two) = (trained(published, grid, shares=shares) for _ in range(2))
        assert losses == again and all((one[name] == two[name]).all() for name in one)


@mpi(4, timeout=300)
def test_owners_micro_batches_and_all_reductions_equal_serial(comm):
    expected = serial(net_of(published), sgd, "cross-entropy", batches(published, 5))
    owners = {"0": [3, 0, 2, 0, 3, 2, 2], "3": [1] * 6 + [0] * 5}
    for options in ({"owners": owners}, {"reduction": "overlap:1"}, {"reduction": "shared"}):
        for sizes in ({"model": 4}, {"batch": 2, "model": 2}):
            if "owners" in options and sizes["model"] < 4:
                continue
            with ProcessGrid(comm, **sizes) as grid:
                assert_same(trained(published, grid, **options), expected, 1e-10, f"{options} {sizes}")
    expected = serial(net_of(published), sgd, "cross-entropy", batches(published, 5), 2)
    with ProcessGrid(comm, model=4) as grid:
        assert_same(trained(published, grid, micro_batches=2), expected, 1e-10, "micro-batches")


@mpi(3)
def test_the_halves_of_backward_and_the_gradient_of_the_input_equal_serial(comm):
    x, _ = next(batches(published, 4))
    alone, context = net_of(published), Context()
    dy = np.ones_like(alone.forward(x, context))
    expected = alone.backward(dy.copy(), context, input_gradient=True).copy()
    with ProcessGrid(comm, model=3) as grid:
        net, context = parallelize(net_of(published), grid, "marques"), Context()
        rows = net.input_block(4)
        y = net.forward(np.ascontiguousarray(x[rows]), context, 4)
        dx = net.input_gradients(np.ones_like(y), context, input_gradient=True).copy()
        net.parameter_gradients(context)
        net.reduction.finish()
        np.testing.assert_allclose(dx, expected[rows], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(net.grads, alone.grads[: net.size], rtol=1e-10, atol=1e-12)
        assert net.size == (alone.size if comm.rank == MASTER else 0)


@mpi(*RANKS[1:], long=(5, 6, 7))
def test_what_is_handed_out_is_handed_in(comm):
    """The adjoint identity <F x, y> = <x, F* y> of all three arrays of a convolution."""
    rng = np.random.default_rng(0)
    kernels, held = Partition.weighted(11, tuple(UNEVEN[: comm.size])), AtMaster(N, Split.at_rank(comm.size, MASTER))
    copies = Copies(N, EachWhole(tuple(n > 0 for n in kernels.sizes)))
    whole, shares = AtMaster(OUTPUTS, Partition.at_rank(11, comm.size, MASTER)), Shard(OUTPUTS, kernels)
    with ProcessGrid(comm, model=comm.size) as grid:
        group = grid.group("model")
        for source, target, shape in (
            (held, copies, (7, 5, 3)), (whole, shares, (3, 3, 11)), (Shard(C, kernels), held, (7, 5, 11)),
        ):  # fmt: skip
            move = Redistribute(group, source, target, shape)
            move.give_name("0")
            whole_shape = (4, *shape)
            x, y = (rng.standard_normal(local(whole_shape, placement, comm.rank)) for placement in (source, target))
            context = Context(batch_size=4)
            there, back = move.forward(x, context).copy(), move.input_gradient(y, context).copy()
            assert there.shape == y.shape and back.shape == x.shape
            one, other = (comm.allreduce(float((a * b).sum())) for a, b in ((there, y), (x, back)))
            assert abs(one - other) < 1e-12 * abs(one)


def local(shape, shard, rank):
    shape = list(shape)
    shape[shard.dim] = shard.partition_of(shape[shard.dim]).size(rank)
    return shape


def convolutions(net, splits, ranks):
    """What equation 5.1 asks for."""
    return [
        volumes.MarquesConvolution(before, after, layer.window.kernel, tuple(splits.of_length(layer.outputs).sizes))
        for layer, before, after in shapes(net.layers, net.input_shape) if layer.kind == "conv"
    ]  # fmt: skip


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_a_step_sends_what_equation_5_1_says(comm):
    for layers in NETS:
        for sizes in grids(comm.size):
            for shares in shares_of(sizes["model"]):
                with ProcessGrid(comm, **sizes) as grid:
                    net = parallelize(net_of(layers, np.float32), grid, "marques", shares=shares)
                    expected = convolutions(net_of(layers), net.splits["model"], sizes["model"])
                    x, y = next(batches(layers, 6, dtype=np.float32))
                    grid.tally.clear()
                    net.forward(block(net, x, y)[0], batch_size=6)
                    sent = comm.allreduce(sum(bytes_by_rank(grid)))
                    assert sent == volumes.marques_forward(6, expected, sizes["batch"]), (sizes, shares)
                    grid.tally.clear()
                    train_step(net, SoftmaxCrossEntropy(), SGD(net, 0.1), *block(net, x, y), 6)
                    mine = sum(bytes_by_rank(grid))
                    assert comm.allreduce(mine) == volumes.marques_step(6, expected, sizes["batch"]), (sizes, shares)
                    if grid.coordinates["model"] and shares and not shares["model"][grid.coordinates["model"]]:
                        assert mine == 0


def bytes_by_rank(grid):
    return [record.bytes for (_, kind), record in grid.tally.records.items() if kind.startswith("hand")]


def test_equation_5_1_as_printed():
    """One slave with all kernels of the first layer, in the paper's own letters."""
    layer = volumes.MarquesConvolution((32, 32, 3), (28, 28, 50), (5, 5), (0, 50))
    assert layer.upload(64) == 32**2 * 3 * 64 + 5**2 * 50 * 3 + 28**2 * 50 * 64


@mpi(3)
def test_a_trace_shows_what_is_handed_out_and_in(comm):
    with ProcessGrid(comm, model=3) as grid:
        net = parallelize(net_of(published, np.float32), grid, "marques", shares={"model": (2, 1, 0)})
        x, y = next(batches(published, 6, dtype=np.float32))
        optimizer = SGD(net, 0.1)
        with Trace(net) as trace:
            train_step(net, SoftmaxCrossEntropy(), optimizer, *block(net, x, y), 6)
        found = trace.timeline()
        if comm.rank == MASTER:
            json.dumps(found, allow_nan=False)
            names = [event["name"] for event in found["traceEvents"] if event["ph"] == "X"]
            assert {kind for kind in ("hand out", "hand in") if any(kind in name for name in names)} == {"hand out", "hand in"}
            assert any("HandedConv2d" in str(event) for event in found["traceEvents"])


def test_the_rank_with_the_most_work_is_the_master():
    net, shares = net_of(published), {"model": (1, 2, 3)}
    for plan in ("marques", "marques,marques,marques", "conv=marques,linear=marques"):
        assert slowest_rank(net, PlacementSpec({"model": 3}, plan, shares)).coordinates["model"] == MASTER
    assert slowest_rank(net, PlacementSpec({"model": 3}, "out", shares)).coordinates["model"] == 2


@mpi(2, 4)
def test_what_does_not_fit_is_refused(comm):
    cases = (({"height": 2, "model": comm.size // 2}, "marques", "no rule for the axis height"),
             ({"model": comm.size}, "conv=marques,linear=out", "marques is a whole algorithm"))  # fmt: skip
    for sizes, plan, words in cases:
        with ProcessGrid(comm, **sizes) as grid, pytest.raises(ValueError, match=words):
            parallelize(net_of(published), grid, plan)


@mpi(2, 4)
def test_ranks_on_other_devices_are_refused_by_all(comm):
    use_device(comm, "stand-in,cpu")
    with ProcessGrid(comm, model=comm.size) as grid, pytest.raises(ValueError, match="--device cpu for all ranks"):
        parallelize(net_of(published), grid, "marques")
