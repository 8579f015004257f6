"""Parts onto nodes: those that exchange much come together."""

from itertools import permutations

import numpy as np
import pytest

from gridgrad.experiments.partition import between_nodes, map_to_nodes


def random_traffic(parts, seed):
    moved = np.random.default_rng(seed).integers(0, 100, (parts, parts))
    np.fill_diagonal(moved, 0)
    return moved


def test_what_travels_between_nodes():
    moved = np.array([[0, 1, 2, 0], [0, 0, 0, 4], [8, 0, 0, 0], [0, 16, 32, 0]])
    assert between_nodes(moved, [0, 1, 2, 3], 2) == 2 + 4 + 8 + 16
    assert between_nodes(moved, [0, 2, 1, 3], 2) == 1 + 32
    assert between_nodes(moved, [0, 3, 2, 1], 2) == 63
    assert between_nodes(moved, map_to_nodes(moved, 2), 2) == 30


def test_hidden_groups_are_found():
    """Twelve parts in four groups that exchange ten times as much inside."""
    group = np.random.default_rng(0).permutation(np.repeat(np.arange(4), 3))
    moved = random_traffic(12, 1) + 1000 * (group[:, None] == group)
    np.fill_diagonal(moved, 0)
    node = map_to_nodes(moved, 3) // 3
    assert ((node[:, None] == node) == (group[:, None] == group)).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ranks_per_node", [2, 3, 4])
def test_it_is_near_the_best_of_all_mappings(seed, ranks_per_node):
    """Also if the last node is smaller than the others."""
    moved = random_traffic(7, seed)
    found = map_to_nodes(moved, ranks_per_node)
    assert sorted(found) == list(range(7))
    best = min(between_nodes(moved, ranks, ranks_per_node) for ranks in permutations(range(7)))
    assert between_nodes(moved, found, ranks_per_node) <= 1.05 * best
    assert between_nodes(moved, found, ranks_per_node) <= between_nodes(moved, range(7), ranks_per_node)


def test_a_part_gets_a_rank_of_its_speed():
    speeds = np.array([2, 1, 2, 1, 2, 1])
    moved = random_traffic(6, 3)
    found = map_to_nodes(moved, 2, speeds)
    assert (speeds[found] == speeds).all() and sorted(found) == list(range(6))
    assert between_nodes(moved, found, 2) < between_nodes(moved, range(6), 2)


def test_one_node_and_one_part():
    assert sorted(map_to_nodes(random_traffic(4, 0), 4)) == [0, 1, 2, 3]
    assert map_to_nodes(np.zeros((1, 1), int), 1).tolist() == [0]
