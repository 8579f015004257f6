"""A process grid without processes: enough of one to place a network on it, for any number of ranks, and look at the result."""

from dataclasses import dataclass
from math import prod

from parallel.grid.process_grid import AXES


@dataclass(frozen=True)
class GroupDescription:
    """The ranks along some axes, as a `Group` without a communicator.

    size: how many. rank: this one's place among them. on_node: how many of them are on this one's node.
    """

    size: int
    rank: int
    on_node: int


class GridDescription:
    """What one rank of a ProcessGrid knows of it.

    sizes: by axis; absent ones are 1. coordinates: of the rank, by axis; by default the first one's, whose parts are never
    smaller than another's. ranks_per_node: neighbours in rank that are on one node, by default all.
    """

    def __init__(self, sizes, coordinates=None, ranks_per_node=None):
        self.sizes = {axis: sizes.get(axis, 1) for axis in AXES}
        self.coordinates = dict.fromkeys(AXES, 0) | (coordinates or {})
        self.size = prod(self.sizes.values())
        self.ranks_per_node = min(ranks_per_node or self.size, self.size)
        self._groups = {}

    def group(self, *axes):
        axes = frozenset(axes)
        if axes not in self._groups:
            rank, on_node, stride = 0, 1, self.size
            for axis in AXES:
                stride //= self.sizes[axis]
                if axis in axes:
                    rank = rank * self.sizes[axis] + self.coordinates[axis]
                    on_node *= min(self.sizes[axis], max(1, self.ranks_per_node // stride))
            self._groups[axes] = GroupDescription(prod(self.sizes[axis] for axis in axes), rank, on_node)
        return self._groups[axes]

    def spans_nodes(self, *axes):
        group = self.group(*axes)
        return group.size > group.on_node

    def __str__(self):
        """As on the command line."""
        return ",".join(f"{axis}={size}" for axis, size in self.sizes.items() if size > 1 or axis != "height")
