"""Every redistribution gives the right result, is adjoint, and sends the bytes of the formula, also with empty parts."""

from itertools import product
from math import prod

import numpy as np

from gridgrad.nn import Context
from gridgrad.nn.device import to_device, to_host
from gridgrad.nn.kernels.window import Window, along
from gridgrad.parallel import C, H, N, Partial, Partition, ProcessGrid, Redistribute, Replicate, Shard
from gridgrad.parallel.grid.group import LONG_GATHER
from gridgrad.parallel.placement.moves import elements_sent
from gridgrad.parallel.placement.partition import Split, size
from gridgrad.parallel.placement.placements import MASTER, AtMaster, Copies, Invariant, W
from gridgrad.parallel.plans.marques import EachWhole
from tests.mpi import mpi
from tests.parallel.equality import RANKS

WHOLE = Replicate(), Invariant()  # placements in which all ranks hold the same array
SHAPES = [(7, 11), (1, 2), (0, 5), (5, 12), (5, 7, 3, 4)]
WINDOWS = [(3, 1, (1, 1)), (5, 1, (2, 2)), (2, 3, (0, 0)), (5, 3, (0, 4)), (7, 2, (3, 3))]  # (kernel, stride, padding)


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


def halo(length, kernel, stride, padding, ranks):
    """(the rows that each rank owns, those that its outputs need), as placements."""
    window = Window((kernel, 1), (stride, 1), (padding, (0, 0)))
    owned, outputs = (Partition.even(n, ranks) for n in (length, window.outputs(H, length)))
    needed = Partition.of(length, tuple(window.input_part(H, rows, length) for rows in outputs.parts))
    return Shard(H, owned), Shard(H, owned).needing(needed)


def cases(comm):
    """(grid, a Redistribute, an array, its source, its target) of all moves: of plans, of halos, and of a master."""
    moves = [(shape, *pair) for shape in SHAPES for pair in product(placements(shape, comm.size), repeat=2)]
    for length, window in product((7, 17), WINDOWS):
        moves.append(((3, length, 2, 5), *halo(length, *window, comm.size)))
    kernels, samples = Partition.weighted(11, (*range(1, comm.size), 0) if comm.size > 1 else (1,)), (4, 7, 5, 11)
    held, copies = AtMaster(N, Split.at_rank(comm.size, MASTER)), Copies(N, EachWhole(tuple(n > 0 for n in kernels.sizes)))
    whole = AtMaster(C, Partition.at_rank(11, comm.size, MASTER))
    moves += [(samples, held, copies), (samples, whole, Shard(C, kernels)), (samples, Shard(C, kernels), held)]
    with ProcessGrid(comm, model=comm.size) as grid:
        for shape, source, target in moves:
            layer = Redistribute(grid.group("model"), source, target, shape[1:])
            layer.give_name("0")
            yield grid, layer, np.random.default_rng(1).standard_normal(shape), source, target


def place(whole, placement, rank, ranks):
    """This rank's piece of an array under a placement; partial sums are random but for the last, which completes the sum."""
    if placement in WHOLE:
        return whole.copy()
    if placement == Partial():
        terms = [np.random.default_rng([9, r]).standard_normal(whole.shape) for r in range(ranks - 1)]
        return terms[rank] if rank < ranks - 1 else whole - sum(terms, np.zeros_like(whole))
    part = placement.partition_of(whole.shape[placement.dim]).part(rank)
    return whole[along(placement.dim, part)].copy()


def moved(grid, way, x, samples):
    """(what a pass of a layer returns for a host array, in memory that is not clean; the bytes that this rank sends)."""
    context = Context(batch_size=samples)
    way(to_device(x.copy()), context)[...] = 7
    grid.tally.clear()
    found = to_host(way(to_device(x.copy()), context)).copy()
    return found, sum(record.bytes for record in grid.tally.records.values())


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_every_move_gives_the_target_is_adjoint_and_sends_what_the_formula_says(comm):
    """Adjoint: <F x, y> = <x, F* y> for x in the placement of the source and random y in the adjoint one of the target."""
    for grid, layer, whole, source, target in cases(comm):
        x, rng = place(whole, source, comm.rank, comm.size), np.random.default_rng(2)
        y = rng.standard_normal((comm.size, *place(whole, target, comm.rank, comm.size).shape))
        y = y[0 if target.adjoint in WHOLE else comm.rank]
        there, sent_forward = moved(grid, layer.forward, x, len(whole))
        back, sent_backward = moved(grid, layer.input_gradient, y, len(whole))
        words = source, target, whole.shape
        expected = whole if target == Partial() else place(whole, target, comm.rank, comm.size)
        total = comm.allreduce(there) if target == Partial() else there  # of terms only the sum is determined
        assert np.allclose(total, expected, rtol=0, atol=1e-12) and back.shape == x.shape, words
        mine = [np.sum(there * y), np.sum(x * back), sent_forward, sent_backward]
        left, right, *sent = np.sum(comm.allgather(mine), axis=0)
        left /= comm.size if target == Invariant() else 1  # the products of Invariant arrays are all the same
        right /= comm.size if source == Invariant() else 1
        assert abs(left - right) <= 1e-11 * max(abs(left), 1), words
        for pair, counted in zip(((source, target), (target.adjoint, source.adjoint)), sent, strict=True):
            assert counted == 8 * elements_sent(*pair, len(whole), whole.shape[1:], comm.size), (pair, whole.shape)
            if AtMaster not in map(type, pair):  # else equation 5.1 has the formula: see test_plans.py
                assert counted == 8 * closed_form(*pair, whole.shape, comm.size), (pair, whole.shape)


def closed_form(source, target, shape, ranks):
    """Elements that all ranks send together, from what each collective must move, whatever the table says."""
    elements, kinds = prod(shape), (type(source), type(target))
    if source == target or ranks == 1:
        return 0
    if source == Partial() and target in WHOLE:
        return 2 * (ranks - 1) * elements
    if source.dim is not None and target in WHOLE or kinds == (Partial, Shard):
        return (ranks - 1) * elements
    if source.dim is None or target.dim is None:
        return 0
    before, behind = (p.partition_of(shape[p.dim]) for p in (source, target))
    if source.dim == target.dim:
        arrive = sum(behind.sizes if type(target) is Copies else before.sizes)  # copies, or else terms
        stay = sum(size(before.intersection(rank, behind, rank)) for rank in range(ranks))
        return (arrive - stay) * (elements // shape[source.dim] if elements else 0)
    stay = sum(a * b for a, b in zip(before.sizes, behind.sizes, strict=True))
    pair = shape[source.dim] * shape[target.dim]
    return elements - stay * (elements // pair if pair else 0)


@mpi(2, 3)
def test_long_messages_arrive_as_short_ones_do(comm, monkeypatch):
    """MPICH's own gather is slow with long ones: they go another way. Large sums go in pieces."""
    monkeypatch.setattr("gridgrad.parallel.grid.group.MAX_ELEMENTS", 10)
    rows, features = LONG_GATHER // 8 + 3, Shard(C, Partition.even(7, comm.size))
    with ProcessGrid(comm, model=comm.size) as grid:
        group = grid.group("model")
        layer, whole = Redistribute(group, features, Replicate(), (7,)), np.random.default_rng(1).standard_normal((rows, 7))
        gathered, _ = moved(grid, layer.forward, place(whole, features, comm.rank, comm.size), rows)
        assert whole.nbytes > LONG_GATHER and np.array_equal(gathered, whole)
        terms = to_device(np.arange(27.0))
        group.all_reduce(terms, "test")
        assert np.array_equal(to_host(terms), comm.size * np.arange(27.0))
