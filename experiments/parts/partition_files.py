"""Hypergraphs and partitions as text files, for other partitioners: PaToH's format (Eserol 2019, Figure 3.5) and hMETIS'.

The ending of a name says which: `.patoh` or `.hgr`. Both have a line with the sizes, a line for each net with its cost and its
vertices, and then the weights of the vertices; lines that begin with % are comments. A partition is one number for each vertex.
The first vertex of a net is the one that owns its data. Groups of nets, and nets in which all others send to that vertex, are
not in the formats: what is read has the defaults of `Hypergraph`. Files are written and read line by line.
"""

import os
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gridgrad.nn.files import limits
from gridgrad.parallel.partitioning.hypergraph import Hypergraph

AT_ONCE = 1 << 16  # the numbers that are turned into text at once
MOST_VERTICES = 1 << 28  # which take 2 GiB of memory
FEW_VERTICES = 1 << 16  # there may be so many more than bytes in the file, so that a wrong first line takes little memory


@dataclass
class _Sizes:
    """The first line of a file. base: the number of the first vertex. pins: None where the format does not say."""

    base: int
    vertices: int
    nets: int
    pins: int | None
    has_costs: bool
    has_weights: bool


def read_hypergraph(path):
    """The Hypergraph in a file. ValueError, with the number of the line, for a file that is none."""
    sizes_of, _ = _format(path)
    with open(path, encoding="utf-8", errors="replace", opener=limits.ordinary) as file:
        lines = _Lines(path, file)
        words = lines.next("the sizes of the hypergraph")
        sizes = sizes_of(words)
        if sizes is None or min(words) < 0:
            raise lines.error(f"the first line {' '.join(map(str, words))} is not that of a {Path(path).suffix} file")
        most = min(MOST_VERTICES, FEW_VERTICES + os.path.getsize(path))
        if sizes.vertices > most:
            raise lines.error(f"there are {sizes.vertices} vertices, but at most {most} can be read from a file of this size")
        costs, ends, pins = array("q"), array("q", [0]), array("q")
        for net in range(sizes.nets):
            words = lines.next(f"net {net + sizes.base} of {sizes.nets}")
            costs.append(words.pop(0) if sizes.has_costs else 1)
            if not words:
                raise lines.error("the net has no vertices")
            if min(words) < sizes.base or max(words) >= sizes.base + sizes.vertices:
                raise lines.error(f"the vertices are {sizes.base} to {sizes.base + sizes.vertices - 1}, but the net has "
                                  f"{min(words)} to {max(words)}")  # fmt: skip
            pins.extend(words)
            ends.append(len(pins))
        if sizes.pins not in (None, len(pins)):
            raise lines.error(f"the nets have {len(pins)} pins, but the first line says {sizes.pins}")
        weights = array("q")
        while sizes.has_weights and len(weights) < sizes.vertices:
            weights.extend(lines.next(f"the weights of {sizes.vertices} vertices, of which {len(weights)} are there", True))
        if len(weights) > sizes.vertices or lines.more():
            raise lines.error("there are more numbers than the first line says")
    weights = np.array(weights, np.int64) if sizes.has_weights else np.ones(sizes.vertices, np.int64)
    costs, ends, pins = (np.array(numbers, np.int64) for numbers in (costs, ends, pins))
    graph = Hypergraph(weights, costs, ends, pins - sizes.base)
    try:
        graph.check()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return graph


def write_hypergraph(graph, path, like=None):
    """Write a Hypergraph. like: a name with the ending that says the format, if `path` has another one."""
    _, head = _format(like or path)
    base, line = head(graph)
    with open(path, "w", encoding="utf-8") as file:
        file.write(line + "\n")
        for start, stop, cost, root in zip(graph.offsets[:-1], graph.offsets[1:], graph.costs, graph.roots):
            pins = graph.pins[start:stop]
            numbers = [int(cost), int(root) + base, *(pins[pins != root] + base).tolist()]
            file.write(" ".join(map(str, numbers)) + "\n")
        between = " " if base == 0 else "\n"  # PaToH has the weights in one line, hMETIS one a line
        for start in range(0, graph.vertices, AT_ONCE):
            file.write(between.join(map(str, graph.weights[start : start + AT_ONCE].tolist())) + between)
        file.write("\n" if base == 0 else "")


