"""Partitions and layouts: every index where it belongs, and the ranks that count hold every element exactly once."""

from itertools import product

import numpy as np
import pytest

from gridgrad.nn.device import to_device, to_host
from gridgrad.parallel import ProcessGrid
from gridgrad.parallel.placement.layout import Layout, gather_blocks, move_block
from gridgrad.parallel.placement.partition import EMPTY, Partition, Split, indices, size
from gridgrad.parallel.placement.placements import C, H, Invariant, N, Replicate, Shard
from tests.mpi import mpi

AXES = "batch", "height", "model"


def listed(part):
    return indices(part).tolist()


PARTITIONS = [  # (partition, the indices of each rank), of which some are equal
    (Partition.even(8, 3), [[0, 1, 2], [3, 4, 5], [6, 7]]),
    (Partition.weighted(7, (1, 0, 2)), [[0, 1], [], [2, 3, 4, 5, 6]]),
    (Split(3, (2, 1, 1)).of_length(8), [[0, 1, 2, 3], [4, 5], [6, 7]]),
    (Partition.owned([2, 0, 0, 2, 1, 1, 2, 2], 3), [[1, 2], [4, 5], [0, 3, 6, 7]]),
    (Partition.owned([1, 0, 1, 2], 3).grouped(2), [[2, 3], [0, 1, 4, 5], [6, 7]]),
    (Partition.even(7, 3).mapped(8, lambda part: indices(part) + 1), [[1, 2, 3], [4, 5], [6, 7]]),
    (Partition.of(8, (slice(0, 5), slice(4, 8), EMPTY)), [[0, 1, 2, 3, 4], [4, 5, 6, 7], []]),
    (Partition.at_rank(8, 3, 1), [[], [0, 1, 2, 3, 4, 5, 6, 7], []]),
]


def test_partitions_hold_what_they_should_and_are_equal_however_they_were_made():
    for partition, expected in PARTITIONS:
        assert [listed(part) for part in partition.parts] == expected and partition.sizes == [*map(len, expected)]
        for part, mine in zip(partition.parts, expected, strict=True):  # indices only where slices do not suffice
            assert isinstance(part, slice) == (not mine or mine[-1] - mine[0] + 1 == len(mine))
        equal = [other for other, also in PARTITIONS if expected == also and other.length == partition.length]
        assert [other for other, _ in PARTITIONS if other == partition] == equal and len(set(equal)) == 1


