"""Hypergraphs: vertices are pieces of work, and a net connects all pieces that need or make the same data. If the vertices of a
net are in several parts of a partition, its data travels from the part that owns them to each other one. So the volume is the
sum over all nets of cost x (lambda - 1), where lambda, the *connectivity* of a net, is the number of parts that it is in."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

TABLE = 1 << 24  # the entries of a table of nets and parts that is made at once, which bounds the memory


@dataclass(frozen=True, eq=False)
class Hypergraph:
    """Vertices 0..V-1 and nets 0..E-1. Arrays become int64, are not copied, and must not be changed."""

    weights: np.ndarray  # (V,): the work of each vertex
    costs: np.ndarray  # (E,): the elements that a net sends to each further part
    offsets: np.ndarray  # (E + 1,): the vertices of net e are pins[offsets[e] : offsets[e + 1]]
    pins: np.ndarray  # (offsets[-1],)
    roots: np.ndarray | None = None  # (E,): the vertex that owns the data of a net, by default its first pin
    reduces: np.ndarray | None = None  # (E,): whether the root adds what the other parts send to it; by default it sends
    # (E,): the group of each net, which is an array of the network; a rank sends its part of one in a single message.
    groups: np.ndarray | None = None
    group_names: tuple = ("",)  # which may repeat

    def __post_init__(self):
        for name in ("weights", "costs", "offsets", "pins"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.int64))
        nets = len(self.costs)
        if self.roots is None:  # a net without pins, which `check` refuses, gets any
            first = np.minimum(self.offsets[:-1], max(0, len(self.pins) - 1))
            object.__setattr__(self, "roots", self.pins[first] if len(self.pins) else np.zeros(nets, np.int64))
        for name, kind in (("roots", np.int64), ("reduces", bool), ("groups", np.int64)):
            given = getattr(self, name)
            object.__setattr__(self, name, np.zeros(nets, kind) if given is None else np.asarray(given, kind))

    @property
    def vertices(self):
        return len(self.weights)

    @property
    def nets(self):
        return len(self.costs)

    @cached_property
    def net_of_pin(self):
        """The net that each pin belongs to: an array like `pins`."""
        return np.repeat(np.arange(self.nets), np.diff(self.offsets))

    def check(self):
        """Raise ValueError, in one line, for a hypergraph that is none: a net without pins, or with one twice, for example."""
        if len(self.offsets) != self.nets + 1 or self.offsets[0] != 0 or self.offsets[-1] != len(self.pins):
            raise ValueError(
                f"hypergraph: the offsets of {self.nets} nets must go from 0 to the number of pins, {len(self.pins)}"
            )
        _refuse(np.diff(self.offsets) < 1, "net", "has no pins, but must have at least one")
        _refuse(self.weights < 0, "vertex", "has a negative weight")
        _refuse(self.costs < 0, "net", "has a negative cost")
        if len(self.pins) and not 0 <= self.pins.min() <= self.pins.max() < self.vertices:
            wrong = np.flatnonzero((self.pins < 0) | (self.pins >= self.vertices))[0]
            raise ValueError(f"hypergraph: net {self.net_of_pin[wrong]} has the pin {self.pins[wrong]}, but the vertices are "
                             f"0 to {self.vertices - 1}")  # fmt: skip
        keys = np.sort(self.net_of_pin * self.vertices + self.pins)
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            net, vertex = divmod(int(keys[twice[0]]), self.vertices)
            raise ValueError(f"hypergraph: net {net} has the vertex {vertex} twice")
        if len(self.roots) != self.nets or len(self.reduces) != self.nets or len(self.groups) != self.nets:
            raise ValueError(f"hypergraph: roots, reduces and groups must have an entry for each of the {self.nets} nets")
        rooted = np.zeros(self.nets, bool)
        rooted[self.net_of_pin[self.pins == self.roots[self.net_of_pin]]] = True
        _refuse(~rooted, "net", "does not contain the vertex that owns its data")
        if self.nets and not 0 <= self.groups.min() <= self.groups.max() < len(self.group_names):
            raise ValueError(f"hypergraph: the groups of nets must be numbers from 0 to {len(self.group_names) - 1}")

    def check_parts(self, parts, k):
        """`parts`, the part of each vertex (V,), as an array; ValueError for any other than V numbers from 0 to k - 1."""
        parts = np.asarray(parts)
        if parts.shape != (self.vertices,) or parts.dtype.kind not in "iu":
            raise ValueError(f"a partition must be {self.vertices} whole numbers, one for each vertex, not {parts.dtype} "
                             f"{parts.shape}")  # fmt: skip
        if len(parts) and not 0 <= parts.min() <= parts.max() < k:
            raise ValueError(
                f"a partition into {k} parts must have numbers from 0 to {k - 1}, not {parts.min()} to {parts.max()}"
            )
        return parts

    def limits(self, k, epsilon=0.1, speeds=None):
        """What `limits_of` returns for the weights."""
        return limits_of(self.weights, k, epsilon, speeds)

    def part_weights(self, parts, k):
        """The work of each part, int64 (k,). parts: here and below, the part of each vertex, (V,)."""
        total = np.zeros(k, np.int64)
        np.add.at(total, parts, self.weights)
        return total

    def connectivity(self, parts, k):
        """In how many of k parts each net has vertices, (E,)."""
        found = [np.count_nonzero(table, axis=1) for _, table in self._presence(parts, k)]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def volume(self, parts, k):
        """The elements that travel between k parts, once through the network: the sum of cost x (connectivity - 1)."""
        return int(self.costs @ (self.connectivity(parts, k) - 1))

    def traffic(self, parts, k):
        """The elements that part p sends to part q forward, int64 (groups, k, k): each entry above 0 is one message."""
        parts = np.asarray(parts, np.int64)
        total = np.zeros((len(self.group_names), k, k), np.int64)
        for start, table in self._presence(parts, k):
            nets, others = np.nonzero(table)
            nets += start
            away = parts[self.roots[nets]] != others
            nets, others = nets[away], others[away]
            owners, reduces = parts[self.roots[nets]], self.reduces[nets]
            sources, targets = np.where(reduces, others, owners), np.where(reduces, owners, others)
            np.add.at(total, (self.groups[nets], sources, targets), self.costs[nets])
        return total

    def _presence(self, parts, k):
        """Yield (number of the first net, bool table (some nets, k): whether a net has vertices in a part) for all nets."""
        parts, many = np.asarray(parts), max(1, TABLE // k)
        for start in range(0, self.nets, many):
            stop = min(self.nets, start + many)
            pins = slice(self.offsets[start], self.offsets[stop])
            table = np.zeros((stop - start, k), bool)
            table[self.net_of_pin[pins] - start, parts[self.pins[pins]]] = True
            yield start, table


def from_pairs(weights, costs, nets, vertices, **others):
    """The Hypergraph in which vertices[i] is a pin of net nets[i], in ascending order; a pair may be given several times."""
    keys = np.sort(nets * np.int64(max(1, len(weights))) + vertices)
    keys = keys[np.diff(keys, prepend=-1) > 0]
    nets, pins = np.divmod(keys, max(1, len(weights)))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(nets, minlength=len(costs)))))
    return Hypergraph(weights, costs, offsets, pins, **others)


def _refuse(wrong, kind, words):
    """ValueError about the first vertex or net (`kind`) that is `wrong`, an array of booleans."""
    if wrong.any():
        raise ValueError(f"hypergraph: {kind} {np.flatnonzero(wrong)[0]} {words}")


def limits_of(weights, k, epsilon, speeds=None):
    """(the most work of each of k parts, float (k,); the part that a vertex must be in, or -1, int64 (V,)): 1 + epsilon times a
    part's share of all work, by speeds or evenly. ValueError for bad arguments."""
    speeds = np.ones(k) if speeds is None else np.asarray(speeds, float)
    if speeds.shape != (k,) or not (np.isfinite(speeds) & (speeds > 0)).all():
        raise ValueError(f"speeds must be {k} numbers above 0, one for each part")
    if not 0 <= epsilon < np.inf:
        raise ValueError(f"epsilon, the part of its share by which a part may be too large, must be at least 0, not {epsilon}")
    limits = (1 + epsilon) * weights.sum() * speeds / speeds.sum()
    # A vertex above all limits gets a part for itself, the largest that with the largest share, and its weight is the limit.
    fixed = np.full(len(weights), -1)
    heavy = np.flatnonzero(weights > limits.max())
    heavy, alone = heavy[np.argsort(-weights[heavy], kind="stable")], np.argsort(-limits, kind="stable")[: len(heavy)]
    fixed[heavy], limits[alone] = alone, weights[heavy]
    return limits, fixed
