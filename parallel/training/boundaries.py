"""What travels between two consecutive chunks of a pipeline, and between which ranks.

A boundary lies before a chunk. In forward it brings the outputs of the chunk before it to where the chunk takes them; in
backward it brings the gradient of the chunk's input back. What a rank has itself is not sent.

| class              | where the chunks are                                        | what is sent                          |
|--------------------|-------------------------------------------------------------|---------------------------------------|
| `StageBoundary`    | each on one rank of the axis `stage`                        | the whole array, from rank to rank    |
| `ExchangeBoundary` | parts of both on all ranks of the axis `model`              | the channels that other ranks need    |

All methods have an argument `way`, "forward" or "backward", and `samples`, those of the global micro-batch.
"""

from math import prod

from gridgrad.nn.device import xp
from gridgrad.parallel.placement.partition import size


class StageBoundary:
    """Between two chunks, each of which is on one rank of the axis `stage`.

    layout: of the activations along the other axes. coordinates: of this rank. source, target: the ranks, along the axis, of
    the chunk before the boundary and of the chunk behind it. rank: this one.
    """

    def __init__(self, layout, coordinates, source, target, rank):
        self.layout, self.coordinates, self.rank = layout, coordinates, rank
        self.ends = {"forward": (source, target), "backward": (target, source)}

    def shape(self, way, samples):
        """The shape of the array that this rank has after the way."""
        return self.layout.of(samples).local_shape(self.coordinates)

    def is_sender(self, way):
        """Whether this rank sends something."""
        source, target = self.ends[way]
        return source == self.rank != target

    def is_receiver(self, way):
        """Whether this rank receives something."""
        source, target = self.ends[way]
        return target == self.rank != source

    def counts(self, way, samples):
        """{rank: elements} of the messages from this rank."""
        return {self.ends[way][1]: prod(self.shape(way, samples))} if self.is_sender(way) else {}

    def sends(self, way, array, samples, take):
        """{rank: flat array} of the messages from this rank, which must not change before they have left.

        array: what this rank has before the way. take: a function of a size that returns a flat array to be sent.
        """
        return {self.ends[way][1]: array.reshape(-1)}

    def receives(self, way, samples, out, take):
        """{rank: flat array} for the messages to this rank. out: the array of `shape` that it will have after the way."""
        return {self.ends[way][0]: out.reshape(-1)}

    def join(self, way, own, received, out, samples):
        """Write `out`. own: what this rank had before the way, or None. received: what `receives` returned, with messages."""
        if own is not None:
            xp.copyto(out, own)


class ExchangeBoundary:
    """Between two chunks of a network that a hypergraph partition divides: one of its exchanges.

    exchange: a Redistribute whose placements shard the channels, which is not run as a layer then.
    """

    def __init__(self, exchange):
        self.exchange, self.rank = exchange, exchange.group.rank
        self.before = {way: source.partition for way, (source, _) in exchange.ways.items()}

    def step(self, way, samples):
        """The Move of the exchange on a way."""
        rows = size(self.exchange.rows(samples))
        here = (rows, *self.exchange.shape[:-1], self.before[way].size(self.rank))
        return self.exchange.step(way, here, samples)

    def shape(self, way, samples):
        return self.step(way, samples).there

    def is_sender(self, way):
        return any(self._sizes(way, "sent_parts"))

    def is_receiver(self, way):
        return any(self._sizes(way, "received_parts"))

    @property
    def senders(self):
        """The other ranks from which this one receives something in forward."""
        return tuple(rank for rank, number in enumerate(self._sizes("forward", "received_parts")) if number)

    def _sizes(self, way, parts):
        found = getattr(self.step(way, 1), parts)
        return [0 if rank == self.rank else size(part) for rank, part in enumerate(found)]

    def counts(self, way, samples):
        """{rank: elements} of the messages from this rank."""
        step = self.step(way, samples)
        return {rank: count for rank, count in enumerate(step.sent_counts) if count}

    def sends(self, way, array, samples, take):
        step, messages = self.step(way, samples), {}
        array = xp.ascontiguousarray(array)
        for rank, count in self.counts(way, samples).items():
            messages[rank] = take(count)
            step.sent_blocks.pack_one(array, rank, messages[rank])
        return messages

    def receives(self, way, samples, out, take):
        step = self.step(way, samples)
        return {rank: take(count) for rank, count in enumerate(step.received_counts) if count}

    def join(self, way, own, received, out, samples):
        step = self.step(way, samples)
        step.keep(own, out)
        for rank, message in sorted(received.items()):
            step.received_blocks.unpack_one(message, rank, out, step.adds)
