"""Every redistribution gives the right result, is adjoint, and sends the bytes of the formula, also with empty parts."""

from itertools import product
from math import prod

import numpy as np

from gridgrad.nn import Context
from gridgrad.nn.device import to_device, to_host
from gridgrad.nn.kernels.window import along
from gridgrad.parallel import C, H, N, Partial, Partition, ProcessGrid, Redistribute, Replicate, Shard
from gridgrad.parallel.grid.group import LONG_GATHER
from gridgrad.parallel.placement.moves import elements_sent
from gridgrad.parallel.placement.partition import Split, size
from gridgrad.parallel.placement.placements import Invariant, W
from tests.mpi import mpi
from tests.parallel.equality import RANKS

WHOLE = Replicate(), Invariant()  # placements in which all ranks hold the same array
SHAPES = [(7, 11), (31, 7), (1, 2), (2, 1), (0, 5), (5, 12), (5, 7, 3, 4), (2, 2, 1, 7)]


def partitions(length, ranks):
    """Even, grouped, weighted (with empty parts), and by owner map."""
    rng = np.random.default_rng([length, ranks])
    found = [Partition.even(length, ranks), Partition.weighted(length, tuple(range(ranks)) if ranks > 1 else (1,))]
    if length % 4 == 0:
        found.append(Partition.even(length // 4, ranks).grouped(4))
    return [*found, Partition.owned(rng.integers(0, ranks, length), ranks)]


def placements(shape, ranks):
    yield from (Replicate(), Partial(), Invariant())
    for split in (Split(ranks), Split(ranks, tuple(range(1, ranks + 1)))):
        yield Shard(N, split)
    for dim in (C, H, W) if len(shape) == 4 else (C,):
        yield from (Shard(dim, partition) for partition in partitions(shape[dim], ranks))


def place(whole, placement, rank, ranks):
    """This rank's piece of an array under a placement; partial sums are random but for the last, which completes the sum."""
    if placement in WHOLE:
        return whole.copy()
    if placement == Partial():
        terms = [np.random.default_rng([9, r]).standard_normal(whole.shape) for r in range(ranks - 1)]
        return terms[rank] if rank < ranks - 1 else whole - sum(terms, np.zeros_like(whole))
    part = placement.partition_of(whole.shape[placement.dim]).part(rank)
    return whole[along(placement.dim, part)].copy()


def cases(comm):
    with ProcessGrid(comm, model=comm.size) as grid:
        for shape in SHAPES:
            whole = np.random.default_rng(1).standard_normal(shape)
            for source, target in product(placements(shape, comm.size), repeat=2):
                layer = Redistribute(grid.group("model"), source, target, shape[1:])
                yield grid, layer, whole, source, target


def forward(layer, x, samples):
    """The layer applied to a host array: a copy on the host."""
    return to_host(layer.forward(to_device(x), Context(batch_size=samples))).copy()


def backward(layer, dy, samples):
    return to_host(layer.input_gradient(to_device(dy), Context(batch_size=samples))).copy()


@mpi(*RANKS, long=(6, 7, 8))
def test_every_move_gives_the_target_placement(comm):
    for _, layer, whole, source, target in cases(comm):
        moved = forward(layer, place(whole, source, comm.rank, comm.size), len(whole))
        if target == Partial():  # only the sum is determined
            total = np.empty_like(moved)
            comm.Allreduce(moved, total)
            assert np.allclose(total, whole, rtol=0, atol=1e-12), (source, target, whole.shape)
        else:
            expected = place(whole, target, comm.rank, comm.size)
            assert np.allclose(moved, expected, rtol=0, atol=1e-12), (source, target, whole.shape)


@mpi(2, 3)
def test_long_gathers_give_what_short_ones_do(comm):
    """MPICH's own is slow with long ones: they go another way."""
    rows, features = LONG_GATHER // 8 + 3, Shard(C, Partition.even(7, comm.size))
    with ProcessGrid(comm, model=comm.size) as grid:
        layer = Redistribute(grid.group("model"), features, Replicate(), (7,))
        whole = np.random.default_rng(1).standard_normal((rows, 7))
        assert whole.nbytes > LONG_GATHER
        assert np.array_equal(forward(layer, place(whole, features, comm.rank, comm.size), rows), whole)
        array, parts = np.zeros(rows), Partition.even(rows, comm.size)
        array[parts.part(comm.rank)] = comm.rank
        grid.group("model").all_gather(array, array, parts.sizes, "test")
        assert np.array_equal(array, np.repeat(np.arange(comm.size), parts.sizes))


@mpi(*RANKS, long=(4, 5, 6, 7, 8))
def test_backward_is_the_adjoint_of_forward(comm):
    """<F x, y> = <x, F* y> for random x in the placement of the source and y in the adjoint one of the target."""

    def random(whole, placement):
        rng = np.random.default_rng([len(str(placement)), 0 if placement in WHOLE else comm.rank])
        return rng.standard_normal(place(whole, placement, comm.rank, comm.size).shape)

    def product_of(a, b, placement):  # the products of all ranks are summed, but those of Invariant arrays are all the same
        return comm.allreduce((a * b).sum()) / (comm.size if placement == Invariant() else 1)

    for _, layer, whole, source, target in cases(comm):
        x, y = random(whole, source), random(whole, target.adjoint)
        left = product_of(forward(layer, x.copy(), len(whole)), y, target)
        right = product_of(x, backward(layer, y.copy(), len(whole)), source)
        assert abs(left - right) <= 1e-11 * max(abs(left), 1), (source, target, whole.shape)


def closed_form(source, target, shape, ranks):
    """Elements that all ranks send together, from what each collective must move, whatever the table says."""
    elements, kinds = prod(shape), (type(source), type(target))
    if source == target or ranks == 1:
        return 0
    if source == Partial() and target in WHOLE:
        return 2 * (ranks - 1) * elements
    if source.dim is not None and target in WHOLE or kinds == (Partial, Shard):
        return (ranks - 1) * elements
    if kinds != (Shard, Shard):
        return 0
    before, behind = (p.partition_of(shape[p.dim]) for p in (source, target))
    if source.dim == target.dim:
        stay = sum(size(before.intersection(rank, behind, rank)) for rank in range(ranks))
        return (shape[source.dim] - stay) * (elements // shape[source.dim] if elements else 0)
    stay = sum(a * b for a, b in zip(before.sizes, behind.sizes, strict=True))
    pair = shape[source.dim] * shape[target.dim]
    return elements - stay * (elements // pair if pair else 0)


@mpi(*RANKS, long=(4, 5, 6, 7, 8))
def test_bytes_equal_the_formula(comm):
    for grid, layer, whole, source, target in cases(comm):
        x, dy = (place(whole, placement, comm.rank, comm.size) for placement in (source, target.adjoint))
        for move, array, pair in ((forward, x, (source, target)), (backward, dy, (target.adjoint, source.adjoint))):
            grid.tally.clear()
            move(layer, array, len(whole))
            sent = comm.allreduce(sum(record.bytes for record in grid.tally.records.values()))
            assert sent == 8 * closed_form(*pair, whole.shape, comm.size), (pair, whole.shape)
            assert sent == 8 * elements_sent(*pair, len(whole), whole.shape[1:], comm.size), (pair, whole.shape)


@mpi(2)
def test_large_all_reduces_go_in_pieces(comm, monkeypatch):
    monkeypatch.setattr("gridgrad.parallel.grid.group.MAX_ELEMENTS", 10)
    with ProcessGrid(comm, batch=2) as grid:
        array = to_device(np.arange(27.0))
        grid.group("batch").all_reduce(array, "test")
        assert np.array_equal(to_host(array), 2 * np.arange(27.0))
