"""A process grid without processes: what the placement and the cost model need to know of one.

With it a network can be placed on a grid of any number of ranks, and its cost predicted, in one serial process.
"""

from dataclasses import dataclass, field
from itertools import product
from math import prod

from gridgrad.parallel.grid.process_grid import AXES, written


@dataclass(frozen=True)
class GroupDescription:
    """The ranks along some axes of a grid, like a `Group` but without a communicator.

    size: the number of ranks. rank: the position of this rank among them. on_node: how many of them are on this rank's node.
    axes: along which they differ.
    """

    size: int
    rank: int
    on_node: int
    axes: frozenset = field(default=frozenset(), compare=False)


class GridDescription:
    """The sizes of a process grid and the position of one rank in it.

    sizes: {axis: number of ranks}; axes left out have size 1. coordinates: {axis: coordinate} of the rank; axes left out are 0,
    and in an even split no rank has larger parts than the one at 0. ranks_per_node: how many ranks, consecutive in rank order,
    share a node; by default all do.
    """

    on_cpus = True  # the cost model predicts no others

    def __init__(self, sizes, coordinates=None, ranks_per_node=None):
        self.sizes = {axis: sizes.get(axis, 1) for axis in AXES}
        self.coordinates = dict.fromkeys(AXES, 0) | (coordinates or {})
        self.size = prod(self.sizes.values())
        self.ranks_per_node = min(ranks_per_node or self.size, self.size)
        self._groups = {}

    def group(self, *axes):
        """The ranks that differ from this one only along `axes`: a GroupDescription. See `ProcessGrid.group`."""
        axes = frozenset(axes)
        if axes not in self._groups:
            rank, on_node, stride = 0, 1, self.size
            for axis in AXES:
                stride //= self.sizes[axis]
                if axis in axes:
                    rank = rank * self.sizes[axis] + self.coordinates[axis]
                    on_node *= min(self.sizes[axis], max(1, self.ranks_per_node // stride))
            self._groups[axes] = GroupDescription(prod(self.sizes[axis] for axis in axes), rank, on_node, axes)
        return self._groups[axes]

    def ranks_of(self, group):
        """The numbers in the grid of the ranks of one of its groups, in the order of the group: a tuple."""
        places = (range(self.sizes[axis]) if axis in group.axes else (self.coordinates[axis],) for axis in AXES)
        return tuple(rank_at(self.sizes, place) for place in product(*places))

    def spans_nodes(self, *axes):
        """Whether the ranks that differ from this one only along `axes` are on several nodes."""
        group = self.group(*axes)
        return group.size > group.on_node

    def __str__(self):
        """The text that names this grid on the command line, such as "batch=4,model=2"."""
        return written(self.sizes)


def rank_at(sizes, place):
    """The number of the rank with these coordinates, one for each of `AXES`, on a grid of these sizes."""
    rank = 0
    for axis, coordinate in zip(AXES, place, strict=True):
        rank = rank * sizes[axis] + coordinate
    return rank
