"""Hypergraphs: volumes and messages by hand and against the definition, and what is refused."""

import numpy as np
import pytest

from gridgrad.parallel.partitioning import hypergraph
from gridgrad.parallel.partitioning.hypergraph import Hypergraph, from_pairs


def small(**changed):
    """Five vertices; vertex 0 sends to 1 and 2, vertex 1 to 3, and vertices 2 and 3 are added at 4."""
    arrays = {
        "weights": [1, 2, 3, 4, 5], "costs": [10, 20, 7], "offsets": [0, 3, 5, 8], "pins": [0, 1, 2, 1, 3, 2, 3, 4],
        "roots": [0, 1, 4], "reduces": [False, False, True], "groups": [0, 0, 1], "group_names": ("maps", "sums"),
    }  # fmt: skip
    return Hypergraph(**(arrays | changed))


def random_hypergraph(vertices=40, nets=60, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, nets)
    pins = [rng.choice(vertices, size, replace=False) for size in sizes]
    return Hypergraph(rng.integers(0, 9, vertices), rng.integers(0, 99, nets), np.concatenate(([0], np.cumsum(sizes))),
                      np.concatenate(pins), groups=rng.integers(0, 3, nets), reduces=rng.integers(0, 2, nets),
                      group_names=("a", "b", "c"))  # fmt: skip


def test_a_hand_made_hypergraph():
    graph, parts = small(), np.array([0, 0, 1, 2, 0])
    graph.check()
    assert graph.part_weights(parts, 4).tolist() == [8, 3, 4, 0]
    assert graph.connectivity(parts, 4).tolist() == [2, 2, 3]
    assert graph.volume(parts, 4) == 10 + 20 + 2 * 7
    traffic = graph.traffic(parts, 4)
    assert [(*map(int, where), int(traffic[tuple(where)])) for where in np.argwhere(traffic)] == [
        (0, 0, 1, 10), (0, 0, 2, 20), (1, 1, 0, 7), (1, 2, 0, 7),
    ]  # fmt: skip
    assert graph.volume(np.zeros(5, int), 1) == 0 and not graph.traffic(np.zeros(5, int), 1).any()


@pytest.mark.parametrize("table", [hypergraph.TABLE, 1, 30])
def test_volumes_are_those_of_the_definition(monkeypatch, table):
    """Also if the nets are looked at a few at a time."""
    monkeypatch.setattr(hypergraph, "TABLE", table)
    graph = random_hypergraph()
    graph.check()
    parts = np.random.default_rng(1).integers(0, 5, graph.vertices)
    expected = np.zeros((3, 5, 5), int)
    connectivity = []
    for net in range(graph.nets):
        found = {int(parts[pin]) for pin in graph.pins[graph.offsets[net] : graph.offsets[net + 1]]}
        connectivity.append(len(found))
        owner = parts[graph.roots[net]]
        for other in found - {int(owner)}:
            where = (other, owner) if graph.reduces[net] else (owner, other)
            expected[(graph.groups[net], *where)] += graph.costs[net]
    assert graph.connectivity(parts, 5).tolist() == connectivity
    assert (graph.traffic(parts, 5) == expected).all()
    assert graph.volume(parts, 5) == expected.sum() > 0


def test_pairs_become_nets_without_repetitions():
    graph = from_pairs([1, 1, 1], [5, 6], np.array([1, 0, 1, 0, 1]), np.array([2, 1, 0, 0, 2]), roots=[0, 2])
    graph.check()
    assert graph.offsets.tolist() == [0, 2, 4] and graph.pins.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"offsets": [0, 3, 5]}, "the offsets of 3 nets"),
        ({"offsets": [0, 3, 5, 9]}, "to the number of pins, 8"),
        ({"offsets": [0, 5, 5, 8]}, "net 1 has no pins"),
        ({"weights": [1, 2, -3, 4, 5]}, "vertex 2 has a negative weight"),
        ({"costs": [1, 2, -3]}, "net 2 has a negative cost"),
        ({"pins": [0, 1, 2, 1, 5, 2, 3, 4]}, "net 1 has the pin 5, but the vertices are 0 to 4"),
        ({"pins": [0, 1, 2, 1, 3, 2, 4, 4]}, "net 2 has the vertex 4 twice"),
        ({"roots": [0, 2, 4]}, "net 1 does not contain the vertex that owns its data"),
        ({"roots": [0, 2]}, "must have an entry for each of the 3 nets"),
        ({"groups": [0, 2, 1]}, "from 0 to 1"),
    ],
)
def test_bad_hypergraphs_are_refused_in_one_line(changed, words):
    with pytest.raises(ValueError, match=words) as caught:
        small(**changed).check()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parts", "words"),
    [([0, 1], "5 whole numbers"), ([0.0] * 5, "whole numbers"), ([0, 1, 2, 1, 0], "from 0 to 1, not 0 to 2")],
)
def test_partitions_that_are_none_are_refused(parts, words):
    with pytest.raises(ValueError, match=words):
        small().check_parts(parts, 2)
