"""A group of ranks and its collectives: buffers only, each call counted as `parallel/grid/collectives.py` says."""

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from mpi4py import MPI

from nn import device
from nn.observer import Observable
from parallel.grid.clock import WallClock
from parallel.grid.collectives import COLLECTIVES
from parallel.grid.staging import staging
from parallel.grid.transfer import Nothing, Requests, Transfer

MAX_ELEMENTS = 1 << 27  # of one all-reduce: some libraries fail on messages of 2^31 bytes and more

LONG_GATHER = 1 << 19  # bytes, from which MPICH's blocking all-gather goes in pieces of 32 KiB and takes twice as long
TAGS = 1 << 14  # any MPI library has as many


@dataclass
class Record:
    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Tally(Observable):
    """Calls, bytes sent and seconds of this rank's communication, by (layer, kind).

    Its observers (those of a network are) are told of every collective: see `nn/observer.py`.
    """

    def __init__(self):
        self.clock = WallClock()
        self.records = defaultdict(Record)

    @contextmanager
    def measure(self, group, layer, kind, bytes_sent, calls=1, blocks=True):
        """Around one collective, which finds the device at rest: what it still computed would count as communication."""
        device.synchronise()
        start = self.clock.now()
        yield
        if blocks:
            self.clock.blocked(group, kind, bytes_sent)
        stop = self.clock.now()
        record = self.records[layer, kind]
        record.calls += calls
        record.bytes += int(bytes_sent)
        record.seconds += stop - start
        self.tell(calls, group, layer, kind, bytes_sent, start, stop)

    def tell(self, calls, *told):
        """Tell the observer, if there is one."""
        if self.observer:
            (self.observer.collective if calls else self.observer.advanced)(*told)

    def flew(self, group, layer, kind, bytes_sent, start, stop):
        """A collective that does not block was under way between two times."""
        if self.observer:
            self.observer.flight(group, layer, kind, bytes_sent, start, stop)

    def clear(self):
        self.records.clear()

    @contextmanager
    def set_aside(self):
        """Within, calls are counted apart and then forgotten, and no observer is told: they are no part of what is measured."""
        before, self.records, self.observer = (self.records, self.observer), defaultdict(Record), None
        try:
            yield
        finally:
            self.records, self.observer = before

    @property
    def seconds(self):
        return sum(record.seconds for record in self.records.values())


