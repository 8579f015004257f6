"""Partitions: every index where it belongs, for even, weighted, grouped and owner-map partitions, empty parts included."""

import pickle
from itertools import product

import numpy as np
import pytest

from gridgrad.parallel.placement.partition import EMPTY, Partition, Split, common, indices, positions, size, within


def listed(part):
    return indices(part).tolist()


@pytest.mark.parametrize(("n", "ranks"), list(product([0, 1, 2, 7, 11, 31], [1, 2, 3, 5, 8])))
def test_even_parts_cover_and_differ_by_at_most_one(n, ranks):
    partition = Partition.even(n, ranks)
    assert [i for part in partition.parts for i in listed(part)] == list(range(n))
    assert max(partition.sizes) - min(partition.sizes) <= 1 and partition.sizes == sorted(partition.sizes, reverse=True)
    assert all(partition.owner(index) == rank for rank in range(ranks) for index in listed(partition.part(rank)))
    assert partition.owner(n) is None


def test_an_even_partition_of_a_million_ranks_costs_nothing():
    partition = Partition.even(10**9 + 7, 10**6)
    assert partition.part(0) == slice(0, 1001) and partition.part(10**6 - 1) == slice(10**9 + 7 - 1000, 10**9 + 7)


@pytest.mark.parametrize(
    ("n", "weights", "sizes"),
    [
        (10, (1, 1), [5, 5]),
        (10, (3, 1), [8, 2]),
        (7, (1, 0, 2), [2, 0, 5]),
        (1, (1, 1, 1), [1, 0, 0]),
        (0, (2, 1), [0, 0]),
        (100, (0.5, 0.25, 0.25), [50, 25, 25]),
        (15, (3, 2, 1.5, 1), [6, 4, 3, 2]),
    ],
)
def test_weighted_parts(n, weights, sizes):
    partition = Partition.weighted(n, weights)
    assert partition.sizes == sizes
    assert [i for part in partition.parts for i in listed(part)] == list(range(n))


def test_an_owner_map_may_be_any_and_is_indexed_only_where_slices_do_not_suffice():
    partition = Partition.owned([2, 0, 0, 2, 1, 2], 4)
    assert [listed(part) for part in partition.parts] == [[1, 2], [4], [0, 3, 5], []]
    assert partition.part(0) == slice(1, 3) and partition.part(3) == EMPTY and not partition.is_contiguous
    assert [partition.owner(i) for i in range(6)] == [2, 0, 0, 2, 1, 2]
    assert Partition.owned([0, 0, 1], 2) == Partition.even(3, 2) and Partition.owned([0, 0, 1], 2).is_contiguous


@pytest.mark.parametrize(
    "partition", [Partition.even(5, 3), Partition.weighted(5, (0, 1, 3)), Partition.owned([1, 0, 1, 2, 0], 3)]
)
def test_groups_stay_together(partition):
    grouped = partition.grouped(4)
    assert grouped.length == 20
    for rank in range(3):
        assert listed(grouped.part(rank)) == [4 * i + j for i in listed(partition.part(rank)) for j in range(4)]
    assert grouped.grouped(2) == partition.grouped(8) and hash(grouped.grouped(2)) == hash(partition.grouped(8))


def test_equal_partitions_are_equal_however_they_were_made():
    even = Partition.even(8, 2)
    for other in (Partition.weighted(8, (1, 1)), Partition.owned([0] * 4 + [1] * 4, 2), Partition.even(4, 2).grouped(2)):
        assert even == other and hash(even) == hash(other)
    assert pickle.loads(pickle.dumps(even)) == even
    for other in (Partition.even(8, 3), Partition.even(9, 2), Partition.weighted(8, (3, 1)), 8):
        assert even != other


@pytest.mark.parametrize("base", [Partition.even(7, 3), Partition.weighted(7, (0, 5, 1)), Partition.even(2, 5)])
def test_a_mapped_partition_is_the_one_of_the_mapped_parts(base):
    def wider(part):
        return slice(max(0, part.start - 1), min(base.length, part.stop + 1)) if size(part) else EMPTY

    mapped = base.mapped(base.length, wider)
    listed_parts = Partition.of(base.length, tuple(wider(part) for part in base.parts))
    assert mapped == listed_parts and listed_parts == mapped and hash(mapped) == hash(listed_parts) and mapped.is_contiguous
    assert mapped != base
    with pytest.raises(ValueError, match="outside of 1"):
        _ = base.mapped(1, wider).parts


def test_all_at_one_rank_of_a_million():
    partition = Partition.at_rank(9, 10**6, 3)
    assert partition.part(3) == slice(0, 9) and partition.part(2) == partition.part(10**6 - 1) == EMPTY
    assert partition == Partition.at_rank(9, 10**6, 3) != Partition.at_rank(9, 10**6, 4)
    assert Partition.at_rank(4, 3, 1) == Partition.weighted(4, (0, 1, 0))


def test_parts_may_overlap():
    halo = Partition.of(10, (slice(0, 6), slice(4, 10)))
    assert halo.sizes == [6, 6] and halo.owner(5) == 0
    assert Partition.even(10, 2).intersection(0, halo, 1) == slice(4, 5)


@pytest.mark.parametrize("seed", range(20))
def test_intersections_and_positions_are_those_of_sets(seed):
    rng = np.random.default_rng(seed)
    n, ranks = int(rng.integers(1, 30)), int(rng.integers(1, 5))
    a, b = (Partition.owned(rng.integers(0, ranks, n), ranks) for _ in range(2))
    for mine, other in product(range(ranks), repeat=2):
        both = a.intersection(mine, b, other)
        assert listed(both) == sorted(set(listed(a.part(mine))) & set(listed(b.part(other))))
        assert (indices(a.part(mine))[listed(positions(both, a.part(mine)))] == indices(both)).all()
        assert listed(within(a.part(mine), positions(both, a.part(mine)))) == listed(both)
        assert size(common(both, both)) == size(both)


def test_a_split_waits_for_the_length():
    assert Split(3).of_length(7) == Partition.even(7, 3)
    assert Split(2, (3, 1)).of_length(8) == Partition.weighted(8, (3, 1))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Partition.even(-1, 2), "cannot split"),
        (lambda: Partition.even(3, 0), "cannot split"),
        (lambda: Partition.weighted(3, (-1, 2)), "at least 0"),
        (lambda: Partition.weighted(3, (0, 0)), "not all 0"),
        (lambda: Partition.weighted(3, (float("nan"), 1)), "finite"),
        (lambda: Partition.weighted(3, (float("inf"), 1)), "finite"),
        (lambda: Partition.owned([0, 3], 3), "ranks from 0 to 2"),
        (lambda: Partition.owned([0, -1], 3), "ranks from 0 to 2"),
        (lambda: Partition.owned([0.5], 3), "ranks from 0 to 2"),
        (lambda: Partition.of(3, (slice(1, 4),)), "outside of 3"),
    ],
)
def test_what_is_no_partition_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
