"""What travels between two consecutive chunks of a pipeline, between which ranks, and how.

A boundary lies before a chunk. In forward it brings the outputs of the chunk before it to where the chunk takes them; in
backward it brings the gradient of the chunk's input back. What a rank has itself is not sent.

Methods take a `way`, "forward" or "backward", and the `samples` of the global micro-batch. A message is known by its way, the
number of the chunk behind the boundary, and its micro-batch. Sends do not block; receives may be announced before them.
"""

from collections import defaultdict, deque
from math import prod

from gridgrad.nn.device import empty, xp
from gridgrad.nn.observer import Observer
from gridgrad.parallel.grid.devices import Staging
from gridgrad.parallel.grid.group import TAGS, Transfer
from gridgrad.parallel.placement.partition import size

WAYS = "forward", "backward"
TEST_INTERVAL = 0.0005  # seconds between two tests of the messages under way
LEAST_TAGS = 32768  # how many message tags every MPI library has


class StageBoundary:
    """Between two chunks, each on one rank of the axis `stage`: it sends the whole array. layout: of the activations along the
    other axes. coordinates: of this rank. source, target: the ranks, along the axis, of the chunks before and behind it."""

    def __init__(self, layout, coordinates, source, target, rank):
        self.layout, self.coordinates, self.rank = layout, coordinates, rank
        self.ends = {"forward": (source, target), "backward": (target, source)}

    def shape(self, way, samples):
        """The shape of the array that this rank has after the way."""
        return self.layout.of(samples).local_shape(self.coordinates)

    def is_sender(self, way):
        source, target = self.ends[way]
        return source == self.rank != target

    def is_receiver(self, way):
        source, target = self.ends[way]
        return target == self.rank != source

    def counts(self, way, samples):
        """{rank: elements} of the messages from this rank."""
        return {self.ends[way][1]: prod(self.shape(way, samples))} if self.is_sender(way) else {}

    def sends(self, way, array, samples, take):
        """{rank: flat array} of the messages from this rank, which must not change before they have left. array: what this rank
        has before the way. take: returns a flat array of a size."""
        return {self.ends[way][1]: array.reshape(-1)}

    def receives(self, way, samples, out, take):
        """{rank: flat array} for the messages to this rank. out: the array of `shape` that it will have after the way."""
        return {self.ends[way][0]: out.reshape(-1)}

    def join(self, way, own, received, out, samples):
        """Write `out`. own: what this rank had before the way, or None. received: what `receives` returned, with messages."""
        if own is not None:
            xp.copyto(out, own)


class ExchangeBoundary:
    """Between two chunks of a hypergraph partition, with parts of both on all ranks of the axis `model`: it sends the channels
    that other ranks need. exchange: a Redistribute, which is not run as a layer then."""

    def __init__(self, exchange):
        self.exchange, self.rank = exchange, exchange.group.rank
        self.before = {way: source.partition for way, (source, _) in exchange.ways.items()}

    def step(self, way, samples):
        """The Move."""
        rows = size(self.exchange.rows(samples))
        here = (rows, *self.exchange.shape[:-1], self.before[way].size(self.rank))
        return self.exchange.step(way, here, samples)

    def shape(self, way, samples):
        return self.step(way, samples).there

    def is_sender(self, way):
        return any(self._of_others(self.step(way, 1).sent_parts))

    def is_receiver(self, way):
        return any(self._of_others(self.step(way, 1).received_parts))

    @property
    def senders(self):
        """The other ranks from which this one receives something in forward."""
        return tuple(rank for rank, number in enumerate(self._of_others(self.step("forward", 1).received_parts)) if number)

    def _of_others(self, parts):
        """How many channels there are in each rank's part, except in this one's."""
        return [0 if rank == self.rank else size(part) for rank, part in enumerate(parts)]

    def counts(self, way, samples):
        return {rank: count for rank, count in enumerate(self.step(way, samples).messages) if count}

    def sends(self, way, array, samples, take):
        step, array = self.step(way, samples), xp.ascontiguousarray(array)
        messages = {rank: take(count) for rank, count in self.counts(way, samples).items()}
        for rank, message in messages.items():
            step.sent_blocks.pack_one(array, rank, message)
        return messages

    def receives(self, way, samples, out, take):
        step = self.step(way, samples)
        return {rank: take(count) for rank, count in enumerate(step.received_blocks.counts) if count}

    def join(self, way, own, received, out, samples):
        step = self.step(way, samples)
        step.keep(own, out)
        for rank, message in sorted(received.items()):
            step.received_blocks.unpack_one(message, rank, out, step.adds)


