"""A group of ranks and its collectives: buffers only, each call counted.

Bytes are what a rank must *send* in a bandwidth-optimal algorithm (Thakur et al. 2005; the beta terms of
Gholami et al. 2018): an all-gather sends the own block to p - 1 others, a reduce-scatter sends all but the own
block, an all-reduce is a reduce-scatter and an all-gather. Summed over the group these are exact, whatever the
sizes of the blocks: `parallel/volume.py` has the closed forms.
"""

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from mpi4py import MPI

from nn import device
from parallel.split import size, split
from parallel.staging import staging

MAX_ELEMENTS = 1 << 27  # of one all-reduce: some libraries fail on messages of 2^31 bytes and more


@dataclass
class Record:
    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Tally:
    """Calls, bytes sent and seconds of this rank's communication, by (layer, kind).

    listener: told of every collective, if there is one: `listener.collective(group, layer, kind, bytes_sent, start, stop)`
    of the seconds that this rank spent in it, `listener.flight(group, layer, kind, bytes_sent, start, stop)` of those
    that one which does not block was under way.
    """

    listener = None

    def __init__(self):
        self.records = defaultdict(Record)

    @contextmanager
    def measure(self, group, layer, kind, bytes_sent, calls=1):
        """Around one collective, which finds the device at rest: what it still computed would count as communication."""
        device.synchronise()
        start = time.perf_counter()
        yield
        stop = time.perf_counter()
        record = self.records[layer, kind]
        record.calls += calls
        record.bytes += int(bytes_sent)
        record.seconds += stop - start
        if self.listener:
            self.listener.collective(group, layer, kind, bytes_sent, start, stop)

    def clear(self):
        self.records.clear()

    @contextmanager
    def set_aside(self):
        """Within, calls are counted apart and then forgotten: they are no part of what is measured."""
        records, self.records = self.records, defaultdict(Record)
        yield
        self.records = records

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
        own = size(split(flat.size, self.size)[self.rank])
        sent = (flat.size - own + own * (self.size - 1)) * flat.itemsize
        with self.tally.measure(self, layer, "all-reduce", sent):
            reached = staging.outgoing(flat)
            for start in range(0, max(flat.size, 1), MAX_ELEMENTS):
                self.comm.Allreduce(MPI.IN_PLACE, reached[start : start + MAX_ELEMENTS], MPI.SUM)
            staging.arrived(reached, flat)

    def all_gather(self, block, out, counts, layer):
        """The blocks of all ranks, `counts` elements each, one after another into `out`."""
        with self.tally.measure(self, layer, "all-gather", block.nbytes * (self.size - 1)):
            received = staging.incoming(out)
            self.comm.Allgatherv(staging.outgoing(block), [received, counts])
            staging.arrived(received, out)

    def reduce_scatter(self, blocks, out, counts, layer):
        """Sum `blocks` (`counts` elements for each rank in turn) over the group; this rank's block of the sum into `out`."""
        with self.tally.measure(self, layer, "reduce-scatter", blocks.nbytes - out.nbytes):
            received = staging.incoming(out)
            self.comm.Reduce_scatter(staging.outgoing(blocks), received, counts, MPI.SUM)
            staging.arrived(received, out)

    def all_to_all(self, blocks, counts, out, out_counts, layer):
        """Send the i-th block (`counts[i]` elements) to rank i; those received, in rank order, into `out`."""
        sent = blocks.nbytes - counts[self.rank] * blocks.itemsize
        with self.tally.measure(self, layer, "all-to-all", sent):
            received = staging.incoming(out)
            self.comm.Alltoallv([staging.outgoing(blocks), counts], [received, out_counts])
            staging.arrived(received, out)

    def start_halo(self, blocks, counts, out, out_counts, layer):
        """Begin an all-to-all in which few ranks have anything to say to each other.

        Returns a function that waits for it; until then the arrays are left alone, and no other collective begins.
        """
        sent = blocks.nbytes - counts[self.rank] * blocks.itemsize
        with self.tally.measure(self, layer, "halo", sent):
            received = staging.incoming(out)
            request = self.comm.Ialltoallv([staging.outgoing(blocks), counts], [received, out_counts])

        def finish():
            with self.tally.measure(self, layer, "halo", 0, calls=0):
                request.Wait()
                staging.arrived(received, out)

        return finish

    def broadcast(self, array, layer):
        """`array` of rank 0 into that of every rank."""
        if self.size == 1:
            return
        sent = array.nbytes * (self.size - 1) if self.rank == 0 else 0
        with self.tally.measure(self, layer, "broadcast", sent):
            reached = staging.outgoing(array)
            self.comm.Bcast(reached, root=0)
            staging.arrived(reached, array)

    def scatter(self, blocks, counts, out, layer):
        """The i-th block of rank 0 (`counts[i]` elements) to rank i, into `out`; `blocks` is None elsewhere."""
        sent = blocks.nbytes - out.nbytes if self.rank == 0 else 0
        with self.tally.measure(self, layer, "scatter", sent):
            given, received = staging.outgoing(blocks), staging.incoming(out)
            self.comm.Scatterv([given, counts] if self.rank == 0 else None, received, root=0)
            staging.arrived(received, out)

    def gather(self, block, out, counts, layer):
        """The blocks of all ranks, one after another, into `out` of rank 0 (None elsewhere)."""
        sent = 0 if self.rank == 0 else block.nbytes
        with self.tally.measure(self, layer, "gather", sent):
            given, received = staging.outgoing(block), staging.incoming(out)
            self.comm.Gatherv(given, [received, counts] if self.rank == 0 else None, root=0)
            staging.arrived(received, out)

    def sum(self, value, layer):
        """The sum of a number over the group, as a Python float."""
        array = np.array([value], np.float64)
        self.all_reduce(array, layer)
        return float(array[0])
