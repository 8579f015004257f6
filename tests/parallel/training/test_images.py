"""Networks over images on every grid of three axes equal the serial ones: every layer, sizes that nothing divides."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from gridgrad.nn import (
    SGD,
    AvgPool2d,
    BatchNorm,
    Concat,
    Context,
    Conv2d,
    Dropout,
    Flatten,
    Layer,
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
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid.process_grid import AXES
from tests.mpi import mpi
from tests.parallel.equality import RANKS, assert_same, error, grids, parallel, serial

STEPS = 4


def cases(ranks, plans):
    """(grid sizes, plan): every grid of three axes with every plan, but for those that split the images twice."""
    for sizes, plan in product(grids(ranks, AXES), plans):
        if sizes["height"] == 1 or "height" not in plan:
            yield sizes, plan


def everything():
    """Every layer, on 13x13; height shards and blocks of channels are often empty."""
    return [
        Conv2d(3, 5, 3, padding=1), ReLU(), MaxPool2d(3, 2, 1), BatchNorm(5),
        Residual([Conv2d(5, 7, (3, 1), padding=(1, 0), bias=False), BatchNorm(7), Tanh(), Conv2d(7, 5, 1)]),
        LeakyReLU(0.1),
        Concat([Conv2d(5, 3, 5, padding=2), Sigmoid(), MaxPool2d(2, 1)],
               [MaxPool2d(3, 1, 1), Conv2d(5, 4, 2)], [AvgPool2d(2, 1)]),
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
    """Large kernels over few rows, 7x9: halos reach over several height shards."""
    return [Conv2d(2, 3, 5, padding=2), LocalResponseNorm(3), Conv2d(3, 4, (5, 3), padding=((4, 0), (1, 1))), ReLU(),
            AvgPool2d((3, 3), (1, 2), 1), Flatten(), Linear(4 * 7 * 5, 5)]  # fmt: skip


NETS = {everything: ((13, 13, 3), 3), strided: ((17, 17, 1), 7), tall: ((7, 9, 2), 5)}
PLANS = {
    everything: ["fewest-bytes", "out", "in", "laugier", "conv=height,linear=out", "conv=replicate,linear=fewest-bytes"],
    strided: [
        "fewest-bytes",
        "in",
        "conv=height,linear=in",
        "conv=width,linear=out",
        "out,in,out,in,replicate",
        "replicate,out,in,out,in",
        "redundant,out,redundant,in,redundant",
    ],
    tall: [
        "fewest-bytes", "laugier", "conv=height,linear=replicate", "conv=width,linear=in", "in,replicate,out",
        "conv=redundant,linear=in", "out,redundant,redundant",
    ],
}  # fmt: skip
CASES = [
    (everything, np.float64, (5, 1)),
    (strided, np.float64, (7, 3)),
    (tall, np.float64, (4,)),
    (everything, np.float32, (6,)),
]


def batches(layers, dtype, batch_sizes):
    """(x, y) of four global minibatches of these sizes by turns."""
    shape, outputs = NETS[layers]
    for step in range(STEPS):
        rng, batch_size = np.random.default_rng(step), batch_sizes[step % len(batch_sizes)]
        yield rng.standard_normal((batch_size, *shape)).astype(dtype), rng.integers(0, outputs, batch_size)


def network(layers, dtype):
    return Sequential(layers(), seed=3, dtype=dtype, input_shape=NETS[layers][0])


def sgd(net):
    return SGD(net, lr=0.02, momentum=0.9)


def on_one_rank(layers, dtype, batch_sizes):
    return serial(network(layers, dtype), sgd, "cross-entropy", batches(layers, dtype, batch_sizes))


def on_grid(grid, plan, layers, dtype, batch_sizes):
    return parallel(network(layers, dtype), grid, plan, sgd, "cross-entropy", batches(layers, dtype, batch_sizes))


@mpi(*RANKS, long=(3, 4, 5, 6, 7, 8), timeout=900)  # 8 ranks on 2 cores take half of it beside other tests
def test_four_steps_equal_serial(comm):
    for case in CASES:
        layers, dtype, _ = case
        expected = on_one_rank(*case)
        tolerance = 1e-10 if dtype == np.float64 else 1e-4
        # In float32 it is the same code with looser bounds: all plans in the long tests alone.
        plans = PLANS[layers] if dtype == np.float64 or comm.size > 4 else PLANS[layers][:2]
        for sizes, plan in cases(comm.size, plans):
            with ProcessGrid(comm, **sizes) as grid:
                found = on_grid(grid, plan, *case)
            assert_same(found, expected, tolerance, f"{layers.__name__} {dtype.__name__} {sizes} {plan}")


def many_channels():
    """Blocks wide enough for Winograd's algorithm."""
    return [Conv2d(3, 50, 3, padding=1), ReLU(), Conv2d(50, 49, 5, padding=2), ReLU(), MaxPool2d(2), Flatten(), Linear(3136, 5)]


