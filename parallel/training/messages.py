"""What travels between two consecutive chunks of a pipeline, between which ranks, and how.

A boundary lies before a chunk. In forward it brings the outputs of the chunk before it to where the chunk takes them; in
backward it brings the gradient of the chunk's input back. What a rank has itself is not sent.

A message is known by its `way`, "forward" or "backward", the number of the chunk behind the boundary, and its micro-batch; it
is one for each rank that sends or receives a part of it. `samples` are those of the global micro-batch.
"""

from collections import defaultdict, deque
from functools import partial
from math import prod

from gridgrad.nn.device import empty, xp
from gridgrad.nn.observer import Observer
from gridgrad.parallel.grid.devices import Staging
from gridgrad.parallel.grid.group import TAGS, Transfer
from gridgrad.parallel.placement.partition import size

WAYS = FORWARD, BACKWARD = "forward", "backward"
TEST_INTERVAL = 0.0005  # seconds between two tests of the messages under way
LEAST_TAGS = 32768  # how many message tags every MPI library has


class StageBoundary:
    """Between two chunks, each on one rank of the axis `stage`: it sends the whole array. layout: of the activations along the
    other axes. coordinates: of this rank. source, target: the ranks, along the axis, of the chunks before and behind it."""

    def __init__(self, layout, coordinates, source, target, rank):
        self.layout, self.coordinates, self.rank = layout, coordinates, rank
        self.ends = {FORWARD: (source, target), BACKWARD: (target, source)}

    def shape(self, way, samples):
        """The shape of the array that this rank has after the way."""
        return self.layout.of(samples).local_shape(self.coordinates)

    def counts(self, way, samples):
        """{rank: elements} of the messages from this rank."""
        source, target = self.ends[way]
        return {target: prod(self.shape(way, samples))} if source == self.rank != target else {}

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
    that other ranks need. exchange: a Redistribute, which is not run as a layer then. Methods are as in StageBoundary."""

    def __init__(self, exchange):
        self.exchange, self.rank = exchange, exchange.group.rank
        self.before = {way: source.partition for way, (source, _) in exchange.ways.items()}

    def step(self, way, samples):
        """The Move."""
        rows = size(self.exchange.rows(samples))
        here = (rows, *self.exchange.shape[:-1], self.before[way].size(self.rank))
        return self.exchange.step(way, here, samples)

    @property
    def senders(self):
        """The other ranks from which this one receives something in forward."""
        parts = self.step(FORWARD, 1).received_parts
        return tuple(rank for rank, part in enumerate(parts) if rank != self.rank and size(part))

    def shape(self, way, samples):
        return self.step(way, samples).there

    def counts(self, way, samples):
        return {rank: count for rank, count in enumerate(self.step(way, samples).messages) if count}

    def sends(self, way, array, samples, take):
        step, array = self.step(way, samples), xp.ascontiguousarray(array)
        messages = {rank: take(count) for rank, count in self.counts(way, samples).items()}
        for rank, message in messages.items():
            step.sent_blocks.pack_one(array, rank, message)
        return messages

    def receives(self, way, samples, out, take):
        counts = self.step(way, samples).received_blocks.counts
        return {rank: take(count) for rank, count in enumerate(counts) if count}

    def join(self, way, own, received, out, samples):
        step = self.step(way, samples)
        step.keep(own, out)
        for rank, message in sorted(received.items()):
            step.received_blocks.unpack_one(message, rank, out, step.adds)


class Messages(Observer):
    """The arrays of a rank that cross boundaries, and their memory, which is used again and again. Sends do not block, and
    receives are announced before they are awaited. rank: this one, in the Group and on the Route. boundaries: {chunk: the one
    before it}. As an observer of the network it calls MPI within long layers: most libraries move messages only then."""

    def __init__(self, group, route, rank, boundaries, dtype):
        self.group, self.boundaries, self.dtype, self.chunks = group, boundaries, dtype, route.chunks
        self.numbers = (LEAST_TAGS - TAGS) // (2 * route.chunks)  # micro-batches whose messages have different tags
        held = route.held(rank)
        # {(way, boundary)} of what this rank sends: it sends gradients back where it receives inputs, and the other way round
        self.sends_at = {(FORWARD, chunk + 1) for chunk in held if route.receivers(chunk, rank)}
        self.sends_at |= {(BACKWARD, chunk) for chunk in held if route.sources(chunk, rank)}
        self._inner = {chunk for chunk in held if route.local_before(chunk, rank)}  # boundaries with this rank on both sides
        self.free = defaultdict(list)  # {size: flat arrays to use again}
        self.sending = deque()  # (the Transfers of a send, the arrays to give back after them)
        self.expected, self._tested = {}, 0.0  # {message: Transfers}
        self._own, self._made = {}, {}  # {message: what this rank has computed}: to be joined here, and to be sent
        self._received, self._joined = {}, {}  # {message: {rank: array}}, {message: all of it, as the next chunk takes it}

    def take(self, size):
        """A flat array of `size` elements, which belongs to the caller until it is given back."""
        free = self.free[size]
        return free.pop() if free else empty(size, self.dtype)

    def give_back(self, array):
        self.free[array.size].append(array.reshape(-1))

    # ----- what a chunk makes, and what the next one takes

    def put(self, message, array):
        """Keep what the chunk on this side of a boundary has computed, to be sent, or for the other side if that is here."""
        way, boundary, _ = message
        # other passes overwrite a gradient; outputs stay as they are in the context until their gradients have come back
        keep = self._copied if way == BACKWARD else lambda array: array
        if (way, boundary) in self.sends_at:
            self._made[message] = keep(xp.ascontiguousarray(array))
        if boundary in self._inner:
            self._own[message] = keep(array)

    def _copied(self, array):
        copy = self.take(array.size).reshape(array.shape)
        xp.copyto(copy, array)
        return copy

    def announce(self, message, samples):
        """Take the memory for what other ranks send, and announce it."""
        way, boundary, _ = message
        out = self._memory_for(message, samples)
        self._received[message] = self.boundaries[boundary].receives(way, samples, out, self.take)
        self.expect(message, self._received[message])

    def send(self, message, samples):
        """Begin to send what `put` has kept."""
        way, boundary, _ = message
        made = self._made.pop(message)
        arrays = self.boundaries[boundary].sends(way, made, samples, self.take)
        given = [array for array in arrays.values() if not xp.may_share_memory(array, made)]
        self.post(message, arrays, given if way == FORWARD else [*given, made])

    def get(self, message, samples):
        """What the chunk behind a way takes, from this rank itself and from others; its memory is kept until `done`."""
        way, boundary, _ = message
        own, received, out = self._own.pop(message, None), self._received.pop(message, {}), self._memory_for(message, samples)
        self.boundaries[boundary].join(way, own, received, out, samples)
        for array in received.values():
            if not xp.may_share_memory(array, out):
                self.give_back(array)
        if own is not None and way == BACKWARD:
            self.give_back(own)
        return out

    def _memory_for(self, message, samples):
        if message not in self._joined:
            way, boundary, _ = message
            shape = self.boundaries[boundary].shape(way, samples)
            self._joined[message] = self.take(prod(shape)).reshape(shape)
        return self._joined[message]

    def done(self, message):
        """Nobody needs what `get` has returned any more."""
        self.give_back(self._joined.pop(message))

    @property
    def is_empty(self):
        """Whether everything was sent, received and used."""
        return not (self.sending or self.expected or self._own or self._made or self._received or self._joined)

    # ----- MPI

    def post(self, message, arrays, given):
        """Begin to send {rank: array}. given: the arrays of ours in which they are; they are given back afterwards."""
        self._collect()
        tag, transfers = self._tag(*message), []
        for rank, array in arrays.items():
            steps = partial(self._sending, array, rank, tag)
            transfers.append(Transfer(self.group, f"chunk {message[1]}", "send", array.nbytes, steps, messages=1))
        self.sending.append((transfers, given))

    def expect(self, message, buffers):
        """Announce that messages will come, and write each to its array. buffers: {rank: array}."""
        tag = self._tag(*message)
        self.expected[message] = transfers = []
        for rank, array in buffers.items():
            steps = partial(self._receiving, array, rank, tag)
            transfers.append(Transfer(self.group, f"chunk {message[1]}", "receive", 0, steps))

    def arrived(self, message):
        """Wait for what was announced; returns whether it has arrived, which here is always so."""
        for transfer in self.expected.pop(message):
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
                self.give_back(array)

    def _sending(self, array, rank, tag):
        stage = Staging()  # kept until the message has left
        yield self.group.comm.Isend(stage.outgoing(array), rank, tag)

    def _receiving(self, array, rank, tag):
        stage = Staging()
        received = stage.incoming(array)
        yield self.group.comm.Irecv(received, rank, tag)
        stage.arrived(received, array)

    def _tag(self, way, boundary, micro_batch):
        """A tag that the group itself does not use. MPI keeps the order of messages with one tag, so it may be used again."""
        return TAGS + (micro_batch % self.numbers * self.chunks + boundary) * 2 + WAYS.index(way)
