"""Sums of gradients in memory that the ranks of a node share, without messages within the node.

Every rank of a node can read the flat gradient buffers of all of them. Each run of parameters (see
`parallel/sync/reduction.py`) is partitioned over the ranks that hold it. Each rank adds up its part over the buffers of these
ranks, in rank order, one cache-sized chunk at a time. What then happens to the sum depends on the job:

- Sharded, on one node: the rank updates the chunk at once, while it is in the cache, in the *one* copy of the parameters that
  the ranks share. Besides the sum a step costs two barriers.
- Not sharded, on one node: the rank writes the sum into the gradients of all these ranks, which is an all-reduce in place.
- On several nodes there are two levels: on each node the sum is formed in the gradients of the first rank, the leader; an
  all-reduce adds the sums of the leaders; the other ranks copy the result from the leader. Of a layer that is computed
  redundantly several groups form the same sum, and would add in another order where nodes divide them in another way: there
  each rank leads itself, so that the all-reduce is one of all ranks of the group.

The memory is mapped from files, which keeps it alive while an array on any rank uses it. The files are deleted as
soon as all ranks have opened them, so nothing is left behind however the job ends. `MPI.Win.Allocate_shared` is as fast, but
without room for it MPICH ends in a bus error, it crashes at 2,000 windows, and an array must not outlive its window.
"""

import contextlib
import os
import tempfile

import numpy as np
from mpi4py import MPI

from gridgrad.nn.device import empty
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.parallel.grid.group import Call
from gridgrad.parallel.job.own_process import MARK, OURS
from gridgrad.parallel.placement.partition import Partition, size, within
from gridgrad.parallel.sync.reduction import GRADIENTS, Reduction, slices_overlap

FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()  # the first one is in memory


class NoSharedMemory(ValueError):
    """The ranks of a node can not share memory. All ranks of the call raise it together."""


def shared_arrays(comm, size, dtype, everyone=None):
    """An array of `size` elements, its own number, for each rank of `comm`, in memory that all share: a list. Collective.
    NoSharedMemory, on all ranks of the communicator `everyone` too, if one node lacks room or sees other files."""
    dtype = np.dtype(dtype)
    prefix = f"{OURS}{os.environ.get(MARK, '')}_"  # by which a launcher knows what its job has left
    name, error, arrays = None, "", []
    with contextlib.ExitStack() as until_all_have_opened_all:
        try:
            file = until_all_have_opened_all.enter_context(tempfile.NamedTemporaryFile(dir=FOLDER, prefix=prefix))
            nbytes = max(size * dtype.itemsize, 1)
            if hasattr(os, "posix_fallocate"):  # a lack of memory is an OSError now, and no crash at the first write
                os.posix_fallocate(file.fileno(), 0, nbytes)
            else:
                os.ftruncate(file.fileno(), nbytes)
            name = file.name
        except OSError as failure:
            error = failure.strerror
        files = comm.allgather((name, size))
        if all(name for name, _ in files):
            try:
                arrays = [np.asarray(np.memmap(name, dtype, "r+", shape=size)) for name, size in files]
            except (OSError, ValueError) as failure:
                error = str(failure)
        errors = (everyone or comm).allgather(error)
    if any(errors):
        words = next(filter(None, errors))
        raise NoSharedMemory(f"the ranks of this node can not share memory in {FOLDER} ({words}): use --reduction plain")
    return arrays


def has_room(net):
    """Whether the shared memory that `SharedMemoryReduction` needs for a ParallelSequential fits on every node. Collective."""
    needed = net.grid.node.comm.allreduce(2 * net.size * net.dtype.itemsize)
    folder = os.statvfs(FOLDER)
    return net.grid.comm.allreduce(needed <= folder.f_bavail * folder.f_frsize, MPI.LAND)


class SharedRun:
    """The gradients of one run of parameters on one node, in shared memory.
    gradients: of each rank of the node that holds the run, in rank order, views of their buffers. me: this rank's index."""

    def __init__(self, gradients, me):
        self.gradients, self.me = gradients, me
        self.part = Partition.even(gradients[0].size, len(gradients)).part(me)  # of the run, whose sum this rank computes
        self.chunk = kernels().chunk
        self.scratch = np.empty(min(self.chunk, gradients[0].size), gradients[0].dtype)

    @property
    def others(self):
        """The gradients of all ranks of the list except this one."""
        return [gradients for rank, gradients in enumerate(self.gradients) if rank != self.me]

    def add_up(self, where):
        """Sum the slice `where` of the run over the ranks, in their order, and write the sum into this rank's gradients."""
        terms = [gradients[where] for gradients in self.gradients]
        out, scratch = terms[self.me], self.scratch[: size(where)]
        if len(terms) > 1:
            total = out if len(terms) == 2 else scratch  # `out` may be a term that was not added yet
            np.add(terms[0], terms[1], out=total)
            for number, term in enumerate(terms[2:], start=3):
                np.add(total, term, out=out if number == len(terms) else total)

    def add_up_part(self, targets):
        """Sum this rank's part of the run over the ranks, into its own gradients and those of other ranks in `targets`."""
        for start in range(self.part.start, self.part.stop, self.chunk):
            where = slice(start, min(start + self.chunk, self.part.stop))
            self.add_up(where)
            for target in targets:
                np.copyto(target[where], self.gradients[self.me][where])