def test_what_is_no_partition_is_refused():
    for make, words in (
        (lambda: Partition.weighted(3, (-1, 2)), "at least 0"),
        (lambda: Partition.owned([0, 3], 3), "from 0 to 2"),
        (lambda: Partition.of(3, (slice(1, 4),)), "outside of 3"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


# ----- layouts


def every_rank(sizes):
    """The coordinates of all ranks of a grid."""
    return [dict(zip(sizes, place, strict=True)) for place in product(*map(range, sizes.values()))]


def index_of(layout, coordinates):
    """What NumPy takes to select the block of a rank from the whole array."""
    return np.ix_(*(indices(part) for part in layout.block(coordinates)))


def test_activations_are_divided_by_several_axes_in_order_anew_for_each_minibatch():
    sizes, at = {"batch": 2, "height": 3, "model": 3}, {"batch": 1, "height": 2, "model": 2}
    layout = Layout((13, 4), sizes, {axis: Shard(N, Split(sizes[axis])) for axis in ("batch", "model", "height")})
    # 13 samples as 7 + 6 on the axis batch; of these 2 + 2 + 2 on the axis model, which comes next, and 1 + 1 + 0 on height.
    parts = [layout.part(0, at, inside=axis) for axis in (*layout.sharded, None)]
    assert parts[:3] == [slice(0, 13), slice(7, 13), slice(11, 13)] and size(parts[3]) == 0
    placements = {"batch": Shard(N, Split(2, (3, 1))), "model": Shard(C, Partition.weighted(10, (1, 0, 4)))}
    activations = Layout((None, 5, 10), sizes, placements)
    assert activations.rows(8, at) == slice(6, 8) and activations.rows(100, at) == slice(75, 100)
    assert activations.sample_shape == (5, 10) and activations.sample_block(at) == (slice(0, 5), slice(2, 10))
    assert activations.of(8).local_shape(at | {"model": 1}) == (2, 5, 0)


def test_gradients_are_summed_along_axes_with_replicas_named_or_not_that_have_different_ones():
    sizes, shard = {"batch": 2, "height": 2, "model": 2}, {"model": Shard(0, Partition.even(3, 2))}
    for placements in (shard, shard | {"height": Replicate()}):
        layout = Layout((3,), sizes, placements)
        assert layout.replicated == layout.summed == ("batch", "height") and layout.sharded == ("model",)
    layout = Layout((3,), sizes, {"model": Invariant()})
    assert layout.replicated == AXES and layout.summed == ("batch", "height")


def random_layout(rng, shape, sizes, dims):
    """A Layout in which each axis shards one of its `dims` or, if that is None, none; two axes never the same one, except N."""
    placements, taken = {}, set()
    for axis in map(str, rng.permutation(AXES)):
        free, ranks = [dim for dim in dims[axis] if dim not in taken], sizes[axis]
        dim = free[rng.integers(len(free))]
        taken |= {dim} - {N, None}
        weights = tuple(float(w) for w in rng.integers(0, 4, ranks) + (np.arange(ranks) == 0))
        length = shape[dim or 0]
        owned = Partition.owned(rng.integers(0, ranks, length), ranks)
        partitions = Partition.even(length, ranks), Partition.weighted(length, weights), owned
        found = Split(ranks, weights) if dim == N else partitions[rng.integers(3)]
        placements[axis] = Replicate() if dim is None else Shard(dim, found)
    return Layout(shape, sizes, placements)


def test_the_ranks_that_count_hold_every_element_once_and_all_as_often_as_there_are_replicas():
    for seed, sizes in product(range(25), [(2, 2, 2), (1, 2, 3)]):
        rng = np.random.default_rng(seed)
        shape, dims = tuple(rng.integers(1, 9, 3).tolist()), dict.fromkeys(AXES, (N, H, C, None))
        layout = random_layout(rng, shape, dict(zip(AXES, sizes, strict=True)), dims)
        assert set(layout.replicated) ^ set(layout.sharded) == set(AXES)
        times, counted = np.zeros((2, *layout.shape), int)
        for coordinates in every_rank(layout.sizes):
            block = index_of(layout, coordinates)
            times[block] += 1
            assert times[block].shape == layout.local_shape(coordinates)
            if layout.is_counted(coordinates):
                counted[block] += 1
        assert (counted == 1).all() and (times == np.prod([layout.sizes[axis] for axis in layout.replicated])).all(), layout


@mpi(4)
def test_blocks_are_gathered_and_moved_between_any_layouts(comm):
    with ProcessGrid(comm, batch=2, model=2) as grid:
        for seed in range(20):
            rng = np.random.default_rng(seed)
            whole = rng.standard_normal((rng.integers(1, 9), 5, 4))
            dims = {"batch": (H, None), "model": (C, None), "height": (None,)}
            before, behind = (random_layout(rng, whole.shape, grid.sizes, dims) for _ in range(2))
            samples = Layout(whole.shape, grid.sizes, {axis: Shard(N, Split(2)) for axis in ("model", "batch")})

            def held(layout, whole=whole):
                return to_device(np.ascontiguousarray(whole[index_of(layout, grid.coordinates)]))

            moved = move_block(grid, held(before), before, behind, "test")
            assert np.array_equal(to_host(moved), to_host(held(behind))), seed
            for layout in (before, samples):
                grid.tally.clear()
                found = gather_blocks(grid, held(layout), layout, "test")
                sent = comm.allreduce(sum(record.bytes for record in grid.tally.records.values()))
                assert sent == whole.nbytes - whole[index_of(layout, grid.coordinates_of(0))].nbytes, seed
                assert np.array_equal(to_host(found), whole) if grid.rank == 0 else found is None, seed
                assert np.array_equal(to_host(gather_blocks(grid, held(layout), layout, "test", everywhere=True)), whole), seed
