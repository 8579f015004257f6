"""The process grid: one Cartesian communicator, and a sub-communicator for each set of axes that have several ranks.

All of them are made with the grid, because making one is collective: a rank that asks for a group later waits for nobody. Where
k axes have several ranks there are 2^k + 1 beside the Cartesian one, and one more for each set of axes that spans nodes.
"""

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import combinations, product
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI

from gridgrad.nn.arguments import whole_number
from gridgrad.parallel.grid.devices import agree_on_kernels, ranks_on_cpus
from gridgrad.parallel.grid.group import Group, Tally
from gridgrad.parallel.job.run import end_job_when_uncaught, start_line

STAGE = "stage"  # the axis along which whole layers are divided, for a pipeline
BATCH, HEIGHT = "batch", "height"  # axes with one possible plan: samples, and rows of images, are divided
MODEL = "model"  # the axis whose plan is the user's or the planner's
LAYER_AXES = (BATCH, HEIGHT, MODEL)  # the axes that divide the arrays of a layer
AXES = (STAGE, *LAYER_AXES)  # outermost first: consecutive ranks, often on one node, are neighbours along `model`
SIZE = re.compile("0*[1-9][0-9]{0,8}")  # of an axis, as text
ALWAYS_WRITTEN = (BATCH, MODEL)  # also where their size is 1


def parse_grid(text: str) -> dict[str, int]:
    """The number of ranks along each axis of a grid that a text names.

    Parameters
    ----------
    text : str
        The grid as on the command line, such as "batch=4,model=2".

    Returns
    -------
    {axis: number of ranks}, only with the axes that the text names; the others have size 1.

    Raises
    ------
    ValueError
        For an unknown or repeated axis, or a size that is not a whole number of at least 1.

    Examples
    --------
    >>> from gridgrad.parallel import parse_grid
    >>> parse_grid("batch=4,model=2")
    {'batch': 4, 'model': 2}
    """
    sizes: dict[str, int] = {}
    for word in text.split(","):
        axis, equals, number = word.strip().partition("=")
        if axis not in AXES or not equals:
            raise ValueError(f"grid '{text}': '{word}' is not AXIS=SIZE; the axes are {', '.join(AXES)}")
        if axis in sizes:
            raise ValueError(f"grid '{text}' names the axis {axis} twice")
        if not SIZE.fullmatch(number):
            raise ValueError(f"grid '{text}': the size of {axis} must be a whole number of at least 1, not '{number}'")
        sizes[axis] = int(number)
    return sizes


def written(sizes):
    """A grid of these sizes by axis as on the command line; axes that split only images are left out where they have size 1."""
    return ",".join(f"{axis}={size}" for axis, size in sizes.items() if size > 1 or axis in ALWAYS_WRITTEN)


def checked_sizes(sizes):
    """{axis: number of ranks} of all axes, from those of some. ValueError for an unknown axis, or a size that is none."""
    if unknown := sizes.keys() - set(AXES):
        raise ValueError(f"grid: unknown axes {', '.join(sorted(map(str, unknown)))}; the axes are {', '.join(AXES)}")
    return {axis: whole_number(sizes.get(axis, 1), f"grid: the size of {axis}") for axis in AXES}


def check_places(grid, sizes, ranks, started=False):
    """Raise ValueError if a grid with `sizes` {axis: number of ranks} is not a grid of `ranks` ranks in all, or of those that
    this job was `started` on."""
    if (wanted := prod(sizes.values())) != ranks:
        advice = f"change one of them{f', such as by {start_line(wanted)}' if started else ''}"
        raise ValueError(f"the grid {grid} has {wanted} places but the number of ranks is {ranks}: {advice}")


def places(sizes):
    """The coordinates of all ranks of a grid, in rank order: a list of {axis: coordinate}."""
    return [dict(zip(sizes, place, strict=True)) for place in product(*map(range, sizes.values()))]


@dataclass(frozen=True)
class GroupDescription:
    """The ranks along some axes of a grid, like a `Group` but without a communicator.
    on_node: how many of them are on this rank's node, where that matters. axes: along which they differ."""

    size: int
    rank: int
    on_node: int = 0
    axes: frozenset = field(default=frozenset(), compare=False)


