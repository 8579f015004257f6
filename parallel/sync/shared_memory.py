"""Sums in memory that the ranks of a node share: gradients stay where backward wrote them, and nothing is sent.

Each rank of a node sees the flat gradients of all. It adds up its part of each run of parameters over them, a chunk at a
time, in rank order, and

- sharded, on one node, updates that chunk at once, while it lies in the cache, in the *one* copy of the parameters that the
  ranks share: two barriers are all that a step costs besides the sum;
- otherwise writes the sum into the gradients of all (an all-reduce in place).

Over several nodes the sum is of two levels: in each node into the gradients of its first rank, its leader; between the
leaders an all-reduce; and from there to the others of the node.

`mmap` keeps such memory alive for as long as an array in it lives, on any rank; the files behind it have no name any
more once all have opened them, so that nothing is left behind, however a job ends.
"""

import contextlib
import mmap
import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from mpi4py import MPI

from nn.device import empty
from nn.workspace import CHUNK
from parallel.placement.partition import Partition, size, within
from parallel.sync.reduction import Reduction, overlap

FOLDER = Path("/dev/shm")
PREFIX = "gridgrad_"


class NoSharedMemory(ValueError):
    """The ranks of a node can not share memory. All ranks raise it together."""


def shared_arrays(comm, size, dtype, everyone=None):
    """An array of `size` elements (another number on each rank, if wanted) for each rank of `comm`, seen by all: a list.

    everyone: a communicator of more ranks, on other nodes, that call this too. Collective. Raises NoSharedMemory, on all of
    them, if there is no room for the arrays or the ranks of a node do not see the same files.
    """
    dtype, folder = np.dtype(dtype), _folder()
    name, error, arrays = None, "", []
    with contextlib.ExitStack() as until_all_have_opened_all:
        try:
            file = until_all_have_opened_all.enter_context(tempfile.NamedTemporaryFile(dir=folder, prefix=PREFIX))
            _reserve(file, max(size * dtype.itemsize, 1))
            name = file.name
        except OSError as failure:
            error = failure.strerror
        outlines = comm.allgather((name, size))
        if all(name for name, _ in outlines):
            try:
                arrays = [_mapped(name, size, dtype) for name, size in outlines]
            except (OSError, ValueError) as failure:
                error = str(failure)
        errors = (everyone or comm).allgather(error)
    if any(errors):
        words = next(filter(None, errors))
        raise NoSharedMemory(f"the ranks of this node can not share memory in {folder} ({words}): use --reduction plain")
    return arrays


def _reserve(file, size):
    """Have the system give the memory now, or say that it can't; where it does not know how to, later."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        os.ftruncate(file.fileno(), size)


def has_room(net):
    """Whether what `SharedMemoryReduction` needs for a ParallelSequential fits everywhere. Collective."""
    needed = net.grid.node.comm.allreduce(2 * net.size * net.dtype.itemsize)
    folder = os.statvfs(_folder())
    return net.grid.comm.allreduce(needed <= folder.f_bavail * folder.f_frsize, MPI.LAND)


def _folder():
    return FOLDER if FOLDER.is_dir() else Path(tempfile.gettempdir())


def _mapped(name, size, dtype):
    with open(name, "r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), max(size * dtype.itemsize, 1)), dtype, size)


def add_up(addends, out, scratch):
    """The sum of equally long pieces, in their order, into `out`, which may be one of them; scratch: one like them."""
    if len(addends) == 1:
        if addends[0] is not out:
            np.copyto(out, addends[0])
        return
    total = out if len(addends) == 2 else scratch  # as `out` may be an addend that is still to come
    np.add(addends[0], addends[1], out=total)
    for number, addend in enumerate(addends[2:], start=3):
        np.add(total, addend, out=out if number == len(addends) else total)


class SharedRun:
    """A slice that some ranks of a node have in their gradients, each at a place of its own.

    gradients: the slice of each of these ranks, in rank order. me: which of them this one is.
    """

    def __init__(self, gradients, me):
        self.gradients, self.me = gradients, me
        self.part = Partition.even(gradients[0].size, len(gradients)).part(me)
        self.scratch = np.empty(min(CHUNK, gradients[0].size), gradients[0].dtype)

    @property
    def leader(self):
        """The gradients of the first of these ranks, if it is another one: a list of them."""
        return [self.gradients[0]] if self.me else []

    @property
    def others(self):
        return [gradients for rank, gradients in enumerate(self.gradients) if rank != self.me]

    def add_up(self, where):
        """The sum of the elements `where` into this rank's own."""
        pieces = [gradients[where] for gradients in self.gradients]
        add_up(pieces, pieces[self.me], self.scratch[: size(where)])

    def add_up_part(self, targets):
        """The sum of this rank's part into its own gradients, and into the slices `targets` of other ranks."""
        for start in range(self.part.start, self.part.stop, CHUNK):
            where = slice(start, min(start + CHUNK, self.part.stop))
            self.add_up(where)
            for target in targets:
                np.copyto(target[where], self.gradients[self.me][where])