class SharedMemoryReduction(Reduction):
    """If it is sharded, the ranks of a node that hold the same parameters also share one buffer of parameters.
    ValueError for float16, and if a rank computes on a GPU, whose memory the others can not read."""

    def __init__(self, net, update="sharded", reduce_dtype="same"):
        super().__init__(net, update, reduce_dtype)
        if self.float16_gradients:
            raise ValueError("gradients in shared memory are not sent in float16: use --reduction plain or overlap for that")
        if not net.grid.on_cpus:
            raise ValueError("--reduction shared needs all ranks on CPUs: use plain or overlap, or --device cpu")

    def __str__(self):
        return "shared"

    def memory(self, size, dtype):
        node = self.net.grid.node
        self._gradients = shared_arrays(node.comm, size, dtype, self.net.grid.comm)
        if not self.sharded:
            return empty(size, dtype), self._gradients[node.rank]
        holder = self.net.grid.on_node(self.net.replicas)[0]  # the first rank with the same parameters
        self._holders = node.comm.allgather(holder)
        self.sharers = self._holders.count(holder)
        self._parameters = shared_arrays(node.comm, size if holder == node.rank else 0, dtype, self.net.grid.comm)
        return self._parameters[holder], self._gradients[node.rank]

    def lay_out(self, pairs, dtype):
        """As in FlatParameters; also finds a SharedRun for each run of which this rank holds something. Collective."""
        super().lay_out(pairs, dtype)
        grid, node = self.net.grid, self.net.grid.node
        starts = node.comm.allgather([where.start for _, where in self.runs])
        held = [number for number, (_, where) in enumerate(self.runs) if size(where)]
        several = any(len(grid.on_node(self.runs[number][0])) < self.runs[number][0].size for number in held)
        self._several_nodes = grid.comm.allreduce(several, MPI.LOR)  # whether any run is held on several nodes
        self._runs = []
        for number in held:
            (group, where), (holders, _) = self.runs[number], self.copies[number]
            members = grid.on_node(group)
            places = [slice(starts[m][number], starts[m][number] + size(where)) for m in members]
            leads_itself = holders is not group and self._several_nodes
            summed = [(node.rank, where)] if leads_itself else list(zip(members, places))
            run = SharedRun([self._gradients[m][place] for m, place in summed], [m for m, _ in summed].index(node.rank))
            run.where = where
            run.leaders = group if leads_itself else grid.leaders(group)  # of the nodes that hold the run; None on other ranks
            run.owned, run.copies = slice(0, size(where)), []  # what this rank updates; views of the run in other buffers here
            if self.sharded:  # only ranks that hold the same blocks of all parameters share one buffer of them
                run.owned = Partition.even(size(where), len(members)).part(members.index(node.rank))
                others = {self._holders[m]: place for m, place in zip(members, places)}
                others.pop(self._holders[node.rank])
                run.copies = [self._parameters[holder][place] for holder, place in others.items()]
            self._runs.append(run)
        self._read = self.grads.itemsize * sum(size(run.part) * (len(run.gradients) - 1) for run in self._runs)  # of others

    @property
    def owned(self):
        return [within(run.where, run.owned) for run in self._runs]

    def finish(self):
        self.take_accumulated(slice(0, self.grads.size))
        several = self._several_nodes
        self._barrier()
        with Call(self.net.grid.node, "shared sum", GRADIENTS, self._read):
            if self.sharded and not several:
                return  # `ready` adds up each chunk just before it is updated
            for run in self._runs:
                run.add_up_part(run.others[: run.me > 0] if several else run.others)  # the first of the others is the leader
        self._barrier()
        if several:
            for run in self._runs:
                if run.leaders:
                    run.leaders.all_reduce(run.gradients[0], GRADIENTS)
            self._barrier()
            for run in self._runs:
                if run.me:
                    np.copyto(run.gradients[run.me][run.owned], run.gradients[0][run.owned])
            self._barrier()  # only now may the optimizer overwrite a leader's gradients

    def ready(self, where):
        if self.sharded and not self._several_nodes:
            run, part = self._place(where)
            with Call(self.net.grid.node, "shared sum", GRADIENTS, 0, calls=0):
                run.add_up(part)

    def updated(self, where):
        run, part = self._place(where)
        for copy in run.copies:
            np.copyto(copy[part], self.params[where])

    def end_update(self):
        self._barrier()

    def _place(self, where):
        """(SharedRun, slice of it) of a slice of the flat buffers."""
        run = next(run for run in self._runs if slices_overlap(run.where, where))
        return run, slice(where.start - run.where.start, where.stop - run.where.start)

    def _barrier(self):
        node = self.net.grid.node
        with Call(node, "barrier", GRADIENTS, 0):
            node.comm.Barrier()
