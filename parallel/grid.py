"""The process grid: one Cartesian communicator, one sub-communicator for each set of axes that is used."""

from math import prod

from mpi4py import MPI

from parallel.group import Group, Tally

AXES = ("batch", "height", "model")  # outermost first: neighbours in rank (often on one node) are neighbours in `model`


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


class ProcessGrid:
    """Ranks arranged on named axes, such as ProcessGrid(comm, batch=4, model=2).

    comm: an MPI communicator whose size is the product of the axes' sizes (ValueError otherwise).
    """

    def __init__(self, comm, **sizes):
        if unknown := sizes.keys() - set(AXES):
            raise ValueError(f"grid: unknown axes {sorted(unknown)}; there are {', '.join(AXES)}")
        self.sizes = {axis: sizes.get(axis, 1) for axis in AXES}
        if prod(self.sizes.values()) != comm.size:
            raise ValueError(
                f"the grid {self} has {prod(self.sizes.values())} places but there are {comm.size} ranks: "
                f"start as many ranks as the grid has places, or change the grid"
            )
        self.comm = comm.Create_cart(list(self.sizes.values()), reorder=False)
        self.tally = Tally()
        self.coordinates = dict(zip(AXES, self.comm.Get_coords(self.comm.rank)))
        self._groups = {}

    def group(self, *axes):
        """The ranks that differ from this one only along `axes`."""
        axes = frozenset(axes)
        if axes not in self._groups:
            self._groups[axes] = Group(self.comm.Sub([axis in axes for axis in AXES]), self.tally)
        return self._groups[axes]

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

    def max(self, array):
        """The elementwise maximum of a host array over all ranks, in place. Not counted: it serves measurement alone."""
        self.comm.Allreduce(MPI.IN_PLACE, array, MPI.MAX)
        return array

    def min(self, array):
        """The elementwise minimum of a host array over all ranks, in place. Not counted."""
        self.comm.Allreduce(MPI.IN_PLACE, array, MPI.MIN)
        return array

    def gather(self, thing):
        """A list of every rank's `thing` on rank 0, None elsewhere. Pickled: for reports, never in a training step."""
        return self.comm.gather(thing)

    def free(self):
        """Give the communicators back (an MPI library has some two thousand)."""
        for group in self._groups.values():
            group.comm.Free()
        self._groups.clear()
        self.comm.Free()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.free()

    def __str__(self):
        """As on the command line; the height is left out where it is 1, as it is for networks without images."""
        return ",".join(f"{axis}={size}" for axis, size in self.sizes.items() if size > 1 or axis != "height")
