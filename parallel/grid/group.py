"""A group of ranks and its collectives: blocking ones, and those that proceed while the rank computes; and what counts them.

They send buffers, never pickles, and are counted in the tally of the grid under the name `layer`. Arrays must be contiguous.
Unless stated otherwise each rank may have them on the host or on the device. `counts` are numbers of elements, one for each
rank, and may differ and be 0.

The `start_...` methods return a Transfer at once, and their arrays must not be read or written until it is complete. An MPI
library may move data only while one of its functions runs, so `Transfer.test` should be called now and then. Sums of arrays on
the device then go through the host, because few MPI libraries can sum in a GPU's memory without blocking.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from gridgrad.nn.device import synchronise, xp
from gridgrad.nn.graphs import between
from gridgrad.nn.observer import Observable
from gridgrad.parallel.grid.collectives import sent_by_rank
from gridgrad.parallel.grid.devices import Staging, staging
from gridgrad.parallel.job.waiting import here

TRIPS = 20  # round trips in a comparison of two clocks
MAX_ELEMENTS = 1 << 27  # the most in one all-reduce: some MPI libraries fail on messages of 2^31 bytes and more
LONG_GATHER = 1 << 19  # bytes above which MPICH's blocking all-gather takes twice as long, since it sends pieces of 32 KiB
IS_MPICH = MPI.get_vendor()[0] == "MPICH"
TAGS = 1 << 14  # how many message tags are used in turn; every MPI library has at least that many


# ----- what was sent


class WallClock:
    """Real time, `time.perf_counter`. Simulated workers have a clock whose time is virtual instead."""

    def __init__(self):
        self.now = time.perf_counter  # returns the time in seconds

    def compare(self, comm):
        """(now, offset, accuracy) in seconds: at the local time `now`, rank 0's clock shows `now + offset`. Collective."""
        # Cristian 1989: rank 0 answers a message with its time. Taken to be the middle of the round trip, that time is wrong by
        # at most half the round trip, the accuracy. The fastest of several round trips is used.
        word, trips = np.empty(1), []
        if comm.rank == 0:
            for other in range(1, comm.size):
                for _ in range(TRIPS):
                    comm.Recv(word, other)
                    word[0] = time.perf_counter()
                    comm.Send(word, other)
            return time.perf_counter(), 0.0, 0.0
        for _ in range(TRIPS):
            sent = time.perf_counter()
            comm.Send(word, 0)
            comm.Recv(word, 0)
            arrived = time.perf_counter()
            trips.append((arrived - sent, sent, float(word[0])))
        trip, sent, there = min(trips)
        middle = sent + trip / 2
        return middle, there - middle, trip / 2


@dataclass
class Record:
    """What one entry of a tally has counted."""

    calls: int = 0  # of this rank
    bytes: int = 0  # that it sent
    seconds: float = 0.0  # spent in the calls
    messages: int = 0  # from point to point that it sent; those within MPI's collectives are not known


class Tally(Observable):
    """Counts this rank's communication: `records` is {(layer, kind of collective): Record}.
    Observers that are registered here are told of every collective: see `nn/observer.py`."""

    def __init__(self):
        self.clock = WallClock()
        self.records = defaultdict(Record)

    def clear(self):
        self.records.clear()

    @contextmanager
    def set_aside(self):
        """A `with` block whose communication is neither counted nor reported to observers, such as that of an evaluation."""
        before, self.records, self.observer = (self.records, self.observer), defaultdict(Record), None
        try:
            yield
        finally:
            self.records, self.observer = before

    @property
    def seconds(self):
        """The seconds that this rank has spent in communication, over all entries."""
        return sum(record.seconds for record in self.records.values())