def read_parts(path, vertices):
    """The part of each of so many vertices, int64 (vertices,), from a file. ValueError, with the line, for a bad file."""
    parts, count = array("q"), 0
    with open(path, encoding="utf-8", errors="replace", opener=limits.ordinary) as file:
        lines = _Lines(path, file)
        while lines.more(in_pieces=True):
            words = lines.next("a part", in_pieces=True)
            if min(words) < 0:
                raise lines.error(f"a part must be a number of at least 0, not {min(words)}")
            count += len(words)
            parts.extend(words if count <= vertices else ())
    if count != vertices:
        raise ValueError(f"{path}: there are {count} numbers, but the hypergraph has {vertices} vertices")
    return np.array(parts, np.int64)


def write_parts(parts, path):
    """Write the part of each vertex, one number a line."""
    with open(path, "w", encoding="utf-8") as file:
        for start in range(0, len(parts), AT_ONCE):
            file.write("".join(f"{part}\n" for part in np.asarray(parts[start : start + AT_ONCE]).tolist()))


class _Lines:
    """The lines of a file that are no comments, as lists of whole numbers."""

    def __init__(self, path, file):
        self.path, self.file, self.number, self.waiting, self.rest = path, file, 0, None, ""

    def more(self, in_pieces=False):
        """Whether there is another line. in_pieces: or a piece of one that is too long to be taken apart at once."""
        while self.waiting is None:
            most = limits.longest_text()
            line = self.rest + self.file.readline(most)
            if not line:
                return False
            self.number += not self.rest
            self.rest = ""
            if len(line) >= most and line[-1] != "\n":
                line, blank, self.rest = line.rpartition(" ")
                if not (blank and in_pieces) or line.lstrip()[:1] == "%":
                    raise self.error(f"it has more than {limits.size(most)}, which is the most that is read of a line")
            words = line.split()
            if words and not words[0].startswith("%"):
                self.waiting = words
        return True

    def next(self, what, in_pieces=False):
        """The numbers of the next line. what: what it should have, for the error if there is none. in_pieces: as for `more`."""
        if not self.more(in_pieces):
            raise ValueError(f"{self.path}: the file ends after line {self.number}, before {what}")
        words, self.waiting = self.waiting, None
        numbers = array("q")
        for word in words:
            try:
                numbers.append(int(word))
            except (ValueError, OverflowError):
                raise self.error(f"'{word[:20]}' is no whole number, or one beyond 2^63") from None
        return numbers.tolist()

    def error(self, words):
        """The ValueError about the line that was read last."""
        return ValueError(f"{self.path}, line {self.number}: {words}")


def _patoh_sizes(words):
    if (
        len(words) not in (4, 5, 6)
        or words[0] not in (0, 1)
        or (words[4:5] or [0])[0] not in range(4)
        or words[5:] not in ([], [1])
    ):
        return None
    scheme = (words[4:] or [0])[0]  # 1: weights of vertices, 2: costs of nets, 3: both
    return _Sizes(*words[:4], scheme >= 2, scheme in (1, 3))


def _hmetis_sizes(words):
    if len(words) not in (2, 3) or words[2:] not in ([], [0], [1], [10], [11]):
        return None
    scheme = (words[2:] or [0])[0]
    return _Sizes(1, words[1], words[0], None, scheme in (1, 11), scheme >= 10)


def _patoh_head(graph):
    return 0, f"0 {graph.vertices} {graph.nets} {len(graph.pins)} 3"


def _hmetis_head(graph):
    return 1, f"{graph.nets} {graph.vertices} 11"


# ending: (a function of the numbers of the first line that returns _Sizes, or None if they are none; a function of a
# Hypergraph that returns the number of the first vertex and the first line)
FORMATS = {".patoh": (_patoh_sizes, _patoh_head), ".hgr": (_hmetis_sizes, _hmetis_head)}


def check_name(path):
    """Raise ValueError unless the ending of a name is that of a hypergraph file."""
    _format(path)


def _format(path):
    found = FORMATS.get(Path(path).suffix)
    if found is None:
        raise ValueError(f"{path}: a hypergraph file must end in {' (PaToH) or '.join(FORMATS)} (hMETIS)")
    return found
