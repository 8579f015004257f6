"""Hypergraphs: volumes by hand and against the definition, what refines and divides them, and what is refused."""

import importlib.util

import numpy as np
import pytest

from gridgrad.nn.zoo import network_names
from gridgrad.parallel.partitioning import hypergraph, mt_kahypar
from gridgrad.parallel.partitioning.annealing import refine
from gridgrad.parallel.partitioning.hypergraph import Hypergraph, limits_of
from gridgrad.parallel.partitioning.mt_kahypar import partition
from gridgrad.parallel.partitioning.network_hypergraph import of_network

needs_library = pytest.mark.skipif(importlib.util.find_spec("mtkahypar") is None, reason="needs mtkahypar")


def small():
    """Five vertices; vertex 0 sends to 1 and 2, vertex 1 to 3, and vertices 2 and 3 are added at 4."""
    arrays = [1, 2, 3, 4, 5], [10, 20, 7], [0, 3, 5, 8], [0, 1, 2, 1, 3, 2, 3, 4], [0, 1, 4], [0, 0, 1], [0, 0, 1]
    return Hypergraph(*map(np.array, arrays), ("maps", "sums"))


def random_hypergraph(vertices=40, nets=60):
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9, nets)
    pins = [rng.choice(vertices, size, replace=False) for size in sizes]
    offsets, roots = np.concatenate(([0], np.cumsum(sizes))), np.array([some[0] for some in pins])
    return Hypergraph(rng.integers(0, 9, vertices), rng.integers(0, 99, nets), offsets, np.concatenate(pins), roots,
                      rng.integers(0, 2, nets).astype(bool), rng.integers(0, 3, nets), ("a", "b", "c"))  # fmt: skip


def test_volumes_are_those_of_the_definition(monkeypatch):
    """Also if the nets are looked at a few at a time."""
    monkeypatch.setattr(hypergraph, "TABLE", 30)
    graph = random_hypergraph()
    parts = np.random.default_rng(1).integers(0, 5, graph.vertices)
    expected = np.zeros((3, 5, 5), int)
    for net in range(graph.nets):
        found = {int(parts[pin]) for pin in graph.pins[graph.offsets[net] : graph.offsets[net + 1]]}
        owner = parts[graph.roots[net]]
        for other in found - {int(owner)}:
            where = (other, owner) if graph.reduces[net] else (owner, other)
            expected[(graph.groups[net], *where)] += graph.costs[net]
    assert (graph.traffic(parts, 5) == expected).all() and graph.volume(parts, 5) == expected.sum() > 0


def test_refining_keeps_the_limits_and_lowers_the_volume():
    graph = random_hypergraph()
    start = np.arange(40) % 4
    better = refine(graph, start, 4, 0.3, moves=5000)
    limits = np.maximum(limits_of(graph.weights, 4, 0.3)[0], graph.part_weights(start, 4))
    assert graph.volume(better, 4) < graph.volume(start, 4) and (graph.part_weights(better, 4) <= limits + 1e-6).all()
    assert (refine(graph, start, 4, 0.3, moves=5000) == better).all()


# ----- Mt-KaHyPar


@needs_library
def test_parts_are_as_large_as_their_ranks_are_fast_and_better_than_random_ones_and_repeat():
    graph = of_network(network_names.build("resnet20", (32, 32, 3), 10)).hypergraph
    parts = partition(graph, 3, 0.05, [3, 2, 1])
    filled = graph.part_weights(parts, 3) / graph.weights.sum()
    assert (filled <= np.array([3, 2, 1]) / 6 * 1.0501).all() and filled.min() > 0.1
    assert graph.volume(parts, 3) < 0.7 * graph.volume(np.random.default_rng(0).permutation(parts), 3)
    assert (partition(graph, 3, 0.05, [3, 2, 1]) == parts).all()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os, sys; print('no memory', file=sys.stderr); os.abort()", "failed with status -6: no memory"),
        ("import time; time.sleep(60)", "did not end within 0.5 seconds"),
        ("import sys, numpy; numpy.save(sys.argv[2], numpy.zeros(5, int))", "gave part 0 81.8% more work"),
    ],
)
def test_a_failure_of_the_library_is_one_line(monkeypatch, tmp_path, program, words):
    (tmp_path / "process.py").write_text(program)
    monkeypatch.setattr(mt_kahypar, "PROCESS", tmp_path / "process.py")
    monkeypatch.setattr(mt_kahypar, "find_spec", lambda name: True)
    with pytest.raises(ValueError) as caught:
        partition(small(), 2, limit_s=0.5 if "0.5" in words else 60)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_an_absent_library_is_one_line(monkeypatch):
    monkeypatch.setattr(mt_kahypar, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install mtkahypar"):
        partition(small(), 2)