class Call:
    """A `with` block around one call of MPI, which is counted, timed, and told to the watchdog and observers.
    sent: bytes, by this rank. calls: 1 where a collective runs or begins, 0 where it is tested or waited for."""

    __slots__ = "calls", "group", "kind", "layer", "messages", "sent", "start"

    def __init__(self, group, kind, layer, sent, calls=1, messages=0):
        self.group, self.kind, self.layer = group, kind, layer
        self.sent, self.calls, self.messages = int(sent), calls, messages

    def __enter__(self):
        if not xp.is_cpu:
            synchronise()  # else the end of its earlier computations would be counted as communication
        self.start = self.group.tally.clock.now()
        here.entered += 1
        here.calls.append(self)

    def __exit__(self, error, *_):
        here.calls.pop()
        if error:
            return
        tally = self.group.tally
        stop, record = tally.clock.now(), tally.records[self.layer, self.kind]
        record.calls += self.calls
        record.bytes += self.sent
        record.seconds += stop - self.start
        record.messages += self.messages
        if tally.observer:
            tell = tally.observer.collective if self.calls else tally.observer.advanced
            tell(self.group, self.layer, self.kind, self.sent, self.start, stop)


# ----- collectives


class Operation(NamedTuple):
    """How MPI carries out a kind of collective. function: its blocking one; the other has an I in front of its name.
    calls(sent, received, counts): the arguments of each call of it, a list. In place `sent` is `received`."""

    kind: str
    function: str
    calls: Callable
    adds: bool = False


def sums_in_place(_, array, __):
    if array.size <= MAX_ELEMENTS:
        return [(MPI.IN_PLACE, array, MPI.SUM)]
    starts = range(0, array.size, MAX_ELEMENTS)
    return [(MPI.IN_PLACE, array[start : start + MAX_ELEMENTS], MPI.SUM) for start in starts]


ALL_REDUCE = Operation("all-reduce", "Allreduce", sums_in_place, adds=True)
ALL_GATHER = Operation("all-gather", "Allgatherv",
    lambda sent, received, counts: [(MPI.IN_PLACE if sent is received else sent, [received, counts])])  # fmt: skip
REDUCE_SCATTER = Operation("reduce-scatter", "Reduce_scatter",
    lambda sent, received, counts: [(sent, received, counts, MPI.SUM)], adds=True)  # fmt: skip
ALL_TO_ALL = Operation("all-to-all", "Alltoallv", lambda sent, received, counts: [([sent, counts[0]], [received, counts[1]])])
BROADCAST = Operation("broadcast", "Bcast", lambda sent, received, counts: [(received,)])
SCATTER = Operation("scatter", "Scatterv", lambda sent, received, counts: [([sent, counts], received)])
GATHER = Operation("gather", "Gatherv", lambda sent, received, counts: [(sent, [received, counts])])


