"""Every redistribution: right, adjoint, counted by the formula; on awkward sizes, empty parts included."""

from itertools import product

import numpy as np

from nn.device import to_device, to_host
from parallel import C, H, N, Partial, ProcessGrid, Redistribute, Replicate, Shard, split
from parallel.grid.group import LONG_GATHER
from parallel.placement.laugier import CopyThenReduce, GatherThenSlice
from parallel.placement.layout import parts_of_features
from parallel.placement.redistribute import MOVES
from parallel.placement.partition import size
from parallel.placement.volume import redistribution
from tests.mpi import mpi

SIZES = [  # (shape of the whole array, features that stay together)
    ((7, 11), 1), ((31, 7), 1), ((1, 2), 1), ((2, 1), 1), ((0, 5), 1), ((5, 12), 4), ((5, 7, 3, 4), 1), ((2, 2, 1, 7), 1)
]  # fmt: skip
RANKS = 1, 2, 3, 4, 5, 7, 8


def placements(whole):
    return [Shard(N), Shard(C), Replicate(), Partial()] + ([Shard(H)] if whole.ndim == 4 else [])


def place(whole, placement, rank, ranks, unit=1, seed=9):
    """This rank's piece of an array under a placement; addends are random but for the last, which completes the sum."""
    if placement == Replicate():
        return whole.copy()
    if placement == Partial():
        addends = [np.random.default_rng([seed, r]).standard_normal(whole.shape) for r in range(ranks - 1)]
        return addends[rank] if rank < ranks - 1 else whole - sum(addends, np.zeros_like(whole))
    if placement == Shard(C):
        return whole[..., parts_of_features(whole.shape[-1], unit, ranks)[rank]].copy()
    dim = placement.dim
    return whole[(slice(None),) * dim + (split(whole.shape[dim], ranks)[rank],)].copy()


def cases(comm):
    with ProcessGrid(comm, model=comm.size) as grid:
        for shape, unit in SIZES:
            whole = np.random.default_rng(1).standard_normal(shape)
            for source, target in product(placements(whole), repeat=2):
                if source == target or (type(source), type(target)) in MOVES:
                    layer = Redistribute(grid.group("model"), source, target, shape[1:], unit=unit)
                    layer.begin(0, 0, shape[0])
                    yield grid, layer, whole, source, target


def forward(layer, x):
    """The layer applied to a host array: a copy on the host."""
    return to_host(layer.forward(to_device(x))).copy()


def backward(layer, dy):
    return to_host(layer.input_gradient(to_device(dy))).copy()


@mpi(*RANKS)
def test_every_move_gives_the_target_placement(comm):
    for _, layer, whole, source, target in cases(comm):
        moved = forward(layer, place(whole, source, comm.rank, comm.size, layer.unit))
        if target == Partial():  # only the sum is determined
            total = np.empty_like(moved)
            comm.Allreduce(moved, total)
            assert np.allclose(total, whole, atol=1e-12), (source, target, whole.shape)
        else:
            expected = place(whole, target, comm.rank, comm.size, layer.unit)
            assert np.allclose(moved, expected, atol=1e-12), (source, target, whole.shape)


@mpi(2, 3)
def test_long_gathers_give_what_short_ones_do(comm):
    """MPICH's own is slow with long ones: they go another way."""
    rows = LONG_GATHER // 8 + 3
    with ProcessGrid(comm, model=comm.size) as grid:
        layer = Redistribute(grid.group("model"), Shard(C), Replicate(), (7,))
        layer.begin(0, 0, rows)
        whole = np.random.default_rng(1).standard_normal((rows, 7))
        assert whole.nbytes > LONG_GATHER
        assert np.array_equal(forward(layer, place(whole, Shard(C), comm.rank, comm.size)), whole)
        array, counts = np.zeros(rows), [size(part) for part in split(rows, comm.size)]
        array[split(rows, comm.size)[comm.rank]] = comm.rank
        grid.group("model").all_gather_in_place(array, counts, "test")
        assert np.array_equal(array, np.repeat(np.arange(comm.size), counts))


@mpi(*RANKS)
def test_backward_is_the_adjoint_of_forward(comm):
    """<F x, y> = <x, F* y>, the products summed over all ranks, for independent random pieces x and y on each."""
    for _, layer, whole, source, target in cases(comm):
        rng = np.random.default_rng([2, comm.rank])
        x = rng.standard_normal(place(whole, source, comm.rank, comm.size, layer.unit).shape)
        y = rng.standard_normal(place(whole, target, comm.rank, comm.size, layer.unit).shape)
        left, right = (forward(layer, x.copy()) * y).sum(), (x * backward(layer, y.copy())).sum()
        left, right = comm.allreduce(left), comm.allreduce(right)
        assert abs(left - right) <= 1e-11 * max(abs(left), 1), (source, target, whole.shape)


@mpi(*RANKS)
def test_bytes_equal_the_formula(comm):
    for grid, layer, whole, source, target in cases(comm):
        x = place(whole, source, comm.rank, comm.size, layer.unit)
        for move, a, b in ((forward, source, target), (backward, target.adjoint, source.adjoint)):
            grid.tally.clear()
            move(layer, x if move == forward else place(whole, a, comm.rank, comm.size, layer.unit))
            sent = comm.allreduce(sum(record.bytes for record in grid.tally.records.values()))
            expected = redistribution(a, b, len(whole), whole.shape[1:], comm.size, layer.unit)
            assert sent == 8 * expected, (a, b, whole.shape)


@mpi(1, 3, 5)
def test_laugiers_pair_hands_on_whole_gradients(comm):
    whole = np.random.default_rng(1).standard_normal((7, 11))
    with ProcessGrid(comm, model=comm.size) as grid:
        gather, reduce = (kind(grid.group("model"), (11,)) for kind in (GatherThenSlice, CopyThenReduce))
        for layer in (gather, reduce):
            layer.begin(0, 0, 7)
        if comm.size > 1:
            assert np.array_equal(forward(gather, place(whole, Shard(C), comm.rank, comm.size)), whole)
            assert np.array_equal(backward(gather, whole.copy()), place(whole, Shard(C), comm.rank, comm.size))
        assert np.array_equal(forward(reduce, whole), whole)
        assert np.allclose(backward(reduce, place(whole, Partial(), comm.rank, comm.size)), whole)


@mpi(2)
def test_large_all_reduces_go_in_pieces(comm, monkeypatch):
    monkeypatch.setattr("parallel.grid.group.MAX_ELEMENTS", 10)
    with ProcessGrid(comm, batch=2) as grid:
        array = to_device(np.arange(27.0))
        grid.group("batch").all_reduce(array, "test")
        assert np.array_equal(to_host(array), 2 * np.arange(27.0))