@mpi(2, 3, 4, 5, 6, 7, 8, long=(4, 5, 6, 7, 8))
def test_blocks_of_many_channels_equal_serial(comm):
    shape, rng = (16, 16, 3), np.random.default_rng(0)
    same = [(rng.standard_normal((6, *shape)).astype(np.float32), rng.integers(0, 5, 6))] * 3
    make = partial(Sequential, seed=3, input_shape=shape)
    losses, expected = serial(make(many_channels()), sgd, "cross-entropy", same)
    for sizes, plan in cases(comm.size, ("out", "in", "replicate", "conv=height,linear=out")):
        with ProcessGrid(comm, **sizes) as grid:
            found, state = parallel(make(many_channels()), grid, plan, sgd, "cross-entropy", same)
        assert np.allclose(found, losses, rtol=1e-4, atol=0), (sizes, plan, found, losses)
        assert error(state, expected) < 1e-4, (sizes, plan)


@mpi(3, 4, 8, long=(4, 8))
def test_same_grid_twice_is_bitwise_equal(comm):
    few = list(batches(everything, np.float32, (5,)))[:3]
    for sizes, plan in product(grids(comm.size, AXES), ("fewest-bytes", "conv=replicate,linear=out")):
        runs = []
        for _ in range(2):
            with ProcessGrid(comm, **sizes) as grid:
                runs.append(parallel(network(everything, np.float32), grid, plan, sgd, "cross-entropy", few))
        assert runs[0][0] == runs[1][0]
        for name, value in runs[0][1].items():
            assert np.array_equal(value, runs[1][1][name]), name


@mpi(2, 4, 6, long=(4, 6))
def test_weights_and_running_statistics_move_in_and_out(comm):
    shape, _ = NETS[everything]
    trained = Sequential(everything(), seed=8, dtype=np.float64, input_shape=shape)
    x = np.random.default_rng(0).standard_normal((4, *shape))
    trained.forward(device.to_device(x), Context())
    expected = device.to_host(trained.forward(device.to_device(x)))
    for sizes, plan in cases(comm.size, PLANS[everything]):
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(trained, grid, plan)
            held = net.state_dict(everywhere=True)
            for name, value in trained.state_dict().items():
                assert np.array_equal(held[name], value), (sizes, plan, name)
            block = device.to_device(np.ascontiguousarray(x[net.input_block(4)]))
            y = device.to_host(net.forward(block, batch_size=4))
            assert np.allclose(y, expected[net.output_rows(4)], rtol=1e-11, atol=1e-13), (sizes, plan)


def refusal(*arguments):
    with pytest.raises(ValueError) as caught:
        parallelize(*arguments)
    return str(caught.value)