class Group:
    """The ranks along some axes of a grid, of the communicator `comm`; methods that take a `layer` are collective over them.
    ranks: of each, in the group's order, its rank in MPI.COMM_WORLD."""

    def __init__(self, comm, tally):
        self.comm, self.tally = comm, tally
        self.size, self.rank = comm.size, comm.rank
        own, world = comm.group, MPI.COMM_WORLD.group
        self.ranks = tuple(map(int, own.Translate_ranks(list(range(self.size)), world)))
        own.Free(), world.Free()
        self._tag = 0

    def _run(self, operation, layer, elements, own, outgoing, incoming, counts=None):
        """Carry out an Operation. elements, own: see `Collective.sent`. outgoing, incoming: arrays, the same one in place."""
        call = operation, layer, elements, own, outgoing, incoming, counts
        if on_host(outgoing, incoming):
            self._run_now(*call)
        else:
            between(partial(self._run_now, *call))

    def _run_now(self, operation, layer, elements, own, outgoing, incoming, counts):
        sent = sent_by_rank(operation.kind, elements, own, self.size, self.rank)
        with Call(self, operation.kind, layer, sent and sent * outgoing.itemsize):
            given, received = (outgoing, incoming) if xp.is_cpu else staging.on_host(outgoing, incoming)
            for arguments in operation.calls(given, received, counts):
                if operation is ALL_GATHER and IS_MPICH and received.nbytes > LONG_GATHER:
                    self.comm.Iallgatherv(*arguments).Wait()
                else:
                    getattr(self.comm, operation.function)(*arguments)
            if received is not incoming:
                staging.arrived(received, incoming)

    def _start(self, operation, layer, elements, own, outgoing, incoming, counts=None, into=None):
        """Begin what `_run` does; return a Transfer. into: an array to which `incoming` is copied at the end."""

        def steps():
            stage = None if xp.is_cpu else Staging(direct=not operation.adds)
            given, received = stage.on_host(outgoing, incoming) if stage else (outgoing, incoming)
            for arguments in operation.calls(given, received, counts):
                yield getattr(self.comm, f"I{operation.function.lower()}")(*arguments)
            if stage:
                stage.arrived(received, incoming)
            if into is not None:
                into[...] = incoming

        sent = sent_by_rank(operation.kind, elements, own, self.size, self.rank) * outgoing.itemsize
        return Transfer(self, layer, operation.kind, sent, steps, arrays=(outgoing, incoming))

    def all_reduce(self, array, layer):
        """Sum `array` elementwise over the group, in place on every rank."""
        if self.size > 1:
            flat = array.reshape(-1)
            self._run(ALL_REDUCE, layer, flat.size, 0, flat, flat)

    def start_all_reduce(self, array, layer):
        """Begin `all_reduce`; return a Transfer."""
        flat = array.reshape(-1)
        return self._start(ALL_REDUCE, layer, flat.size, 0, flat, flat) if self.size > 1 else COMPLETE

    def all_gather(self, block, out, counts, layer):
        """Concatenate the blocks of all ranks (counts[r] elements of rank r), in rank order, into `out` on every rank. In place
        where `block` is `out`: then each rank's own block is at its place already."""
        self._run(ALL_GATHER, layer, counts[self.rank], 0, block, out, counts)

    def start_all_gather_in_place(self, array, counts, layer):
        """Begin an `all_gather` in place; return a Transfer."""
        return self._start(ALL_GATHER, layer, counts[self.rank], 0, array, array, counts)

    def reduce_scatter(self, blocks, out, counts, layer):
        """Sum `blocks`, those of all ranks in rank order, over the group; each rank gets its block of the sum in `out`."""
        self._run(REDUCE_SCATTER, layer, blocks.size, out.size, blocks, out, counts)

    def start_reduce_scatter(self, array, counts, space, layer):
        """Begin a reduce-scatter to the own block of `array`; return a Transfer. space: scratch, counts[self.rank] elements."""
        start = sum(counts[: self.rank])
        own = array[start : start + space.size]
        return self._start(REDUCE_SCATTER, layer, array.size, space.size, array, space, counts, own)

    def all_to_all(self, blocks, counts, out, out_counts, layer):
        """Send block i of `blocks` (counts[i] elements) to rank i; receive the blocks of all (out_counts[i]) in `out`."""
        self._run(ALL_TO_ALL, layer, blocks.size, counts[self.rank], blocks, out, (counts, out_counts))

    def broadcast(self, array, layer):
        """Copy `array` of rank 0 into `array` of every rank."""
        if self.size > 1:
            self._run(BROADCAST, layer, array.size, 0, array, array)

    def scatter(self, blocks, counts, out, layer):
        """Send block i of `blocks` on rank 0 (counts[i] elements) to rank i, into its `out`; `blocks` is None elsewhere."""
        self._run(SCATTER, layer, sum(counts), out.size, blocks, out, counts)

    def gather(self, block, out, counts, layer):
        """Concatenate the blocks of all ranks, counts[i] elements each, into `out` on rank 0; it is None elsewhere."""
        self._run(GATHER, layer, block.size, 0, block, out, counts)

    # ----- messages from rank to rank

    def start_exchange(self, blocks, counts, out, out_counts, layer):
        """Begin an `all_to_all` by messages between pairs of ranks with counts above 0, such as a halo; return a Transfer.
        A rank waits for those alone that send it something, and sends nothing to itself. Counted as "exchange"."""

        def steps():
            stage = None if xp.is_cpu else Staging()
            given, received = stage.on_host(blocks, out) if stage else (blocks, out)
            yield self.point_to_point(pieces(given, counts), pieces(received, out_counts), self.next_tag())
            if stage:
                stage.arrived(received, out)

        return Transfer(self, layer, "exchange", blocks.nbytes, steps, sum(map(bool, counts)), (blocks, out))

    def start_point_to_point(self, outgoing, incoming, layer, kind):
        """Begin to send the array `outgoing[r]` to each other rank r and to receive `incoming[r]`; return a Transfer.
        For empty ones there is no message. kind: counted as such."""
        sizes = [array.nbytes for rank, array in enumerate(outgoing) if array.size and rank != self.rank]

        def steps():
            given, received = outgoing, incoming
            if not xp.is_cpu:
                given, received = self._on_host(outgoing, Staging.outgoing), self._on_host(incoming, Staging.incoming)
            yield self.point_to_point(given, received, self.next_tag())
            if not xp.is_cpu:
                for buffer, array in zip(received, incoming, strict=True):
                    staging.arrived(buffer, array)

        return Transfer(self, layer, kind, sum(sizes), steps, len(sizes), (*outgoing, *incoming))

    def _on_host(self, arrays, buffer):
        """What `buffer`, a method of Staging, gives instead of `arrays`, which travel together: to each one its own."""
        others = {id(array): array for rank, array in enumerate(arrays) if array.size and rank != self.rank}
        found = {key: buffer(Staging(), array) for key, array in others.items()}  # one, where several ranks get the same array
        return [found.get(id(array), array) for array in arrays]

    def point_to_point(self, outgoing, incoming, tag):
        """Post the messages of `start_point_to_point` without counting them; return a RequestSet. tag: of `next_tag`.
        Unlike MPI's collectives, several of these need not begin in the same order on all ranks."""
        others, requests = [rank for rank in range(self.size) if rank != self.rank], RequestSet()
        requests += [self.comm.Irecv(incoming[rank], rank, tag) for rank in others if incoming[rank].size]
        requests += [self.comm.Isend(outgoing[rank], rank, tag) for rank in others if outgoing[rank].size]
        return requests

    def next_tag(self):
        """A message tag that no transfer under way uses, the same on all ranks, which ask for tags in the same order."""
        self._tag = (self._tag + 1) % TAGS
        return self._tag


