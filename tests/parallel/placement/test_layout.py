"""Layouts: every rank's block follows from the placements alone, and the ranks that count hold every element exactly once."""

from itertools import product

import numpy as np
import pytest

from gridgrad.nn.device import to_device, to_host
from gridgrad.parallel import ProcessGrid
from gridgrad.parallel.placement.layout import Layout, gather_blocks, move_block
from gridgrad.parallel.placement.partition import Partition, Split, indices
from gridgrad.parallel.placement.placements import C, H, Invariant, N, Replicate, Shard
from tests.mpi import mpi

AXES = "batch", "height", "model"


def every_rank(sizes):
    """The coordinates of all ranks of a grid."""
    return [dict(zip(sizes, place, strict=True)) for place in product(*(range(size) for size in sizes.values()))]


def index_of(layout, coordinates):
    """What NumPy takes to select the block of a rank from the whole array."""
    return np.ix_(*(indices(part) for part in layout.block(coordinates)))


def test_sample_shards_of_three_axes_divide_each_other_in_order():
    sizes = {"batch": 2, "height": 3, "model": 2}
    layout = Layout((13, 4), sizes, {axis: Shard(N, Split(sizes[axis])) for axis in ("batch", "model", "height")})
    # 13 samples as 7 + 6 on the axis batch; 7 as 4 + 3 and 6 as 3 + 3 on the axis model, which comes next; those on height.
    found = {tuple(c.values()): layout.block(c)[0] for c in every_rank(sizes)}
    assert [found[0, h, 0] for h in range(3)] == [slice(0, 2), slice(2, 3), slice(3, 4)]
    assert [found[0, h, 1] for h in range(3)] == [slice(4, 5), slice(5, 6), slice(6, 7)]
    assert [found[1, h, 0] for h in range(3)] == [slice(7, 8), slice(8, 9), slice(9, 10)]
    assert [found[1, h, 1] for h in range(3)] == [slice(10, 11), slice(11, 12), slice(12, 13)]
    middle = {"batch": 1, "height": 2, "model": 1}
    assert layout.part(0, middle, inside="batch") == slice(0, 13)
    assert layout.part(0, middle, inside="model") == slice(7, 13)
    assert layout.part(0, middle, inside="height") == slice(10, 13)
    assert layout.sharded == ("batch", "model", "height") and layout.replicated == ()


def test_weighted_shards_and_an_array_for_each_minibatch():
    sizes = {"batch": 2, "height": 1, "model": 3}
    placements = {"batch": Shard(N, Split(2, (3, 1))), "model": Shard(C, Partition.weighted(10, (1, 0, 4)))}
    activations = Layout((None, 5, 10), sizes, placements)
    assert activations.sample_shape == (5, 10)
    assert activations.of(8).shape == (8, 5, 10)
    last = {"batch": 1, "height": 0, "model": 2}
    assert activations.rows(8, last) == slice(6, 8) and activations.rows(100, last) == slice(75, 100)
    assert activations.sample_block(last) == (slice(0, 5), slice(2, 10))
    assert activations.of(8).local_shape(last) == (2, 5, 8)
    assert activations.of(8).local_shape(last | {"model": 1}) == (2, 5, 0)


def test_owner_maps_select_any_indices():
    sizes = {"batch": 1, "height": 1, "model": 3}
    layout = Layout((4, 6), sizes, {"model": Shard(-1, Partition.owned([2, 0, 1, 0, 2, 2], 3))})
    found = [layout.block({"batch": 0, "height": 0, "model": rank}) for rank in range(3)]
    assert [rows for rows, _ in found] == [slice(0, 4)] * 3
    assert [indices(columns).tolist() for _, columns in found] == [[1, 3], [2], [0, 4, 5]]
    assert [layout.local_shape({"batch": 0, "height": 0, "model": rank}) for rank in range(3)] == [(4, 2), (4, 1), (4, 3)]


def test_an_axis_that_is_not_named_holds_replicas_as_one_that_is_placed_so():
    sizes = {"batch": 2, "height": 2, "model": 2}
    named = Layout((3,), sizes, {"height": Replicate(), "model": Shard(0, Partition.even(3, 2))})
    silent = Layout((3,), sizes, {"model": Shard(0, Partition.even(3, 2))})
    for layout in (named, silent):
        assert layout.replicated == ("batch", "height") and layout.sharded == ("model",)
        counted = [tuple(c.values()) for c in every_rank(sizes) if layout.is_counted(c)]
        assert counted == [(0, 0, 0), (0, 0, 1)]


def test_gradients_are_summed_along_axes_with_replicas_that_have_different_ones():
    layout = Layout((3,), {"batch": 2, "height": 1, "model": 2}, {"model": Invariant()})
    assert layout.replicated == ("batch", "height", "model") and layout.summed == ("batch", "height")
    counted = [tuple(c.values()) for c in every_rank(layout.sizes) if layout.is_counted(c)]
    assert counted == [(0, 0, 0)]


