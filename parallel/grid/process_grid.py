"""The process grid: one Cartesian communicator, one sub-communicator for each set of axes that is used."""

import os
from collections import defaultdict
from itertools import product
from math import prod

from mpi4py import MPI

from nn.arguments import whole_number
from parallel.grid.group import Group
from parallel.grid.tally import Tally
from parallel.job.uncaught import end_job_when_uncaught

AXES = ("batch", "height", "model")  # outermost first: neighbours in rank (often on one node) are neighbours in `model`
KEY = []  # under which a communicator remembers its `neighbours`, once MPI has given one


def parse_grid(text):
    """The sizes by axis of a text such as "batch=4,model=2".

    Axes left out have size 1. Raises ValueError for an unknown or repeated axis, or a size that is not a whole
    number of at least 1.
    """
    sizes = {}
    for word in text.split(","):
        axis, equals, number = word.strip().partition("=")
        if axis not in AXES or not equals:
            raise ValueError(f"grid '{text}': '{word}' is not AXIS=SIZE with an axis of {', '.join(AXES)}")
        if axis in sizes:
            raise ValueError(f"grid '{text}' names the axis {axis} twice")
        if not number.isdecimal() or int(number) < 1:
            raise ValueError(f"grid '{text}': the size of {axis} must be a whole number of at least 1, not '{number}'")
        sizes[axis] = int(number)
    return sizes


def check_places(grid, sizes, ranks):
    """Raise ValueError if a grid, of these sizes by axis, does not have as many places as there are ranks."""
    if prod(sizes.values()) != ranks:
        raise ValueError(
            f"the grid {grid} has {prod(sizes.values())} places but there are {ranks} ranks: "
            f"start as many ranks as the grid has places, or change the grid"
        )


def places(sizes):
    """The coordinates of all ranks of a grid, in rank order: a list of {axis: coordinate}."""
    return [dict(zip(sizes, place, strict=True)) for place in product(*map(range, sizes.values()))]


def ranks_per_node(most, environ=os.environ):
    """How many ranks may share memory: GRIDGRAD_RANKS_PER_NODE, else `most`. ValueError if it is no number above 0."""
    text = environ.get("GRIDGRAD_RANKS_PER_NODE") or str(most)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"GRIDGRAD_RANKS_PER_NODE must be a whole number of at least 1, not '{text}'")
    return int(text)


def neighbours(comm):
    """For each rank of a communicator, (the first rank with which it shares memory, its place among those that do).

    Collective the first time; the communicator remembers it.
    """
    if not KEY:
        KEY.append(MPI.Comm.Create_keyval())
    found = comm.Get_attr(KEY[0])
    if found is None:
        together = comm.Split_type(MPI.COMM_TYPE_SHARED)
        found = comm.allgather((together.bcast(comm.rank), together.rank))
        together.Free()
        comm.Set_attr(KEY[0], found)
    return found


class ProcessGrid:
    """Ranks arranged on named axes, such as ProcessGrid(comm, batch=4, model=2).

    comm: an MPI communicator whose size is the product of the axes' sizes (ValueError otherwise).
    From the first grid on, an exception that nobody catches on one rank ends the job: see `parallel/job/uncaught.py`.
    """

    def __init__(self, comm, **sizes):
        end_job_when_uncaught()
        if unknown := sizes.keys() - set(AXES):
            raise ValueError(f"grid: unknown axes {sorted(unknown)}; there are {', '.join(AXES)}")
        self.sizes = {axis: whole_number(sizes.get(axis, 1), f"grid: the size of {axis}") for axis in AXES}
        check_places(self, self.sizes, comm.size)
        self.comm = comm.Create_cart(list(self.sizes.values()), reorder=False)
        self.tally = Tally()
        self.coordinates = dict(zip(AXES, self.comm.Get_coords(self.comm.rank)))
        self._groups, self._leaders, self._node = {}, {}, None
        most = ranks_per_node(comm.size)
        self._nodes = [(first, place // most) for first, place in neighbours(comm)]

    def group(self, *axes):
        """The ranks that differ from this one only along `axes`."""
        axes = frozenset(axes)
        if axes not in self._groups:
            self._groups[axes] = Group(self.comm.Sub([axis in axes for axis in AXES]), self.tally)
        return self._groups[axes]

    @property
    def node(self):
        """The ranks that share memory with this one, in rank order: a Group.

        GRIDGRAD_RANKS_PER_NODE=N lets at most N of them, neighbours in rank, share it: those of one socket, say.
        """
        if self._node is None:
            self._node = Group(self.comm.Split(self._nodes.index(self._nodes[self.rank]), self.rank), self.tally)
        return self._node

    def on_node(self, group):
        """The ranks of a group that are on this node, by their ranks in `node`."""
        return [rank for rank, everywhere in enumerate(self.node.ranks) if everywhere in group.ranks]

    def spans_nodes(self, *axes):
        """Whether ranks that differ only along `axes` are on several nodes, here or elsewhere on the grid."""
        fixed = [axis for axis in AXES if axis not in axes]
        nodes = defaultdict(set)
        for rank, node in enumerate(self._nodes):
            place = self.coordinates_of(rank)
            nodes[tuple(place[axis] for axis in fixed)].add(node)
        return any(len(found) > 1 for found in nodes.values())

    def leaders(self, group):
        """The first ranks of a group on each node, if this is one of them: a Group; else None. Collective over the group."""
        if group not in self._leaders:
            first = next(rank for rank in group.ranks if rank in self.node.ranks)
            leads = first == group.ranks[group.rank]
            comm = group.comm.Split(0 if leads else MPI.UNDEFINED, group.rank)
            self._leaders[group] = Group(comm, self.tally) if leads else None
        return self._leaders[group]

    @property
    def world(self):
        """All ranks of the grid, in rank order."""
        return self.group(*AXES)

    @property
    def size(self):
        return self.comm.size

    @property
    def rank(self):
        return self.comm.rank

    def coordinates_of(self, rank):
        """The coordinates, by axis, of any rank."""
        return dict(zip(AXES, self.comm.Get_coords(rank)))

    def places(self, *axes):
        """The coordinates along some axes of the ranks of `group(*axes)`, in its order: a list of dicts."""
        return places({axis: self.sizes[axis] for axis in AXES if axis in axes})

    def max(self, array):
        """The elementwise maximum of a host array over all ranks, in place. Not counted: it serves measurement alone."""
        self.comm.Allreduce(MPI.IN_PLACE, array, MPI.MAX)
        return array

    def min(self, array):
        """The elementwise minimum of a host array over all ranks, in place. Not counted."""
        self.comm.Allreduce(MPI.IN_PLACE, array, MPI.MIN)
        return array

    def mean(self, array):
        """The elementwise mean of a host array of float64 over all ranks, in place. Not counted."""
        self.comm.Allreduce(MPI.IN_PLACE, array, MPI.SUM)
        array /= self.size
        return array

    def gather(self, thing):
        """A list of every rank's `thing` on rank 0, None elsewhere. Pickled: for reports, never in a training step."""
        return self.comm.gather(thing)

    def free(self):
        """Give the communicators back (an MPI library has some two thousand)."""
        made = [*self._groups.values(), *self._leaders.values(), self._node]
        for group in filter(None, made):
            group.comm.Free()
        self._groups, self._leaders, self._node = {}, {}, None
        self.comm.Free()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.free()

    def __str__(self):
        """As on the command line; the height is left out where it is 1, as it is for networks without images."""
        return ",".join(f"{axis}={size}" for axis, size in self.sizes.items() if size > 1 or axis != "height")