class GridDescription:
    """A grid without processes, to predict what a rank does: {axis: ranks} and its {axis: coordinate}; axes left out have size
    1 and coordinate 0. ranks_per_node: how many ranks, consecutive in rank order, share a node; by default all do."""

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
        at = self.coordinates | dict.fromkeys(group.axes, slice(None))
        return tuple(np.arange(self.size).reshape(*self.sizes.values())[tuple(at.values())].ravel().tolist())

    def rank_beside(self, axis, coordinate):
        """The number in the grid of the rank that has another coordinate along an axis."""
        at = self.coordinates | {axis: coordinate}
        return int(np.ravel_multi_index(tuple(at.values()), tuple(self.sizes.values())))

    def spans_nodes(self, *axes):
        """Whether the ranks that differ from this one only along `axes` are on several nodes."""
        group = self.group(*axes)
        return group.size > group.on_node

    def __str__(self):
        return written(self.sizes)


class ProcessGrid:
    """Ranks arranged on named axes. Making one is collective over `comm`.

    All ranks on CPUs compute with the table of kernels of the first of them. Once a grid was made, an uncaught exception on one
    rank ends the whole job. A grid is a context manager that frees its communicators at the end: see `free`.

    Parameters
    ----------
    comm : communicator
        An MPI communicator, such as `MPI.COMM_WORLD`.
    **sizes : int
        The number of ranks along each of the axes `stage`, `batch`, `height` and `model`; axes left out have size 1.

    Attributes
    ----------
    size, rank
        The number of ranks, and the number of this rank, from 0.
    sizes
        {axis: number of ranks}, of all axes.
    coordinates
        {axis: coordinate} of this rank.
    tally
        Counts this rank's communication.
    world
        All ranks of the grid, in rank order: a Group.
    node
        The ranks that share memory with this one, in rank order: a Group. GRIDGRAD_RANKS_PER_NODE=N limits it to N consecutive
        ranks, such as those of one socket.
    on_cpus
        Whether all ranks compute on CPUs, in NumPy.

    Raises
    ------
    ValueError
        For an unknown axis, if the product of the sizes is not the size of `comm`, or if GRIDGRAD_KERNELS names no table of
        kernels.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from gridgrad.parallel import ProcessGrid
    >>> with ProcessGrid(MPI.COMM_WORLD, batch=MPI.COMM_WORLD.size) as grid:
    ...     print(grid.size == grid.sizes["batch"], grid.rank == grid.coordinates["batch"], grid.group("model").size)
    True True 1
    """

    def __init__(self, comm: MPI.Intracomm, **sizes: int) -> None:
        end_job_when_uncaught()
        self.sizes = checked_sizes(sizes)
        check_places(self, self.sizes, comm.size, started=True)
        cpus = ranks_on_cpus(comm)
        self.on_cpus = len(cpus) == comm.size
        agree_on_kernels(comm, cpus[0] if cpus else 0)
        self.comm = comm.Create_cart(list(self.sizes.values()), reorder=False)
        self.size, self.rank = self.comm.size, self.comm.rank
        self.tally = Tally()
        self.coordinates = dict(zip(AXES, self.comm.Get_coords(self.comm.rank)))
        most = os.environ.get("GRIDGRAD_RANKS_PER_NODE") or str(comm.size)
        if not SIZE.fullmatch(most):
            raise ValueError(f"GRIDGRAD_RANKS_PER_NODE must be a whole number of at least 1, not '{most}'")
        together = comm.Split_type(MPI.COMM_TYPE_SHARED)
        node = together.bcast(comm.rank), together.rank // int(most)  # the first of those who share memory, and their part
        together.Free()
        self._nodes = comm.allgather(node)
        self._several = [axis for axis, size in self.sizes.items() if size > 1]
        sets = [axes for number in range(len(self._several) + 1) for axes in combinations(self._several, number)]
        parts = {frozenset(axes): self.comm.Sub([axis in axes for axis in AXES]) for axes in sets}  # in this order on all ranks
        self._groups = {axes: Group(part, self.tally) for axes, part in parts.items()}
        self.world = self.group(*AXES)
        self.node = Group(self.comm.Split(self._nodes.index(self._nodes[self.rank]), self.rank), self.tally)
        self._leaders: dict[Group, Group | None] = {}  # see `leaders`
        for group in self._groups.values():
            here = [rank for rank in group.ranks if rank in self.node.ranks]
            leads = here[0] == group.ranks[group.rank]
            if len(here) == group.size:
                self._leaders[group] = self.group() if leads else None
            else:
                comm = group.comm.Split(0 if leads else MPI.UNDEFINED, group.rank)
                self._leaders[group] = Group(comm, self.tally) if leads else None

    def group(self, *axes: str) -> Group:
        """The ranks that differ from this one only along `axes`. Sets of axes with the same ranks have the same Group."""
        return self._groups[frozenset(axes).intersection(self._several)]

    def on_node(self, group: Group) -> list[int]:
        """Those ranks of `node`, as numbers in its order, that also belong to `group`: a list."""
        return [rank for rank, everywhere in enumerate(self.node.ranks) if everywhere in group.ranks]

    def spans_nodes(self, *axes: str) -> bool:
        """Whether anywhere on the grid ranks that differ only along `axes` are on several nodes."""
        nodes: dict[tuple[int, ...], set[tuple[int, int]]] = defaultdict(set)
        for rank, node in enumerate(self._nodes):
            coordinates = self.coordinates_of(rank)
            nodes[tuple(coordinates[axis] for axis in AXES if axis not in axes)].add(node)
        return any(len(found) > 1 for found in nodes.values())

    def leaders(self, group: Group) -> Group | None:
        """The ranks of a `group` that are the first of it on their node: a Group if this rank is one of them, else None."""
        return self._leaders[group]

    def count_in(self, tally: Tally) -> None:
        """Count the communication of this grid in another tally from now on."""
        self.tally = tally
        for group in self._all_groups():
            group.tally = tally

    def _all_groups(self):
        """Each Group once, in an order that is the same on all ranks that share one."""
        return dict.fromkeys(filter(None, (*self._groups.values(), self.node, *self._leaders.values())))

    def coordinates_of(self, rank: int) -> dict[str, int]:
        """The coordinates, by axis, of any rank."""
        return dict(zip(AXES, self.comm.Get_coords(rank)))

    def places(self, *axes: str) -> list[dict[str, int]]:
        """The coordinates {axis: coordinate}, along `axes`, of the ranks of `group(*axes)`, in its order: a list."""
        return places({axis: self.sizes[axis] for axis in AXES if axis in axes})

    def max(self, array: np.ndarray) -> np.ndarray:
        """The elementwise maximum of a host array over all ranks, in place. Collective; the tally does not count it."""
        self.comm.Allreduce(MPI.IN_PLACE, array, MPI.MAX)
        return array

    def min(self, array: np.ndarray) -> np.ndarray:
        """The elementwise minimum of a host array over all ranks, in place. Collective; the tally does not count it."""
        self.comm.Allreduce(MPI.IN_PLACE, array, MPI.MIN)
        return array

    def mean(self, array: np.ndarray) -> np.ndarray:
        """The elementwise mean of a float64 host array over all ranks, in place. Collective; the tally does not count it."""
        self.comm.Allreduce(MPI.IN_PLACE, array, MPI.SUM)
        array /= self.size
        return array

    def gather(self, thing: Any) -> list | None:
        """Every rank's `thing`, in rank order: a list on rank 0, None elsewhere. Collective. It pickles: only for reports."""
        return self.comm.gather(thing)

    def free(self) -> None:
        """Free the communicators, of which an MPI library has about two thousand; the grid is unusable then. Collective."""
        for group in self._all_groups():
            group.comm.Free()
        self.comm.Free()

    def __enter__(self) -> "ProcessGrid":
        return self

    def __exit__(self, *exception: object) -> None:
        self.free()

    def __str__(self):
        return written(self.sizes)