def pieces(flat, counts):
    """Views of consecutive blocks of a flat array, which have these numbers of elements."""
    return [flat[stop - count : stop] for stop, count in zip(accumulate(counts), counts)]


class RequestSet(list):
    """Several MPI requests that are tested and waited for together, as an MPI.Request is."""

    def Test(self):
        return MPI.Request.Testall(self)

    def Wait(self):
        MPI.Request.Waitall(self)


class Transfer:
    """A non-blocking collective of one or several rounds. steps(): a generator of MPI requests, resumed when each is complete.
    started, stopped: when it began and was found complete, by the tally's clock. bytes_sent, messages: in all rounds. arrays:
    those that are sent or received, if one may be a device's."""

    def __init__(self, group, layer, kind, bytes_sent, steps, messages=0, arrays=()):
        self.steps, self.bytes_sent, self._counted = steps, bytes_sent, (group, kind, layer, bytes_sent, 1, messages)
        if on_host(*arrays):
            self._begin()
        else:  # a graph has it begin, and tests it and waits for it, anew in each replay
            self.test, self.wait = partial(between, self.test), partial(between, self.wait)
            between(self._begin)

    def _begin(self):
        self.done, self.call, self._rounds = False, Call(*self._counted), self.steps()
        with self.call:
            self.request = next(self._rounds)
        self.started = self.call.start
        self.call.calls = self.call.sent = self.call.messages = 0  # what follows is progress of the same call

    def test(self):
        """Let the MPI library advance it, without waiting; return whether it is complete."""
        if not self.done:
            with self.call:
                while not self.done and self.request.Test():
                    self._go_on()
        return self.done

    def wait(self):
        if not self.done:
            with self.call:
                while not self.done:
                    self.request.Wait()
                    self._go_on()

    def _go_on(self):
        """Begin the next round or, after the last one, note that the transfer is complete."""
        self.request = next(self._rounds, None)
        if self.request is None:
            call, self.done = self.call, True
            self.stopped = call.group.tally.clock.now()
            if told := call.group.tally.observer:
                told.flight(call.group, call.layer, call.kind, self.bytes_sent, self.started, self.stopped)


def on_host(*arrays):
    """Whether all arrays, or None, are in the host's memory."""
    return xp.is_cpu or all(array is None or isinstance(array, np.ndarray) for array in arrays)


# Takes the place of a Transfer where there is nothing to send.
COMPLETE = SimpleNamespace(done=True, started=math.inf, stopped=-math.inf, test=lambda: True, wait=lambda: None)