class SharedMemoryReduction(Reduction):
    """Gradients, and sharded the parameters too, live in memory that the ranks of a node share."""

    def __init__(self, net, sharded=True, float16_gradients=False):
        super().__init__(net, sharded, float16_gradients)
        if float16_gradients:
            raise ValueError("in shared memory nothing is sent: float16 is for --reduction plain or overlap")

    def __str__(self):
        return "shared"

    def allocate(self, size):
        node, dtype = self.net.grid.node, self.net.dtype
        self._gradients = shared_arrays(node.comm, size, dtype, self.net.grid.comm)
        if not self.sharded:
            return empty(size, dtype), self._gradients[node.rank]
        holder = self.net.grid.on_node(self.net.replicas)[0]  # the first of those that hold the same parameters
        self._holders = node.comm.allgather(holder)
        self.sharers = self._holders.count(holder)
        self._parameters = shared_arrays(node.comm, size if holder == node.rank else 0, dtype, self.net.grid.comm)
        return self._parameters[holder], self._gradients[node.rank]

    @cached_property
    def _runs(self):
        """A `_Run` for each run of parameters."""
        node = self.net.grid.node
        starts = node.comm.allgather([where.start for _, where in self.runs])
        runs = []
        for number, (group, where) in enumerate(self.runs):
            members = self.net.grid.on_node(group)
            places = [slice(starts[m][number], starts[m][number] + size(where)) for m in members]
            shared = SharedRun([self._gradients[m][place] for m, place in zip(members, places)], members.index(node.rank))
            copies = self._copies(members, places) if self.sharded else []
            runs.append(_Run(shared, where, self.net.grid.leaders(group), copies, len(members) < group.size))
        return runs

    def _copies(self, members, places):
        """A run in the parameters of ranks that hold other ones besides, each copy once."""
        found = {self._holders[m]: place for m, place in zip(members, places)}
        found.pop(self._holders[self.net.grid.node.rank])
        return [self._parameters[holder][place] for holder, place in found.items()]

    @cached_property
    def _several_nodes(self):
        return self.net.grid.comm.allreduce(any(run.goes_on for run in self._runs), MPI.LOR)

    @property
    def owned(self):
        return [run.owned if self.sharded else run.where for run in self._runs]

    def finish(self):
        self.take_accumulated(slice(0, self.net.size))
        several, sent = self._several_nodes, sum(run.bytes_read for run in self._runs)
        self._barrier()
        with self._measure(sent, calls=1):
            if self.sharded and not several:
                return  # `complete` adds up, chunk by chunk
            for run in self._runs:
                run.shared.add_up_part(run.shared.leader if several else run.shared.others)
        self._barrier()
        if several:
            for run in self._runs:
                if run.leaders:
                    run.leaders.all_reduce(run.shared.gradients[0], "gradients")
            self._barrier()
            for run in self._runs:
                if run.shared.me:
                    part = slice(None) if not self.sharded else run.shared.part
                    np.copyto(run.shared.gradients[run.shared.me][part], run.shared.gradients[0][part])
            self._barrier()  # an optimizer overwrites gradients

    def complete(self, where):
        if self.sharded and not self._several_nodes:
            run = self._run(where)
            with self._measure(0, calls=0):
                run.shared.add_up(slice(where.start - run.where.start, where.stop - run.where.start))

    def changed(self, where):
        run = self._run(where)
        for copy in run.copies:
            np.copyto(copy[where.start - run.where.start : where.stop - run.where.start], self.net.params[where])

    def updated(self):
        self._barrier()

    def _run(self, where):
        return next(run for run in self._runs if overlap(run.where, where))

    def _measure(self, bytes_read, calls):
        node = self.net.grid.node
        return node.tally.measure(node, "gradients", "shared sum", bytes_read, calls)

    def _barrier(self):
        node = self.net.grid.node
        with node.tally.measure(node, "gradients", "barrier", 0):
            node.comm.Barrier()


@dataclass
class _Run:
    """A run of parameters on one node.

    shared: the gradients. where: their place in this rank's. leaders: the first ranks of all nodes, if this is one of
    them. copies: of the parameters, of ranks that hold other ones besides. goes_on: whether on another node.
    """

    shared: SharedRun
    where: slice
    leaders: object
    copies: list
    goes_on: bool

    @property
    def owned(self):
        """The slice of the flat buffers that this rank updates where each updates a part."""
        return within(self.where, self.shared.part)

    @property
    def bytes_read(self):
        """What this rank reads of the others' gradients."""
        part = size(self.shared.part) * (len(self.shared.gradients) - 1)
        return part * self.shared.gradients[0].itemsize
