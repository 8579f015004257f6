"""Hypergraph files: the published example, there and back, and malformed ones."""

import numpy as np
import pytest

from gridgrad.experiments.parts.partition_files import read_hypergraph, read_parts, write_hypergraph, write_parts
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.partitioning.hypergraph import Hypergraph
from gridgrad.parallel.partitioning.network_hypergraph import of_network

PUBLISHED = """0 13 12 38 3
       1 0 1 2 3 4
        2 1 5 6 7
        2 2 5 6 7
        2 3 5 6 7
        2 4 5 6 7
         3 5 8 9
         3 6 8 9
         3 7 8 9
         4 8 10
         4 9 10
        5 10 11
        6 11 12
1 2 2 2 2 3 3 3 4 4 5 6 7
"""  # Eserol 2019, Figure 3.5


def test_the_published_file_is_read_and_written(tmp_path):
    (tmp_path / "a.patoh").write_text(PUBLISHED)
    graph = read_hypergraph(tmp_path / "a.patoh")
    assert (graph.vertices, graph.nets, len(graph.pins)) == (13, 12, 38)
    assert graph.weights.tolist() == [1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7]
    assert graph.costs.tolist() == [1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6]
    write_hypergraph(graph, tmp_path / "b.patoh")
    assert (tmp_path / "b.patoh").read_text().split() == PUBLISHED.split()


@pytest.mark.parametrize("ending", [".patoh", ".hgr"])
def test_a_network_goes_through_a_file(tmp_path, ending):
    graph = of_network(network_names.build("resnet20", (16, 16, 3), 10), "fine", 4).hypergraph
    write_hypergraph(graph, tmp_path / "part", f"net{ending}")
    (tmp_path / "part").rename(tmp_path / f"net{ending}")
    found = read_hypergraph(tmp_path / f"net{ending}")
    for name in ("weights", "costs", "offsets", "roots", "net_of_pin"):
        assert (getattr(found, name) == getattr(graph, name)).all(), name
    assert (np.sort(found.net_of_pin * graph.vertices + found.pins) == graph.net_of_pin * graph.vertices + graph.pins).all()


def test_the_other_weightings_and_comments_are_read(tmp_path):
    (tmp_path / "a.patoh").write_text("% a comment\n1 3 2 4\n1 2\n\n% another\n2 3\n")
    graph = read_hypergraph(tmp_path / "a.patoh")
    assert graph.pins.tolist() == [0, 1, 1, 2] and graph.weights.tolist() == [1] * 3 and graph.costs.tolist() == [1, 1]
    (tmp_path / "a.patoh").write_text("0 3 2 4 1\n0 1\n1 2\n4 5\n6\n")
    assert read_hypergraph(tmp_path / "a.patoh").weights.tolist() == [4, 5, 6]
    (tmp_path / "a.hgr").write_text("2 3 1\n7 1 2\n8 2 3\n")
    assert read_hypergraph(tmp_path / "a.hgr").costs.tolist() == [7, 8]
    (tmp_path / "a.hgr").write_text("2 3 10\n1 2\n2 3\n4\n5\n6\n")
    assert read_hypergraph(tmp_path / "a.hgr").weights.tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", "", "must end in .patoh"),
        ("a.patoh", "", "ends after line 0, before the sizes"),
        ("a.patoh", "0 3 2\n", "line 1: the first line 0 3 2 is not that of a .patoh file"),
        ("a.patoh", "2 3 2 4\n", "is not that of a .patoh file"),
        ("a.patoh", "0 3 2 -4\n", "is not that of a .patoh file"),
        ("a.patoh", "0 3 2 4\n0 1\n", "ends after line 2, before net 1 of 2"),
        ("a.patoh", "0 3 2 4\n0 x\n", "line 2: 'x' is no whole number"),
        ("a.patoh", "0 3 2 4\n0 --1\n", "line 2: '--1' is no whole number"),
        ("a.patoh", "0 3 2 4\n0 +-1\n", "line 2: '+-1' is no whole number"),
        ("a.patoh", f"0 3 2 4\n0 {'1' * 5000}\n", f"line 2: '{'1' * 20}' is no whole number"),
        ("a.patoh", f"0 3 2 4 2\n{2**63} 0 1\n", f"line 2: '{2**63}' is no whole number, or one beyond 2^63"),
        ("a.patoh", f"0 {2**62} 0 0\n", f"line 1: there are {2**62} vertices, but at most"),
        ("a.patoh", "0 3 2 4\n0 3\n", "line 2: the vertices are 0 to 2, but the net has 0 to 3"),
        ("a.patoh", "0 3 2 4 2\n5\n", "line 2: the net has no vertices"),
        ("a.patoh", "0 3 2 5\n0 1\n1 2\n", "the nets have 4 pins, but the first line says 5"),
        ("a.patoh", "0 3 2 4 1\n0 1\n1 2\n3 4\n", "before the weights of 3 vertices, of which 2 are there"),
        ("a.patoh", "0 3 2 4\n0 1\n1 2\n3 4\n", "line 4: there are more numbers"),
        ("a.patoh", "0 3 2 4\n0 1\n1 1\n", "a.patoh: hypergraph: net 1 has the vertex 1 twice"),
        ("a.hgr", "2 3 7\n", "is not that of a .hgr file"),
        ("a.hgr", "2 3\n1 2\n0 1\n", "line 3: the vertices are 1 to 3, but the net has 0 to 1"),
    ],
)
def test_malformed_files_are_named_with_the_line(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError) as caught:
        read_hypergraph(tmp_path / name)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_partitions_go_through_a_file(tmp_path):
    parts = np.arange(100_000) % 7
    write_parts(parts, tmp_path / "parts")
    assert (read_parts(tmp_path / "parts", len(parts)) == parts).all()
    with pytest.raises(ValueError, match="100000 numbers, but the hypergraph has 3 vertices"):
        read_parts(tmp_path / "parts", 3)
    (tmp_path / "parts").write_text("0 1\n2 -1\n")
    with pytest.raises(ValueError, match="line 2: a part must be a number of at least 0, not -1"):
        read_parts(tmp_path / "parts", 4)
    for word in ("--1", "9" * 5000, str(2**64)):
        (tmp_path / "parts").write_text(f"0 1\n2 {word}\n")
        with pytest.raises(ValueError, match=f"parts, line 2: '{word[:20]}' is no whole number"):
            read_parts(tmp_path / "parts", 4)


def test_a_hypergraph_without_nets(tmp_path):
    write_hypergraph(Hypergraph([1, 2], [], [0], []), tmp_path / "a.hgr")
    assert read_hypergraph(tmp_path / "a.hgr").weights.tolist() == [1, 2]
