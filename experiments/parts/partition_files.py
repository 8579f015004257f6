"""Hypergraphs and partitions as text files, for other partitioners: PaToH's format (Eserol 2019, Figure 3.5) and hMETIS'.

The ending of a name says which: `.patoh` or `.hgr`. Both have a line with the sizes, a line for each net with its cost and its
vertices, and then the weights of the vertices; lines that begin with % are comments. A partition is one number for each vertex.
The first vertex of a net is the one that owns its data. Groups of nets, and nets in which all others send to that vertex, are
not in the formats: what is read has the defaults of `Hypergraph`. Files are written and read line by line.
"""

import os
from array import array
from pathlib import Path

import numpy as np

from gridgrad.nn.files import limits
from gridgrad.parallel.partitioning.hypergraph import Hypergraph

PATOH, HMETIS = ".patoh", ".hgr"
SCHEMES = {  # {ending: {last number of the first line: (whether nets have costs, whether vertices have weights)}}
    PATOH: {0: (False, False), 1: (False, True), 2: (True, False), 3: (True, True)},
    HMETIS: {0: (False, False), 1: (True, False), 10: (False, True), 11: (True, True)},
}
AT_ONCE = 1 << 16  # the numbers that are turned into text at once
MOST_VERTICES = 1 << 28  # which take 2 GiB of memory
FEW_VERTICES = 1 << 16  # there may be so many more than bytes in the file, so that a wrong first line takes little memory


def ending_of(path):
    """The ending of the name of a hypergraph file; ValueError if it is none."""
    if (ending := Path(path).suffix) not in SCHEMES:
        raise ValueError(f"{path}: a hypergraph file must end in {PATOH} (PaToH) or {HMETIS} (hMETIS)")
    return ending


def sizes_of(words, ending):
    """(first vertex, vertices, nets, pins or None, whether with costs, with weights) of a first line; None if it is none."""
    numbers, rest = (words[:4], words[4:]) if ending == PATOH else ([1, *words[1::-1], None], words[2:])
    if ending == PATOH and rest[1:] == [1]:  # the number of constraints
        del rest[1:]
    scheme = SCHEMES[ending].get(rest[0] if rest else 0)
    if len(numbers) < 4 or len(rest) > 1 or min(words) < 0 or numbers[0] > 1 or scheme is None:
        return None
    return *numbers, *scheme


def read_hypergraph(path):
    """The Hypergraph in a file. ValueError, with the number of the line, for a file that is none."""
    ending = ending_of(path)
    with open(path, encoding="utf-8", errors="replace", opener=limits.ordinary) as file:
        lines = Lines(path, file)
        words = lines.next("the sizes of the hypergraph")
        if (sizes := sizes_of(words, ending)) is None:
            raise lines.error(f"the first line {' '.join(map(str, words))} is not that of a {ending} file")
        base, vertices, nets, count, has_costs, has_weights = sizes
        most = min(MOST_VERTICES, FEW_VERTICES + os.path.getsize(path))
        if vertices > most:
            raise lines.error(f"there are {vertices} vertices, but at most {most} can be read from a file of this size")
        costs, ends, pins, weights = array("q"), array("q", [0]), array("q"), array("q")
        for net in range(nets):
            words = lines.next(f"net {net + base} of {nets}")
            costs.append(words.pop(0) if has_costs else 1)
            if not words:
                raise lines.error("the net has no vertices")
            if min(words) < base or max(words) >= base + vertices:
                raise lines.error(
                    f"the vertices are {base} to {base + vertices - 1}, but the net has {min(words)} to {max(words)}"
                )
            pins.extend(words)
            ends.append(len(pins))
        if count not in (None, len(pins)):
            raise lines.error(f"the nets have {len(pins)} pins, but the first line says {count}")
        while has_weights and len(weights) < vertices:
            weights.extend(lines.next(f"the weights of {vertices} vertices, of which {len(weights)} are there", True))
        if len(weights) > vertices or lines.more():
            raise lines.error("there are more numbers than the first line says")
    weights = np.array(weights, np.int64) if has_weights else np.ones(vertices, np.int64)
    graph = Hypergraph(weights, *(np.array(numbers, np.int64) for numbers in (costs, ends)), np.array(pins, np.int64) - base)
    try:
        graph.check()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return graph


def write_hypergraph(graph, path, like=None):
    """Write a Hypergraph. like: a name with the ending that says the format, if `path` has another one."""
    patoh = ending_of(like or path) == PATOH
    base, between = (0, " ") if patoh else (1, "\n")  # PaToH has the weights in one line, hMETIS one a line
    with open(path, "w", encoding="utf-8") as file:
        sizes = f"0 {graph.vertices} {graph.nets} {len(graph.pins)} 3" if patoh else f"{graph.nets} {graph.vertices} 11"
        file.write(f"{sizes}\n")
        for start, stop, cost, root in zip(graph.offsets[:-1], graph.offsets[1:], graph.costs, graph.roots):
            pins = graph.pins[start:stop]
            numbers = [int(cost), int(root) + base, *(pins[pins != root] + base).tolist()]
            file.write(" ".join(map(str, numbers)) + "\n")
        write_numbers(file, graph.weights, between)
        file.write("\n" if patoh else "")


def write_numbers(file, numbers, between="\n"):
    for start in range(0, len(numbers), AT_ONCE):
        file.write("".join(f"{number}{between}" for number in np.asarray(numbers[start : start + AT_ONCE]).tolist()))


def read_parts(path, vertices):
    """The part of each of so many vertices, int64 (vertices,), from a file. ValueError, with the line, for a bad file."""
    parts, count = array("q"), 0
    with open(path, encoding="utf-8", errors="replace", opener=limits.ordinary) as file:
        lines = Lines(path, file)
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
        write_numbers(file, parts)


class Lines:
    """The lines of a file that are no comments, as lists of whole numbers. in_pieces: a line that is too long in pieces."""

    def __init__(self, path, file):
        self.path, self.file, self.number, self.waiting, self.rest = path, file, 0, None, ""

    def more(self, in_pieces=False):
        """Whether there is another line, or piece of one."""
        most = limits.longest_text()
        while self.waiting is None:
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
        """The numbers of the next line. what: what it should have, for the error if there is none."""
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