class Group:
    """The ranks along some axes of a grid.

    comm: their communicator. tally: where calls are counted.
    Arrays must be contiguous, on the host or on the device. `layer` names the entry of the tally.
    """

    def __init__(self, comm, tally):
        self.comm, self.tally = comm, tally
        self.size, self.rank = comm.size, comm.rank
        self._tag = 0

    @cached_property
    def ranks(self):
        """The ranks of MPI.COMM_WORLD that belong to the group, in its order."""
        own, world = self.comm.group, MPI.COMM_WORLD.group
        ranks = own.Translate_ranks(list(range(self.size)), world)
        own.Free(), world.Free()
        return tuple(int(rank) for rank in ranks)

    def all_reduce(self, array, layer):
        """Sum `array` over the group, in place."""
        if self.size == 1:
            return
        flat = array.reshape(-1)
        with self.counted("all-reduce", flat, layer):
            reached = staging.outgoing(flat)
            for start in range(0, max(flat.size, 1), MAX_ELEMENTS):
                self.comm.Allreduce(MPI.IN_PLACE, reached[start : start + MAX_ELEMENTS], MPI.SUM)
            staging.arrived(reached, flat)

    def start_all_reduce(self, array, layer):
        """Begin to sum a host `array` over the group, in place: a Transfer."""
        if self.size == 1:
            return Nothing()

        def steps():
            yield self.comm.Iallreduce(MPI.IN_PLACE, array, MPI.SUM)

        return Transfer(self, layer, "all-reduce", self.bytes_of("all-reduce", array), steps())

    def bytes_of(self, kind, array, own=0):
        """The bytes that this rank sends in a collective from the buffer `array`, of which `own` elements are for itself."""
        return COLLECTIVES[kind].sent(self, array.size, own) * array.itemsize

    def counted(self, kind, array, layer, own=0):
        """Around a blocking collective, counted by its bytes: see `bytes_of`."""
        return self.tally.measure(self, layer, kind, self.bytes_of(kind, array, own))

    def all_gather(self, block, out, counts, layer):
        """The blocks of all ranks, `counts` elements each, one after another into `out`."""
        with self.counted("all-gather", block, layer):
            received = staging.incoming(out)
            self._all_gather(staging.outgoing(block), received, counts)
            staging.arrived(received, out)

    def _all_gather(self, block, out, counts):
        if out.nbytes > LONG_GATHER and MPI.get_vendor()[0] == "MPICH":
            self.comm.Iallgatherv(block, [out, counts]).Wait()
        else:
            self.comm.Allgatherv(block, [out, counts])

    def reduce_scatter(self, blocks, out, counts, layer):
        """Sum `blocks` (`counts` elements for each rank in turn) over the group; this rank's block of the sum into `out`."""
        with self.counted("reduce-scatter", blocks, layer, out.size):
            received = staging.incoming(out)
            self.comm.Reduce_scatter(staging.outgoing(blocks), received, counts, MPI.SUM)
            staging.arrived(received, out)

    def start_reduce_scatter(self, array, counts, space, layer):
        """Begin to sum this rank's block of a host array over the group, by way of `space`, in its place: a Transfer."""
        start = sum(counts[: self.rank])

        def steps():
            yield self.comm.Ireduce_scatter(array, space, counts, MPI.SUM)
            array[start : start + space.size] = space

        return Transfer(self, layer, "reduce-scatter", self.bytes_of("reduce-scatter", array, space.size), steps())

    def all_gather_in_place(self, array, counts, layer):
        """`counts` elements of each rank, which has its own at their place in `array` already."""
        with self.counted("all-gather", self.own_block(array, counts), layer):
            reached = staging.outgoing(array)
            self._all_gather(MPI.IN_PLACE, reached, counts)
            staging.arrived(reached, array)

    def start_point_to_point(self, outgoing, incoming, layer, kind):
        """Begin to send a host array to each other rank and to receive one from it, counted as `kind`: a Transfer."""
        sent = sum(array.nbytes for rank, array in enumerate(outgoing) if rank != self.rank)
        tag = self.next_tag()

        def steps():
            yield self.point_to_point(outgoing, incoming, tag)

        return Transfer(self, layer, kind, sent, steps())

    def point_to_point(self, outgoing, incoming, tag):
        """Begin to send `outgoing[r]` to each other rank r and to receive `incoming[r]` from it: an object with Test and Wait.

        tag: of `next_tag`. Unlike with collectives, it does not matter in which order several are begun.
        """
        others = [rank for rank in range(self.size) if rank != self.rank]
        requests = [self.comm.Irecv(incoming[rank], rank, tag) for rank in others]
        return Requests(requests + [self.comm.Isend(outgoing[rank], rank, tag) for rank in others])

    def next_tag(self):
        """A tag that no transfer under way has, the same on all ranks if all ask in the same order."""
        self._tag = (self._tag + 1) % TAGS
        return self._tag

    def start_all_gather_in_place(self, array, counts, layer):
        """Begin what `all_gather_in_place` does, on a host array: a Transfer."""

        def steps():
            yield self.comm.Iallgatherv(MPI.IN_PLACE, [array, counts])

        sent = self.bytes_of("all-gather", self.own_block(array, counts))
        return Transfer(self, layer, "all-gather", sent, steps())

    def own_block(self, array, counts):
        """This rank's block of an array in which the blocks of all ranks lie one after another."""
        start = sum(counts[: self.rank])
        return array[start : start + counts[self.rank]]

    def all_to_all(self, blocks, counts, out, out_counts, layer):
        """Send the i-th block (`counts[i]` elements) to rank i; those received, in rank order, into `out`."""
        with self.counted("all-to-all", blocks, layer, counts[self.rank]):
            received = staging.incoming(out)
            self.comm.Alltoallv([staging.outgoing(blocks), counts], [received, out_counts])
            staging.arrived(received, out)

    def start_exchange(self, blocks, counts, out, out_counts, layer):
        """Begin an all-to-all in which few ranks have anything to say to each other: a Transfer.

        Until it is done the arrays are left alone, and no other collective of arrays on a device begins.
        """

        def steps():
            received = staging.incoming(out)
            yield self.comm.Ialltoallv([staging.outgoing(blocks), counts], [received, out_counts])
            staging.arrived(received, out)

        return Transfer(self, layer, "exchange", self.bytes_of("exchange", blocks, counts[self.rank]), steps())

    def broadcast(self, array, layer):
        """`array` of rank 0 into that of every rank."""
        if self.size == 1:
            return
        with self.counted("broadcast", array, layer):
            reached = staging.outgoing(array)
            self.comm.Bcast(reached, root=0)
            staging.arrived(reached, array)

    def scatter(self, blocks, counts, out, layer):
        """The i-th block of rank 0 (`counts[i]` elements) to rank i, into `out`; `blocks` is None elsewhere."""
        with self.counted("scatter", out if blocks is None else blocks, layer, out.size):
            given, received = staging.outgoing(blocks), staging.incoming(out)
            self.comm.Scatterv([given, counts] if self.rank == 0 else None, received, root=0)
            staging.arrived(received, out)

    def gather(self, block, out, counts, layer):
        """The blocks of all ranks, one after another, into `out` of rank 0 (None elsewhere)."""
        with self.counted("gather", block, layer):
            given, received = staging.outgoing(block), staging.incoming(out)
            self.comm.Gatherv(given, [received, counts] if self.rank == 0 else None, root=0)
            staging.arrived(received, out)

    def sum(self, value, layer):
        """The sum of a number over the group, as a Python float."""
        return self.start_sum(value, layer)()

    def start_sum(self, value, layer):
        """Begin to sum a number over the group; returns a function that waits and gives the sum as a Python float."""
        array = np.array([value], np.float64)
        transfer = self.start_all_reduce(array, layer)

        def finish():
            transfer.wait()
            return float(array[0])

        return finish