class BufferPool:
    """Flat arrays that are used again and again. dtype: of their elements."""

    def __init__(self, dtype):
        self.dtype, self._free = dtype, defaultdict(list)

    def take(self, size):
        """A flat array of `size` elements, which belongs to the caller until it is given back."""
        free = self._free[size]
        return free.pop() if free else empty(size, self.dtype)

    def give_back(self, array):
        self._free[array.size].append(array)


class MpiTransport(Observer):
    """Messages between the ranks of a Group. chunks: of the pipeline. pool: a BufferPool. As an observer of the network it
    calls MPI now and then within long layers, because most libraries move a long message only while they are called."""

    def __init__(self, group, chunks, pool):
        self.group, self.chunks, self.pool = group, chunks, pool
        self.numbers = (LEAST_TAGS - TAGS) // (2 * chunks)  # micro-batches whose messages have different tags
        self.sending = deque()  # (the Transfers of a send, the arrays to give back after them)
        self.expected, self._tested = {}, 0.0  # {message: Transfers}

    def send(self, way, chunk, micro_batch, messages, given=()):
        """Begin to send {rank: array}. given: arrays of the pool, in which the messages are; they return to it afterwards."""
        self._collect()
        tag, transfers = self._tag(way, chunk, micro_batch), []
        for rank, array in messages.items():
            steps = self._sending(array, rank, tag)
            transfers.append(Transfer(self.group, f"chunk {chunk}", "send", array.nbytes, steps, messages=1))
        self.sending.append((transfers, given))

    def expect(self, way, chunk, micro_batch, buffers):
        """Announce that messages will come, and write each to its array. buffers: {rank: array}."""
        tag = self._tag(way, chunk, micro_batch)
        self.expected[way, chunk, micro_batch] = transfers = []
        for rank, array in buffers.items():
            transfers.append(Transfer(self.group, f"chunk {chunk}", "receive", 0, self._receiving(array, rank, tag)))

    def arrived(self, way, chunk, micro_batch):
        """Wait for the announced messages; returns whether they have arrived, which here is always so."""
        for transfer in self.expected.pop((way, chunk, micro_batch)):
            transfer.wait()
        return True

    def abandon(self):
        """Announced messages will not come any more. It does not communicate."""
        for transfer in sum(self.expected.values(), []):
            if not transfer.done:
                transfer.request.Cancel()
                transfer.request.Wait()
        self.expected.clear()

    def complete_sends(self):
        """Return when everything that was sent has left, and its arrays may change."""
        for transfers, _ in self.sending:
            for transfer in transfers:
                transfer.wait()
        self._collect()

    @property
    def progress(self):
        """The function to be called at the progress points of layers, if a message is under way."""
        return self._progress if self.sending or self.expected else None

    def _progress(self):
        now = self.group.tally.clock.now()
        if now - self._tested > TEST_INTERVAL:
            for transfers in (*(found for found, _ in self.sending), *self.expected.values()):
                for transfer in transfers:
                    transfer.test()
            self._collect()
            self._tested = self.group.tally.clock.now()

    def _collect(self):
        """Forget the oldest sends, as far as they are complete, and give their arrays back."""
        while self.sending and all([transfer.test() for transfer in self.sending[0][0]]):
            _, given = self.sending.popleft()
            for array in given:
                self.pool.give_back(array)

    def _sending(self, array, rank, tag):
        stage = Staging()  # kept until the message has left
        yield self.group.comm.Isend(stage.outgoing(array), rank, tag)

    def _receiving(self, array, rank, tag):
        stage = Staging()
        received = stage.incoming(array)
        yield self.group.comm.Irecv(received, rank, tag)
        stage.arrived(received, array)

    def _tag(self, way, chunk, micro_batch):
        """A tag that the group itself does not use. MPI keeps the order of messages with one tag, so it may be used again."""
        return TAGS + (micro_batch % self.numbers * self.chunks + chunk) * 2 + WAYS.index(way)
