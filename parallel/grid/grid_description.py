"""A process grid without processes: one process can place a network on any number of ranks with it, and predict its cost."""

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from gridgrad.parallel.grid.process_grid import AXES, written


@dataclass(frozen=True)
class GroupDescription:
    """The ranks along some axes of a grid, like a `Group` but without a communicator.
    on_node: how many of them are on this rank's node, where that matters. axes: along which they differ."""

    size: int
    rank: int
    on_node: int = 0
    axes: frozenset = field(default=frozenset(), compare=False)


class GridDescription:
    """The sizes of a process grid and the coordinates of one rank; axes left out have size 1 and coordinate 0.
    ranks_per_node: how many ranks, consecutive in rank order, share a node; by default all do."""

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
        place = self.coordinates | dict.fromkeys(group.axes)
        return ranks_at(tuple(self.sizes.values()), tuple(place[axis] for axis in AXES))

    def rank_beside(self, axis, coordinate):
        """The number in the grid of the rank that has another coordinate along an axis."""
        place = self.coordinates | {axis: coordinate}
        return ranks_at(tuple(self.sizes.values()), tuple(place[axis] for axis in AXES))[0]

    def spans_nodes(self, *axes):
        """Whether the ranks that differ from this one only along `axes` are on several nodes."""
        group = self.group(*axes)
        return group.size > group.on_node

    def __str__(self):
        return written(self.sizes)


@lru_cache(maxsize=4096)
def ranks_at(sizes, place):
    """The numbers of the ranks with these coordinates along `AXES`, where None stands for any: a rising tuple."""
    ranks = (0,)
    for size, coordinate in zip(sizes, place, strict=True):
        ranks = tuple(rank * size + at for rank in ranks for at in (range(size) if coordinate is None else (coordinate,)))
    return ranks