def random_placement(rng, shape, ranks):
    """A placement of an array along an axis: a shard of any of its dimensions, or replicas."""
    dim = rng.choice([N, H, C, None])
    if dim is None:
        return Replicate()
    weights = tuple(float(w) for w in rng.integers(0, 4, ranks) + (np.arange(ranks) == 0))
    if dim == N:
        return Shard(N, Split(ranks, weights if rng.random() < 0.5 else None))
    length = shape[dim]
    partitions = (
        Partition.even(length, ranks),
        Partition.weighted(length, weights),
        Partition.owned(rng.integers(0, ranks, length), ranks),
        Partition.at_rank(length, ranks, int(rng.integers(ranks))),
    )
    return Shard(int(dim), partitions[rng.integers(len(partitions))])


def random_layout(seed):
    """A layout on a grid of up to 8 ranks. Only samples are sharded by several axes."""
    rng = np.random.default_rng(seed)
    grids = [sizes for sizes in product(range(1, 9), repeat=3) if np.prod(sizes) <= 8]
    sizes = dict(zip(AXES, (int(size) for size in grids[rng.integers(len(grids))]), strict=True))
    shape, placements, taken = tuple(int(n) for n in rng.integers(1, 9, 3)), {}, set()
    for axis in rng.permutation(AXES):
        placement = random_placement(rng, shape, sizes[axis])
        if placement.dim not in taken:
            placements[str(axis)] = placement
            taken |= {placement.dim} - {None, N}
    return Layout(shape, sizes, placements)


@pytest.mark.parametrize("seed", range(200))
def test_the_ranks_that_count_hold_every_element_exactly_once(seed):
    layout = random_layout(seed)
    times = np.zeros(layout.shape, int)
    for coordinates in every_rank(layout.sizes):
        assert times[index_of(layout, coordinates)].shape == layout.local_shape(coordinates)
        if layout.is_counted(coordinates):
            times[index_of(layout, coordinates)] += 1
    assert (times == 1).all(), layout


@pytest.mark.parametrize("seed", range(200))
def test_every_element_has_as_many_copies_as_there_are_ranks_along_the_replicated_axes(seed):
    layout = random_layout(seed)
    assert set(layout.replicated) | set(layout.sharded) == set(AXES) and not set(layout.replicated) & set(layout.sharded)
    times = np.zeros(layout.shape, int)
    for coordinates in every_rank(layout.sizes):
        times[index_of(layout, coordinates)] += 1
        first = coordinates | dict.fromkeys(layout.replicated, 0)  # the rank that counts holds the same block
        assert layout.is_counted(first)
        for mine, counted in zip(layout.block(coordinates), layout.block(first), strict=True):
            assert np.array_equal(indices(mine), indices(counted))
    assert (times == np.prod([layout.sizes[axis] for axis in layout.replicated])).all()


def block_of(whole, layout, grid):
    """This rank's block of a host array, on the device."""
    return to_device(np.ascontiguousarray(whole[index_of(layout, grid.coordinates)]))


@mpi(4)
def test_blocks_are_gathered_and_moved_between_any_layouts(comm):
    with ProcessGrid(comm, batch=2, model=2) as grid:
        for seed in range(20):
            rng = np.random.default_rng([seed, 3])
            shape = tuple(int(n) for n in rng.integers(1, 9, 3))
            whole, dims = rng.standard_normal(shape), rng.permutation(3)

            def layout(shape=shape, rng=rng, dims=dims):
                placements = {}
                for axis, dim in zip(("batch", "model"), dims, strict=False):
                    parts = Partition.owned(rng.integers(0, 2, shape[dim]), 2), Partition.even(shape[dim], 2)
                    placements[axis] = Replicate() if rng.random() < 0.3 else Shard(int(dim), parts[rng.integers(2)])
                return Layout(shape, grid.sizes, placements)

            before, behind = layout(), layout()
            block = block_of(whole, before, grid)
            moved = move_block(grid, block, before, behind, "test")
            assert np.array_equal(to_host(moved), to_host(block_of(whole, behind, grid))), seed
            samples = Layout(shape, grid.sizes, {axis: Shard(N, Split(2)) for axis in ("model", "batch")})
            for held in (before, behind, samples):
                for everywhere in (False, True):
                    grid.tally.clear()
                    found = gather_blocks(grid, block_of(whole, held, grid), held, "test", everywhere)
                    assert found is not None or not everywhere and grid.rank
                    assert found is None or np.array_equal(to_host(found), whole), seed
                    sent = comm.allreduce(sum(record.bytes for record in grid.tally.records.values()))
                    if not everywhere:
                        mine = whole[index_of(held, grid.coordinates_of(0))].nbytes
                        assert sent == whole.nbytes - mine, seed
