"""A group of ranks and its collectives.

They send buffers, never pickles. Every call is counted in the tally of the grid, by the formulas of
`parallel/grid/collectives.py`.
"""

from itertools import accumulate

import numpy as np
from mpi4py import MPI

from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.staging import Staging, staging
from gridgrad.parallel.grid.tally import Call
from gridgrad.parallel.grid.transfer import CompletedTransfer, RequestSet, Transfer

MAX_ELEMENTS = 1 << 27  # the most in one all-reduce: some MPI libraries fail on messages of 2^31 bytes and more
LONG_GATHER = 1 << 19  # bytes above which MPICH's blocking all-gather takes twice as long, since it sends pieces of 32 KiB
TAGS = 1 << 14  # how many message tags are used in turn; every MPI library has at least that many


class Group:
    """The ranks along some axes of a grid, and their collectives.

    comm: their communicator. tally: where calls are counted. size, rank: those of the communicator. ranks: for each rank of the
    group, in its order, its rank in MPI.COMM_WORLD: a tuple.

    All methods that take a `layer` are collective over the group; `layer` is the name under which the tally counts the call.
    Arrays must be contiguous. They may be on the host or on the device unless stated otherwise, on some ranks on the one and on
    others on the other. Those of the `start_...` methods, which return a Transfer at once, must not be read or written until
    the Transfer is complete. Of these, sums of arrays on the device always go through the host, because few MPI libraries can
    sum in a GPU's memory without blocking. `counts` are numbers of elements, one for each rank, and may differ and be 0.
    """

    def __init__(self, comm, tally):
        self.comm, self.tally = comm, tally
        self.size, self.rank = comm.size, comm.rank
        own, world = comm.group, MPI.COMM_WORLD.group
        self.ranks = tuple(map(int, own.Translate_ranks(list(range(self.size)), world)))
        own.Free(), world.Free()
        self._tag = 0

    def free(self):
        """Free the communicator. Collective."""
        self.comm.Free()

    def all_reduce(self, array, layer):
        """Sum `array` elementwise over the group, in place on every rank."""
        if self.size == 1:
            return
        flat = array.reshape(-1)
        with Call(self, "all-reduce", layer, self.bytes_of("all-reduce", flat)):
            reached = staging.outgoing(flat)
            for start in range(0, max(flat.size, 1), MAX_ELEMENTS):
                self.comm.Allreduce(MPI.IN_PLACE, reached[start : start + MAX_ELEMENTS], MPI.SUM)
            staging.arrived(reached, flat)

    def start_all_reduce(self, array, layer):
        """Begin `all_reduce`; return a Transfer."""
        if self.size == 1:
            return CompletedTransfer()

        def steps():
            stage = Staging(direct=False)
            reached = stage.outgoing(array)
            yield self.comm.Iallreduce(MPI.IN_PLACE, reached, MPI.SUM)
            stage.arrived(reached, array)

        return Transfer(self, layer, "all-reduce", self.bytes_of("all-reduce", array), steps())

    def bytes_of(self, kind, array, own=0):
        """The bytes that this rank sends in a collective. array: its send buffer. own: the elements of it that it keeps."""
        return COLLECTIVES[kind].sent(self, array.size, own) * array.itemsize

    def all_gather(self, block, out, counts, layer):
        """Concatenate the blocks of all ranks (counts[r] elements of rank r), in rank order, into `out` on every rank."""
        with Call(self, "all-gather", layer, self.bytes_of("all-gather", block)):
            received = staging.incoming(out)
            self._all_gather(staging.outgoing(block), received, counts)
            staging.arrived(received, out)

    def _all_gather(self, block, out, counts):
        if out.nbytes > LONG_GATHER and MPI.get_vendor()[0] == "MPICH":
            self.comm.Iallgatherv(block, [out, counts]).Wait()
        else:
            self.comm.Allgatherv(block, [out, counts])

    def reduce_scatter(self, blocks, out, counts, layer):
        """Sum `blocks` over the group and leave each rank with its block of the sum, in `out`.

        blocks: sum(counts) elements, the blocks of all ranks in rank order. out: counts[self.rank] elements.
        """
        with Call(self, "reduce-scatter", layer, self.bytes_of("reduce-scatter", blocks, out.size)):
            received = staging.incoming(out)
            self.comm.Reduce_scatter(staging.outgoing(blocks), received, counts, MPI.SUM)
            staging.arrived(received, out)

    def start_reduce_scatter(self, array, counts, space, layer):
        """Begin a reduce-scatter that ends with this rank's block of the sum at its place in `array`; return a Transfer.

        array: sum(counts) elements. space: a scratch array of counts[self.rank] elements for the sum.
        """
        start = sum(counts[: self.rank])

        def steps():
            stage = Staging(direct=False)
            received = stage.incoming(space)
            yield self.comm.Ireduce_scatter(stage.outgoing(array), received, counts, MPI.SUM)
            stage.arrived(received, space)
            array[start : start + space.size] = space

        return Transfer(self, layer, "reduce-scatter", self.bytes_of("reduce-scatter", array, space.size), steps())

    def all_gather_in_place(self, array, counts, layer):
        """All-gather of the blocks of `array`, in which each rank's own block is at its place already. sum(counts) elements."""
        with Call(self, "all-gather", layer, self.bytes_of("all-gather", self.own_block(array, counts))):
            reached = staging.outgoing(array)
            self._all_gather(MPI.IN_PLACE, reached, counts)
            staging.arrived(reached, array)

    def start_point_to_point(self, outgoing, incoming, layer, kind):
        """Begin to send `outgoing[r]` to each other rank r and to receive `incoming[r]` from it; return a Transfer.

        outgoing, incoming: a host array for each rank; those at this rank's own position are not used, and for empty ones there
        is no message. kind: the name under which the call is counted.
        """
        tag = self.next_tag()
        sizes = [array.nbytes for rank, array in enumerate(outgoing) if array.size and rank != self.rank]

        def steps():
            yield self.point_to_point(outgoing, incoming, tag)

        return Transfer(self, layer, kind, sum(sizes), steps(), len(sizes))

    def point_to_point(self, outgoing, incoming, tag):
        """Post the messages of `start_point_to_point` without counting them; return an object with Test and Wait.

        tag: a result of `next_tag`. Unlike MPI's collectives, several of these need not begin in the same order on all ranks.
        """
        others = [rank for rank in range(self.size) if rank != self.rank]
        requests = [self.comm.Irecv(incoming[rank], rank, tag) for rank in others if incoming[rank].size]
        return RequestSet(requests + [self.comm.Isend(outgoing[rank], rank, tag) for rank in others if outgoing[rank].size])

    def next_tag(self):
        """A message tag that no transfer under way uses.

        All ranks must ask for tags in the same order, so as to get the same.
        """
        self._tag = (self._tag + 1) % TAGS
        return self._tag

    def start_all_gather_in_place(self, array, counts, layer):
        """Begin `all_gather_in_place`; return a Transfer."""

        def steps():
            stage = Staging()
            reached = stage.outgoing(array)
            yield self.comm.Iallgatherv(MPI.IN_PLACE, [reached, counts])
            stage.arrived(reached, array)

        return Transfer(self, layer, "all-gather", self.bytes_of("all-gather", self.own_block(array, counts)), steps())

    def own_block(self, array, counts):
        """A view of this rank's block in an array that holds the blocks of all ranks in rank order."""
        start = sum(counts[: self.rank])
        return array[start : start + counts[self.rank]]

    def all_to_all(self, blocks, counts, out, out_counts, layer):
        """Send the i-th block of `blocks` (counts[i] elements) to rank i, and receive the blocks for this rank into `out`.

        out: sum(out_counts) elements; the block from rank i has out_counts[i], and the blocks are in rank order.
        """
        with Call(self, "all-to-all", layer, self.bytes_of("all-to-all", blocks, counts[self.rank])):
            received = staging.incoming(out)
            self.comm.Alltoallv([staging.outgoing(blocks), counts], [received, out_counts])
            staging.arrived(received, out)

    def start_exchange(self, blocks, counts, out, out_counts, layer):
        """Begin an `all_to_all` in which most counts are 0, such as a halo exchange; return a Transfer.

        There is one message from each rank to each other rank for which its count is not 0, and a rank waits for those alone
        that send it something. A rank's counts of its own must be 0, else a ValueError is raised. It is counted as "exchange".
        """
        if counts[self.rank] or out_counts[self.rank]:
            raise ValueError(f"an exchange brings nothing from a rank to itself: rank {self.rank} must have counts of 0 there, "
                             f"not {counts[self.rank]} and {out_counts[self.rank]}")  # fmt: skip
        tag = self.next_tag()

        def steps():
            stage = Staging()
            received = stage.incoming(out)
            yield self.point_to_point(pieces(stage.outgoing(blocks), counts), pieces(received, out_counts), tag)
            stage.arrived(received, out)

        return Transfer(self, layer, "exchange", self.bytes_of("exchange", blocks), steps(), sum(map(bool, counts)))

    def broadcast(self, array, layer):
        """Copy `array` of rank 0 into `array` of every rank."""
        if self.size == 1:
            return
        with Call(self, "broadcast", layer, self.bytes_of("broadcast", array)):
            reached = staging.outgoing(array)
            self.comm.Bcast(reached, root=0)
            staging.arrived(reached, array)

    def scatter(self, blocks, counts, out, layer):
        """Send the i-th block of `blocks` on rank 0 (counts[i] elements) to rank i, into its `out`.

        Elsewhere `blocks` is None.
        """
        with Call(self, "scatter", layer, self.bytes_of("scatter", out if blocks is None else blocks, out.size)):
            given, received = staging.outgoing(blocks), staging.incoming(out)
            self.comm.Scatterv([given, counts] if self.rank == 0 else None, received, root=0)
            staging.arrived(received, out)

    def gather(self, block, out, counts, layer):
        """Concatenate the blocks of all ranks, counts[i] elements each, into `out` on rank 0.

        On the other ranks `out` is None.
        """
        with Call(self, "gather", layer, self.bytes_of("gather", block)):
            given, received = staging.outgoing(block), staging.incoming(out)
            self.comm.Gatherv(given, [received, counts] if self.rank == 0 else None, root=0)
            staging.arrived(received, out)

    def sum(self, value, layer):
        """The sum of a number over the group, in float64, on every rank."""
        return self.start_sum((value,), layer)()[0]

    def start_sum(self, numbers, layer):
        """Begin to sum each of some numbers over the group, in float64; return a function that waits for the list of sums."""
        array = np.array(numbers, np.float64)
        transfer = self.start_all_reduce(array, layer)

        def finish():
            transfer.wait()
            return array.tolist()

        return finish


def pieces(flat, counts):
    """Views of consecutive blocks of a flat array, which have these numbers of elements."""
    return [flat[stop - count : stop] for stop, count in zip(accumulate(counts), counts)]
