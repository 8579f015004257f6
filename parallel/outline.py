"""A process grid without processes: enough of one to place a network on it, for any number of ranks, and look at the result."""

from dataclasses import dataclass
from math import prod

from parallel.grid import AXES


@dataclass(frozen=True)
class Ranks:
    """The ranks along some axes, as a `Group` without a communicator.

    size: how many. rank: this one's place. spread: in the order of all ranks, how far the first is from the last.
    """

    size: int
    rank: int
    spread: int


class Outline:
    """What one rank of a ProcessGrid knows of it.

    sizes: by axis; absent ones are 1. coordinates: of the rank, by axis; by default the first one's, whose parts are never
    smaller than another's. ranks_per_node: neighbours in rank that are on one node, by default all.
    """

    def __init__(self, sizes, coordinates=None, ranks_per_node=None):
        self.sizes = {axis: sizes.get(axis, 1) for axis in AXES}
        self.coordinates = dict.fromkeys(AXES, 0) | (coordinates or {})
        self.size = prod(self.sizes.values())
        self.ranks_per_node = ranks_per_node or self.size

    def group(self, *axes):
        chosen = [axis for axis in AXES if axis in axes]
        rank, spread, stride = 0, 0, self.size
        for axis in AXES:
            stride //= self.sizes[axis]
            if axis in chosen:
                rank = rank * self.sizes[axis] + self.coordinates[axis]
                spread += (self.sizes[axis] - 1) * stride
        return Ranks(prod(self.sizes[axis] for axis in chosen), rank, spread)

    def spans_nodes(self, *axes):
        return self.group(*axes).spread >= self.ranks_per_node
