"""Files of other partitioners: hypergraphs as they are published, and partitions."""

import numpy as np
import pytest

from gridgrad.experiments.partition import read_parts, write_hypergraph
from gridgrad.parallel.partitioning.hypergraph import Hypergraph

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


def published():
    _, *lines, weights = ([int(word) for word in line.split()] for line in PUBLISHED.splitlines())
    ends = np.cumsum([0, *(len(pins) for _, *pins in lines)])
    return Hypergraph(weights, [line[0] for line in lines], ends, [pin for _, *pins in lines for pin in pins])


def test_hypergraphs_are_written_as_published(tmp_path):
    write_hypergraph(published(), tmp_path / "a.patoh")
    assert (tmp_path / "a.patoh").read_text().split() == PUBLISHED.split()
    write_hypergraph(published(), tmp_path / "a.hgr")
    first, *lines = [[int(word) for word in line.split()] for line in (tmp_path / "a.hgr").read_text().splitlines()]
    assert first == [12, 13, 11] and lines[0] == [1, 1, 2, 3, 4, 5] and lines[12:] == [[n] for n in published().weights]
    write_hypergraph(Hypergraph([1, 2], [], [0], []), tmp_path / "a.hgr")
    assert (tmp_path / "a.hgr").read_text() == "0 2 11\n1\n2\n"
    write_hypergraph(Hypergraph([1, 1], [3], [0, 2], [0, 1], [1]), tmp_path / "a.patoh")
    assert (tmp_path / "a.patoh").read_text().splitlines()[1] == "3 1 0"  # the owner of the data comes first


def test_partitions_are_read(tmp_path):
    parts = np.arange(100_000) % 7
    (tmp_path / "parts").write_text(
        "% a comment\n" + " ".join(map(str, parts[:50_000])) + "\n" + "\n".join(map(str, parts[50_000:]))
    )
    assert (read_parts(tmp_path / "parts", len(parts)) == parts).all()
    with pytest.raises(ValueError, match="100000 numbers, but the hypergraph has 3 vertices"):
        read_parts(tmp_path / "parts", 3)
    for word in ("-1", "x", "--1", "9" * 5000, str(2**64)):
        (tmp_path / "parts").write_text(f"0 1\n2 {word}\n")
        with pytest.raises(ValueError, match=f"parts, line 2: '{word[:20]}' is no part"):
            read_parts(tmp_path / "parts", 4)
