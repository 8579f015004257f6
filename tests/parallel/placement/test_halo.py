"""Halos: the rows that a window covers arrive, backward adds their gradients, and the bytes agree with the formula."""

from itertools import product
from math import prod

import numpy as np

from gridgrad.experiments.common import byte_formulas
from gridgrad.nn import Context, Conv2d, LocalResponseNorm, MaxPool2d, ReLU, Sequential
from gridgrad.nn.device import to_device, to_host
from gridgrad.nn.kernels.window import Window
from gridgrad.parallel import C, H, Partition, ProcessGrid, Redistribute, Shard, parallelize
from gridgrad.parallel.placement.partition import size
from tests.mpi import mpi
from tests.parallel.equality import RANKS

WINDOWS = [  # (kernel, stride, padding above and below)
    (1, 1, (0, 0)), (3, 1, (1, 1)), (5, 1, (2, 2)), (3, 2, (1, 1)),
    (2, 3, (0, 0)), (5, 3, (0, 4)), (3, 1, (0, 0)), (7, 2, (3, 3)),
]  # fmt: skip


def elements_of_halo(samples, shape, window, ranks):
    """Elements that all ranks together send in one direction. shape: of a whole sample, whose rows are sharded.

    A rank receives each row of other ranks that the windows of its outputs cover once. With stride 1 and a k x k kernel these
    are (k - 1) rows at each border (Gholami et al. 2018, section 2.3), if every rank has at least that many.
    """
    length = shape[0]
    owned, outputs = (Partition.even(n, ranks) for n in (length, window.outputs(H, length)))
    needed = outputs.mapped(length, lambda part: window.input_part(H, part, length))
    missing = sum(needed.size(rank) - size(owned.intersection(rank, needed, rank)) for rank in range(ranks))
    return samples * prod(shape) // length * missing


def cases(comm):
    with ProcessGrid(comm, height=comm.size) as grid:
        group = grid.group("height")
        for height, (kernel, stride, padding) in product((7, 13, 17), WINDOWS):
            window = Window((kernel, 1), (stride, 1), (padding, (0, 0)))
            owned, outputs = (Partition.even(length, comm.size) for length in (height, window.output(height, 2)[0]))
            needed = Partition.of(height, tuple(window.input_part(H, rows, height) for rows in outputs.parts))
            whole = np.random.default_rng(height).standard_normal((3, height, 2, 5))
            halo = Redistribute(group, Shard(H, owned), Shard(H, owned).needing(needed), whole.shape[1:])
            yield grid, halo, whole, owned.part(comm.rank), needed.part(comm.rank), window


@mpi(*RANKS, long=(6, 7))
def test_the_needed_rows_arrive_and_their_gradients_return(comm):
    for _, halo, whole, own, need, _ in cases(comm):
        assert np.array_equal(
            to_host(halo.forward(to_device(whole[:, own].copy()), Context(batch_size=len(whole)))), whole[:, need]
        )
        # Backward is the adjoint: <F x, y> = <x, F* y> over all ranks.
        rng = np.random.default_rng([1, comm.rank])
        x, y = rng.standard_normal(whole[:, own].shape), rng.standard_normal(whole[:, need].shape)
        left = (to_host(halo.forward(to_device(x.copy()), Context(batch_size=len(whole)))) * y).sum()
        right = (x * to_host(halo.input_gradient(to_device(y.copy()), Context(batch_size=len(whole))))).sum()
        left, right = comm.allreduce(left), comm.allreduce(right)
        assert abs(left - right) <= 1e-11 * max(abs(left), 1)


@mpi(*RANKS, long=(6, 7, 8))
def test_bytes_equal_the_formula(comm):
    for grid, halo, whole, own, need, window in cases(comm):
        grid.tally.clear()
        halo.forward(to_device(whole[:, own].copy()), Context(batch_size=len(whole)))
        halo.input_gradient(to_device(whole[:, need].copy()), Context(batch_size=len(whole)))
        sent = comm.allreduce(sum(record.bytes for record in grid.tally.records.values()))
        assert sent == 2 * 8 * elements_of_halo(3, (whole.shape[1], 2, 5), window, comm.size), window
        if window.stride == (1, 1) and window.kernel[0] == 1 + sum(window.padding[0]) and 17 // comm.size > window.kernel[0]:
            borders = (comm.size - 1) * (window.kernel[0] - 1)  # as in Gholami et al. 2018
            assert elements_of_halo(3, (17, 2, 5), window, comm.size) == 3 * 2 * 5 * borders


@mpi(2, 3, 5)
def test_channels_have_halos_too(comm):
    whole = np.random.default_rng(0).standard_normal((2, 3, 3, 7))
    serial = Sequential([LocalResponseNorm(5, 0.5)], dtype=np.float64)
    expected = to_host(serial.forward(to_device(whole), Context())).copy()
    with ProcessGrid(comm, model=comm.size) as grid:
        owned = Partition.even(7, comm.size)
        needed = Partition.of(7, tuple(slice(max(0, own.start - 2), min(7, own.stop + 2)) for own in owned.parts))
        mine, seen = owned.part(comm.rank), needed.part(comm.rank)
        halo = Redistribute(grid.group("model"), Shard(C, owned), Shard(C, owned).needing(needed), whole.shape[1:])
        norm = LocalResponseNorm(5, 0.5)
        norm.before, norm.after = mine.start - seen.start, seen.stop - mine.stop
        context = Context(batch_size=len(whole))
        y = norm.forward(halo.forward(to_device(whole[..., mine].copy()), context), context)
        assert np.allclose(to_host(y), expected[..., mine], rtol=1e-12, atol=0)


def first_block_of_vgg16():
    return [Conv2d(3, 64, 3, padding=1), ReLU(), Conv2d(64, 64, 3, padding=1), ReLU(), MaxPool2d(2)]


@mpi(2, 4, long=(4,))
def test_height_shards_of_the_first_block_move_a_twentieth_of_what_channels_do(comm):
    """VGG16's first block at 224x224: the layers' own communication, forward and backward, and all gradients."""
    shape, batch_size, moved = (224, 224, 3), 2, {}
    for name, sizes, plan in (("height", {"height": comm.size}, "out"), ("channels", {"model": comm.size}, "fewest-bytes")):
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(Sequential(first_block_of_vgg16(), input_shape=shape), grid, plan)
            x = np.zeros((batch_size, *shape), np.float32)[net.input_block(batch_size)]
            context = Context()
            y = net.forward(to_device(np.ascontiguousarray(x)), context, batch_size=batch_size)
            net.backward(to_device(np.zeros(y.shape, np.float32)), context)
            net.reduction.finish()
            # How the images leave the block is not counted: it is a matter of what comes next.
            inside = sum(r.bytes for (layer, _), r in grid.tally.records.items() if layer != "output")
            moved[name] = comm.allreduce(inside)
    window = Window((3, 3), (1, 1), ((1, 1), (1, 1)))
    shapes = shape, (224, 224, 64), (224, 224, 64)
    halos = sum(elements_of_halo(batch_size, each, window, comm.size) for each in shapes)
    parameters = 27 * 64 + 64 + 9 * 64 * 64 + 64
    assert moved["height"] == 4 * (halos + byte_formulas.all_reduce(parameters, comm.size))
    assert moved["height"] <= 0.05 * moved["channels"], moved
