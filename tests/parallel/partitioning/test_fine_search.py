"""Partitions in the fine grain: they keep within the limits, refining never makes them worse, and seeds repeat."""

import numpy as np
import pytest

from gridgrad.nn.zoo import network_names
from gridgrad.parallel.partitioning.annealing import refine
from gridgrad.parallel.partitioning.good_partition import fine_search
from gridgrad.parallel.partitioning.hypergraph import Hypergraph, from_pairs, limits_of
from gridgrad.parallel.partitioning.network_hypergraph import OBJECTIVES, measure, of_network

pytest.importorskip("mtkahypar")


@pytest.fixture(scope="module")
def net():
    return network_names.build("lenet5", (28, 28, 1), 10)


def contracted(net):
    return lambda blocks: of_network(net, "fine", blocks, 8)


@pytest.mark.parametrize("speeds", [pytest.param(None, marks=pytest.mark.long), [2, 1, 1]])
def test_a_fine_partition_of_the_full_hypergraph(net, speeds):
    owners = fine_search(contracted(net), 3, 0.2, speeds, blocks=(4, 6), moves=2000)
    full = of_network(net, "fine", neuron_blocks=8)
    parts = full.parts(owners)
    limits, _ = limits_of(full.hypergraph.weights, 3, 0.2, speeds)
    assert (full.hypergraph.part_weights(parts, 3) <= 1.001 * limits).all()
    again = fine_search(contracted(net), 3, 0.2, speeds, blocks=(4, 6), moves=2000)
    assert (full.parts(again) == parts).all()


def test_each_objective_is_at_most_that_of_the_others(net):
    made = of_network(net, "fine", 6, 8)
    found = {}
    for objective in ("volume", "messages", "largest"):
        owners = fine_search(contracted(net), 3, 0.2, objective=objective, blocks=(6,), moves=2000)
        found[objective] = made.parts(owners)
    for objective, parts in found.items():
        name = OBJECTIVES[objective]
        assert getattr(measure(made, parts, 3), name) == min(getattr(measure(made, p, 3), name) for p in found.values())


def test_refining_keeps_the_limits_and_lowers_the_volume():
    random = np.random.default_rng(0)
    nets, vertices = random.integers(40, size=150), random.integers(30, size=150)
    keep = np.concatenate([nets, np.arange(40)]), np.concatenate([vertices, random.integers(30, size=40)])
    graph = from_pairs(random.integers(1, 9, 30), random.integers(1, 9, 40), *keep)
    start = np.arange(30) % 4
    better = refine(graph, start, 4, 0.3, moves=5000)
    limits = np.maximum(limits_of(graph.weights, 4, 0.3)[0], graph.part_weights(start, 4))
    assert graph.volume(better, 4) < graph.volume(start, 4)
    assert (graph.part_weights(better, 4) <= limits + 1e-6).all()
    assert (refine(graph, start, 4, 0.3, moves=5000) == better).all()


def test_two_vertices_that_belong_together_are_put_together():
    graph = Hypergraph([1, 1, 1, 1], [5, 5], [0, 2, 4], [0, 1, 2, 3])
    assert graph.volume(refine(graph, np.array([0, 1, 0, 1]), 2, 1.0, moves=500), 2) == 0


def test_what_is_wrong_is_said(net):
    with pytest.raises(ValueError, match="must be at least 0"):
        fine_search(contracted(net), 2, -0.5, blocks=(4,))
