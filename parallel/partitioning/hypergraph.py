"""Hypergraphs: vertices are pieces of work, and a net connects all pieces that need or make the same data. If the vertices of a
net are in several parts of a partition, its data travels from the part that owns them to each other one. So the volume is the
sum over all nets of cost x (lambda - 1), where lambda, the *connectivity* of a net, is the number of parts that it is in."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

TABLE = 1 << 24  # the entries of a table of nets and parts that is made at once, which bounds the memory


@dataclass(frozen=True, eq=False)
class Hypergraph:
    """Vertices 0..V-1 and nets 0..E-1. Arrays are int64, and must not be changed."""

    weights: np.ndarray  # (V,): the work of each vertex
    costs: np.ndarray  # (E,): the elements that a net sends to each further part
    offsets: np.ndarray  # (E + 1,): the vertices of net e are pins[offsets[e] : offsets[e + 1]]
    pins: np.ndarray  # (offsets[-1],)
    roots: np.ndarray  # (E,): the vertex that owns the data of a net
    reduces: np.ndarray  # bool (E,): whether the root adds what the other parts send to it, and does not send
    groups: np.ndarray  # (E,): the array of the network that a net is of; a rank sends its part of one in a single message
    group_names: tuple  # which may repeat

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

    def volume(self, parts, k):
        """The elements that travel between k parts, once through the network: the sum of cost x (connectivity - 1)."""
        return int(self.traffic(parts, k).sum())

    def traffic(self, parts, k):
        """The elements that part p sends to part q forward, int64 (groups, k, k): each entry above 0 is one message."""
        total, many = np.zeros((len(self.group_names), k, k), np.int64), max(1, TABLE // k)
        for start in range(0, self.nets, many):
            stop = min(self.nets, start + many)
            pins = slice(self.offsets[start], self.offsets[stop])
            table = np.zeros((stop - start, k), bool)  # whether a net has vertices in a part
            table[self.net_of_pin[pins] - start, parts[self.pins[pins]]] = True
            nets, others = np.nonzero(table)
            nets += start
            away = parts[self.roots[nets]] != others
            nets, others = nets[away], others[away]
            owners, reduces = parts[self.roots[nets]], self.reduces[nets]
            sources, targets = np.where(reduces, others, owners), np.where(reduces, owners, others)
            np.add.at(total, (self.groups[nets], sources, targets), self.costs[nets])
        return total


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
