"""Mt-KaHyPar: balance, also between unequal parts, repetition, and failures that are one line."""

import importlib.util

import numpy as np
import pytest

from gridgrad.nn.zoo import network_names
from gridgrad.parallel.partitioning import mt_kahypar
from gridgrad.parallel.partitioning.hypergraph import Hypergraph, limits_of
from gridgrad.parallel.partitioning.mt_kahypar import partition
from gridgrad.parallel.partitioning.network_hypergraph import of_network

needs_library = pytest.mark.skipif(importlib.util.find_spec("mtkahypar") is None, reason="needs mtkahypar")


def graph(**options):
    return of_network(network_names.build("resnet20", (32, 32, 3), 10), **options).hypergraph


@needs_library
@pytest.mark.parametrize("options", [{}, {"grain": "fine", "filter_blocks": 4}])
@pytest.mark.parametrize("preset", mt_kahypar.PRESETS)
@pytest.mark.parametrize("k", [1, 2, *(pytest.param(k, marks=pytest.mark.long) for k in (3, 5))])
def test_parts_are_balanced_and_better_than_random_ones(k, preset, options):
    some = graph(**options)
    parts = partition(some, k, preset=preset)
    assert some.part_weights(parts, k).max() <= 1.1001 * some.weights.sum() / k
    shuffled = np.random.default_rng(0).permutation(parts)
    assert some.volume(parts, k) < max(1, 0.7 * some.volume(shuffled, k))
    assert (partition(some, k, preset=preset) == parts).all()


@needs_library
def test_parts_are_as_large_as_their_ranks_are_fast():
    some = graph()
    filled = some.part_weights(partition(some, 3, 0.05, [3, 2, 1]), 3) / some.weights.sum()
    assert (filled <= np.array([3, 2, 1]) / 6 * 1.0501).all() and filled.min() > 0.1


@needs_library
def test_a_vertex_that_is_larger_than_a_part_is_alone():
    chain = [0, 1, 1, 2, 2, 3, 3, 4]
    some = Hypergraph([1, 1, 1, 1, 90], [5] * 4, [0, 2, 4, 6, 8], chain)
    limits, fixed = limits_of(some.weights, 3, 0.1, [1, 2, 1])
    assert fixed.tolist() == [-1] * 4 + [1] and limits[1] == 90
    parts = partition(some, 3, 0.1, [1, 2, 1])
    assert parts[4] == 1 and (parts[:4] != 1).all()


@needs_library
def test_large_numbers_and_a_hypergraph_without_nets():
    some = Hypergraph([10**15] * 6, [10**15] * 2, [0, 3, 6], range(6))
    parts = partition(some, 2)
    assert some.volume(parts, 2) == 0 and some.part_weights(parts, 2).tolist() == [3 * 10**15] * 2
    assert sorted(partition(Hypergraph([1, 1], [], [0], []), 2, 0)) == [0, 1]


def test_an_absent_library_is_one_line(monkeypatch):
    monkeypatch.setattr(mt_kahypar, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="not installed: pip install mtkahypar"):
        partition(graph(), 2)
    assert not partition(graph(), 1).any()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os, sys; print('no memory', file=sys.stderr); os.abort()", "failed with status -6: no memory"),
        ("raise RuntimeError('what it says')", "failed with status 1: RuntimeError: what it says"),
        ("pass", "failed with status 0: it said nothing"),
        ("import time; time.sleep(60)", "did not end within 0.5 seconds"),
        ("import sys, numpy; numpy.save(sys.argv[2], numpy.zeros(3))", "a partition must be"),
    ],
)
def test_a_failure_of_the_library_is_one_line(monkeypatch, tmp_path, program, words):
    (tmp_path / "process.py").write_text(program)
    monkeypatch.setattr(mt_kahypar, "PROCESS", tmp_path / "process.py")
    monkeypatch.setattr(mt_kahypar, "find_spec", lambda name: True)
    with pytest.raises(ValueError) as caught:
        partition(graph(), 2, limit_s=0.5 if "0.5" in words else 60)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_an_overfilled_part_is_refused(monkeypatch):
    monkeypatch.setattr(mt_kahypar, "find_spec", lambda name: True)
    monkeypatch.setattr(mt_kahypar, "_in_process", lambda given, limit_s: np.zeros(len(given["weights"]), int))
    with pytest.raises(ValueError, match="gave part 0 81.8% more work than is allowed"):
        partition(graph(), 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"speeds": [1, 0]}, "2 numbers above 0"),
        ({"speeds": [1, 2, 3]}, "2 numbers above 0"),
        ({"epsilon": -1}, "must be at least 0, not -1"),
        ({"preset": "FAST"}, "use DETERMINISTIC or HIGHEST_QUALITY"),
    ],
)
def test_bad_arguments_are_refused(monkeypatch, arguments, words):
    monkeypatch.setattr(mt_kahypar, "find_spec", lambda name: True)
    with pytest.raises(ValueError, match=words):
        partition(graph(), 2, **arguments)


def test_a_bad_hypergraph_is_refused_before_the_library_sees_it():
    with pytest.raises(ValueError, match="net 0 has the pin 7"):
        partition(Hypergraph([1, 1], [1], [0, 2], [0, 7], [0]), 2)