@mpi(2, 4)
def test_plans_that_do_not_fit_are_refused(comm):
    shape, _ = NETS[everything]
    wrong = {
        "height": "has no height to split",
        "conv=height": "names conv and linear",
        "conv=up,linear=out": "unknown choice 'up'",
        "out,in": "2 choices but the net has 8 layers",
    }
    with ProcessGrid(comm, model=comm.size) as grid:
        for plan, words in wrong.items():
            assert words in refusal(Sequential(everything(), input_shape=shape), grid, plan), plan
    with ProcessGrid(comm, height=comm.size) as grid:
        words = refusal(Sequential(everything(), input_shape=shape), grid, "conv=height,linear=out")
        assert "the axis height splits the images already" in words


@mpi(4)
def test_convolutions_by_height_and_dense_layers_by_columns_on_the_same_ranks(comm):
    """A plan that changes between layers: every rank has a height shard of the images, then a block of the weights."""
    with ProcessGrid(comm, model=4) as grid:
        net = parallelize(Sequential(tall(), input_shape=NETS[tall][0]), grid, "conv=height,linear=out")
        text = repr(net)
        assert "HaloConv2d" in text and "Linear(140, 5, block 140x" in text
        assert "Redistribute(Shard(dim=1) -> Shard(dim=0) of 7x5x4" in text


def flat_branches():
    """Branches behind a Flatten, whose features lie in blocks of channels, and a normalisation across features."""
    return [Conv2d(3, 5, 3, padding=1), ReLU(), MaxPool2d(2), Flatten(), LocalResponseNorm(3, 0.5),
            Residual([Linear(45, 45), ReLU()]), BatchNorm(45), Linear(45, 3)]  # fmt: skip


def flattened_apart():
    return [Conv2d(3, 5, 3, padding=1), Concat([MaxPool2d(2), Flatten()], [AvgPool2d(7), Flatten()]), Tanh(), Linear(50, 3)]


def pooled_to_one():
    return [Conv2d(3, 5, 3, padding=1), MaxPool2d(2), AvgPool2d(3), Flatten(),
            Residual([Linear(5, 5), Tanh(), Linear(5, 5)]), Linear(5, 3)]  # fmt: skip


def unpadded():
    """Convolutions that read their input where it lies, which a redistribution or a reader may have sliced."""
    return [Conv2d(6, 6, 3), Concat([Conv2d(6, 7, 2)], [Conv2d(6, 5, 2)]), MaxPool2d(2), Flatten(), Linear(48, 3)]


FLAT = {
    flat_branches: ((7, 7, 3), ("fewest-bytes", "out", "in", "replicate", "redundant")),
    flattened_apart: ((7, 7, 3), ("fewest-bytes", "out", "in")),
    pooled_to_one: ((7, 7, 3), ("out", "replicate,out,replicate,out", "in,out,in,out")),
    unpadded: ((7, 7, 6), ("out", "in", "out,in,in,out", "in,replicate,out,in", "redundant,redundant,out,in", "laugier")),
}
NETS |= {layers: (shape, 3) for layers, (shape, _) in FLAT.items()}


@mpi(*RANKS, long=(3, 4, 5, 6, 7, 8))
def test_branches_of_features_and_sliced_inputs_equal_serial(comm):
    for layers, (_, plans) in FLAT.items():
        expected = on_one_rank(layers, np.float64, (5,))
        for sizes, plan in cases(comm.size, plans):
            with ProcessGrid(comm, **sizes) as grid:
                found = on_grid(grid, plan, layers, np.float64, (5,))
            assert_same(found, expected, 1e-10, f"{layers.__name__} {sizes} {plan}")


class Softmax(Layer):
    """A layer that nobody has a rule for."""


@mpi(1, 2)
def test_layers_without_a_rule_are_refused(comm):
    with ProcessGrid(comm, model=comm.size) as grid:
        assert "no rule how to place a Softmax" in refusal(Sequential([Linear(3, 4), Softmax(), Linear(4, 2)]), grid)
        assert "give Sequential(.., input_shape=" in refusal(Sequential([Flatten(), Linear(12, 2)]), grid)
        assert "give Sequential(.., input_shape=" in refusal(Sequential([Conv2d(3, 2, 3)]), grid)
