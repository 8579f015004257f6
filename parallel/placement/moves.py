"""Moves of an array from one placement along an axis of the grid to another, by collectives and exchanges.

Each Move says how it is executed, which collective it uses, and how many elements a rank sends. The collectives themselves,
with their costs, are in `parallel/grid/collectives.py`, by the name in `kind`. Which Move leads from which placement to which
is the table in `parallel/placement/move_table.py`.
"""

from collections import Counter
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from gridgrad.nn.device import to_device, xp
from gridgrad.nn.kernels.window import along
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.placement.partition import common, positions, resized, size
from gridgrad.parallel.placement.placements import PartialShard


class Step:
    """One direction of a redistribution on one rank of the group, for arrays of one shape.

    move: the Move that is executed. group: the ranks of the axis, anything with a `size` and a `rank`. source, target:
    placements. here: the shape of this rank's array before the move. samples: how many samples the ranks of the group hold
    together.

    there: the shape of this rank's array after the move. outgoing, incoming: the Partition of the dimension that the source and
    the target shard; None where they shard none.
    """

    def __init__(self, move, group, source, target, here, samples):
        self.move, self.group, self.source, self.target, self.here = move, group, source, target, tuple(here)
        there = self.here
        self.outgoing = self.incoming = None
        if source.dim is not None:
            self.outgoing = source.partition_of(samples)
            there = resized(there, source.dim, self.outgoing.length)
        if target.dim is not None:
            self.incoming = target.partition_of(samples)
            there = resized(there, target.dim, self.incoming.size(group.rank))
        self.there = there

    @property
    def kind(self):
        """The name of the collective, or None where nothing is sent."""
        return self.move.kind

    @cached_property
    def sent(self):
        """Elements that this rank sends."""
        return 0 if self.kind is None else COLLECTIVES[self.kind].sent(self.group, *self.move.buffer(self))

    @cached_property
    def most(self):
        """The most elements that any rank of the group sends or receives in an exchange; 0 for all other moves.

        In an exchange ranks send different amounts, and it ends when the rank with the longest message has finished.
        """
        return self.move.most(self)

    @property
    def messages(self):
        """For each rank of the group, the elements that this rank sends to it alone; None where all ranks work together."""
        return self.move.messages(self)

    @property
    def copies(self):
        """What is packed into message buffers, and what is unpacked from them: two dicts {length of a run: elements}.

        The elements of a run follow one another in memory.
        """
        return self.move.copies(self)

    @property
    def held(self):
        """Elements of the arrays that the move keeps: its output, and buffers of messages."""
        return self.move.held(self)

    @cached_property
    def lengths(self):
        """For each rank, the length of its part of the dimension that either the source or the target shards."""
        return (self.incoming or self.outgoing).sizes

    # ----- for exchanges

    @cached_property
    def sent_parts(self):
        """For each rank, the indices of the whole dimension that this rank sends to it."""
        mine = self.outgoing.part(self.group.rank)
        return [common(mine, part) for part in self.incoming.parts]

    @cached_property
    def received_parts(self):
        """For each rank, the indices of the whole dimension that this rank receives from it."""
        mine = self.incoming.part(self.group.rank)
        return [common(part, mine) for part in self.outgoing.parts]

    @cached_property
    def adds(self):
        """Whether several ranks hold partial sums of one element."""
        return isinstance(self.source, PartialShard) and bool((self.outgoing.holders > 1).any())

    @cached_property
    def row(self):
        """How many elements this rank's array has for one index of the dimension."""
        return prod(resized(self.here, self.source.dim, 1))


class Move:
    """How an array is moved. kind: the name of the collective; None where nothing is sent."""

    kind: str | None = None

    def run(self, step, x, space, layer):
        """Move x, this rank's array, from the source of a Step to its target; returns the new array. Collective over the group.

        space: a function (name, shape, dtype) that returns a workspace. layer: the name under which the bytes are counted.
        """
        raise NotImplementedError

    def in_place(self, step, flat, space, layer):
        """Move within a whole flat array, in which a rank's part of a Shard has its place; other parts become undefined."""
        self.start(step, flat, space, layer).wait()

    def start(self, step, x, space, layer):
        """Begin `in_place` and return a Transfer. An Exchange works on arrays that are not flat: see there."""
        raise NotImplementedError

    def buffer(self, step):
        """(elements of this rank's send buffer, how many of them it keeps for itself)."""
        raise NotImplementedError

    def copies(self, step):
        """See `Step.copies`. Here all of an array is copied, unless its blocks for the ranks lie one after another."""
        return tuple(
            {prod(shape[shard.dim :]) // step.group.size: prod(shape)} if self.kind and shard.dim not in (None, 0) else {}
            for shard, shape in ((step.target, step.here), (step.source, step.there))
        )

    def held(self, step):
        """See `Step.held`."""
        packed, unpacked = self.copies(step)
        return prod(step.there) + sum(packed.values()) + sum(unpacked.values())

    def most(self, step):
        """See `Step.most`. It is 0 where the cost follows from what this rank sends."""
        return 0

    def messages(self, step):
        """See `Step.messages`. It is None unless each rank sends what is for one other rank to that rank alone."""
        return None


class AllGather(Move):
    kind = "all-gather"

    def run(self, step, x, space, layer):
        dim = step.source.dim
        shapes = [resized(step.here, dim, n) for n in step.outgoing.sizes]
        out = space("out", step.there, x.dtype)
        receive = lambda flat, counts: self.gather(step, x, flat, counts, layer)  # noqa: E731
        unpack(out, dim, step.outgoing.parts, shapes, space, receive)
        return out

    def gather(self, step, x, out, counts, layer):
        """Write the blocks of all ranks, counts[i] elements each, to `out` one after another."""
        step.group.all_gather(x, out, counts, layer)

    def in_place(self, step, flat, space, layer):
        step.group.all_gather_in_place(flat, step.lengths, layer)

    def start(self, step, flat, space, layer):
        return step.group.start_all_gather_in_place(flat, step.lengths, layer)

    def buffer(self, step):
        return prod(step.here), 0


class ReduceScatter(Move):
    kind = "reduce-scatter"

    def run(self, step, x, space, layer):
        blocks, counts = packed(x, step.target.dim, step.incoming.parts, space)
        out = space("out", step.there, x.dtype)
        step.group.reduce_scatter(blocks, out, counts, layer)
        return out

    def in_place(self, step, flat, space, layer):
        flat[step.incoming.part(step.group.rank)] = self.run(step, flat, space, layer)

    def start(self, step, flat, space, layer):
        return step.group.start_reduce_scatter(flat, step.lengths, space("out", step.there, flat.dtype), layer)

    def buffer(self, step):
        return prod(step.here), prod(step.there)


class AllReduce(Move):
    kind = "all-reduce"

    def run(self, step, x, space, layer):
        out = space("out", step.here, x.dtype)
        xp.copyto(out, x)
        step.group.all_reduce(out, layer)
        return out

    def in_place(self, step, flat, space, layer):
        step.group.all_reduce(flat, layer)

    def start(self, step, flat, space, layer):
        return step.group.start_all_reduce(flat, layer)

    def buffer(self, step):
        return prod(step.here), 0


class AllToAll(Move):
    kind = "all-to-all"

    def run(self, step, x, space, layer):
        source, target, mine = step.source.dim, step.target.dim, step.incoming.size(step.group.rank)
        blocks, counts = packed(x, target, step.incoming.parts, space)
        shapes = [resized(resized(step.here, target, mine), source, n) for n in step.outgoing.sizes]
        out = space("out", step.there, x.dtype)
        receive = lambda flat, received: step.group.all_to_all(blocks, counts, flat, received, layer)  # noqa: E731
        unpack(out, source, step.outgoing.parts, shapes, space, receive)
        return out

    def buffer(self, step):
        return prod(step.here), prod(resized(step.here, step.target.dim, step.incoming.size(step.group.rank)))

    def messages(self, step):
        counts = [prod(resized(step.here, step.target.dim, n)) for n in step.incoming.sizes]
        counts[step.group.rank] = 0
        return counts


class Exchange(Move):
    """Each rank is sent the elements that it needs and others hold, point to point; partial sums of an element are added.

    Halos, changes of the partition of one dimension, and owner maps are exchanges. `start` returns at once, so that computing
    can overlap; `finish` waits.
    """

    kind = "exchange"

    def run(self, step, x, space, layer):
        out = space("out", step.there, x.dtype)
        transfer = self.start(step, x, space, layer)
        self.keep(step, x, out)
        self.finish(step, transfer, out)
        return out

    def start(self, step, x, space, layer):
        """Start sending the parts of x that other ranks need, and receiving those that this rank needs.

        Returns a transfer, whose attribute `received` is the flat buffer for what arrives.
        """
        outgoing, incoming = self.counts(step, step.sent_parts), self.counts(step, step.received_parts)
        send, received = (space(name, (sum(c),), x.dtype) for name, c in (("send", outgoing), ("receive", incoming)))
        start = 0
        for rank, count in enumerate(outgoing):
            if count:
                self.pack(step, x, rank, send[start : start + count])
                start += count
        transfer = step.group.start_exchange(send, outgoing, received, incoming, layer)
        transfer.received = received
        return transfer

    def keep(self, step, x, out):
        """Copy the elements that this rank holds both before and after the exchange from x to out."""
        dim, kept = step.source.dim, step.sent_parts[step.group.rank]
        before, behind = step.outgoing.part(step.group.rank), step.incoming.part(step.group.rank)
        arrives = size(kept) if step.adds else sum(map(size, step.received_parts))
        if arrives < size(behind):  # zeros where partial sums are added, and where no rank holds the element
            out.fill(0)
        out[place_of(dim, positions(kept, behind))] = x[place_of(dim, positions(kept, before))]

    def finish(self, step, transfer, out):
        """Wait for the exchange, and copy what arrived into `out`, or add it where the ranks hold partial sums."""
        transfer.wait()
        start = 0
        for rank, count in enumerate(self.counts(step, step.received_parts)):
            if count:
                self.unpack(step, transfer.received[start : start + count], rank, out)
                start += count

    def pack(self, step, x, rank, message):
        """Copy what another rank needs of x into a message: a flat array."""
        block = x[place_of(step.source.dim, positions(step.sent_parts[rank], step.outgoing.part(step.group.rank)))]
        message.reshape(block.shape)[...] = block

    def unpack(self, step, message, rank, out):
        """Copy the message of another rank into `out`, or add it where the ranks hold partial sums."""
        dim, part = step.source.dim, step.received_parts[rank]
        block = message.reshape(resized(step.there, dim, size(part)))
        where = place_of(dim, positions(part, step.incoming.part(step.group.rank)))
        out[where] = out[where] + block if step.adds else block

    @staticmethod
    def counts(step, parts):
        """For each rank, the number of elements in the message that is exchanged with it."""
        return [0 if rank == step.group.rank else size(part) * step.row for rank, part in enumerate(parts)]

    def buffer(self, step):
        return exchanged(step.outgoing, step.incoming, step.group.rank)[0] * step.row, 0

    def held(self, step):
        return prod(step.there) + sum(sum(self.counts(step, parts)) for parts in (step.sent_parts, step.received_parts))

    def most(self, step):
        return exchanged(step.outgoing, step.incoming, step.group.rank)[1] * step.row

    def messages(self, step):
        return self.counts(step, step.sent_parts)

    def copies(self, step):
        """What is sent; and what is received or kept, of which sums are counted twice because they are read as well."""
        rank, behind = step.group.rank, prod(step.here[step.source.dim % len(step.here) + 1 :])
        packed, unpacked = Counter(), Counter()
        for other, (sent, received) in enumerate(zip(step.sent_parts, step.received_parts, strict=True)):
            times = 1 if other == rank else 1 + step.adds
            for copied, part, number in ((packed, sent, other != rank), (unpacked, received, times)):
                if number and size(part):
                    copied[behind * (size(part) if isinstance(part, slice) else 1)] += size(part) * step.row * number
        return packed, unpacked


def place_of(dim, part):
    """The index tuple that selects a part (a slice or an index array) of a dimension, on the device in use."""
    return along(dim, part if isinstance(part, slice) else to_device(part))


def packed(x, dim, parts, space):
    """(a flat send buffer, element counts): x cut along `dim` into one contiguous block for each of `parts`, in their order."""
    counts = [x.size // max(x.shape[dim], 1) * size(part) for part in parts]
    if dim == 0 and all(isinstance(part, slice) for part in parts):
        return x, counts
    flat = space("send", (x.size,), x.dtype)
    start = 0
    for part, count in zip(parts, counts, strict=True):
        block = x[place_of(dim, part)]
        flat[start : start + count].reshape(block.shape)[...] = block
        start += count
    return flat, counts


def unpack(out, dim, parts, shapes, space, receive):
    """Receive one block from each rank, and copy each to its part of `out` along `dim`.

    shapes: of the blocks. receive: a function (flat buffer, element counts) that receives all blocks one after another.
    """
    counts = [prod(shape) for shape in shapes]
    if dim == 0 and all(isinstance(part, slice) for part in parts):
        receive(out.reshape(-1), counts)
        return
    flat = space("receive", (sum(counts),), out.dtype)
    receive(flat, counts)
    start = 0
    for part, shape, count in zip(parts, shapes, counts, strict=True):
        out[place_of(dim, part)] = flat[start : start + count].reshape(shape)
        start += count


@lru_cache(maxsize=4096)
def exchanged(outgoing, incoming, rank):
    """(indices that this rank sends, the most indices that any rank sends or receives) in an exchange between two Partitions.

    Time and memory grow linearly with the length of the dimension and with the number of ranks that hold any index.
    """
    needed, held = copies_before(incoming), copies_before(outgoing)
    sent, most = 0, 0
    for other in range(max(outgoing.occupied, incoming.occupied)):
        before, behind = outgoing.part(other), incoming.part(other)
        kept = size(common(before, behind))
        sends, receives = copies_of(before, needed) - kept, copies_of(behind, held) - kept
        most = max(most, sends, receives)
        if other == rank:
            sent = sends
    return sent, most


def copies_before(partition):
    """For each i from 0 to the length of the dimension: how many copies the ranks together hold of the indices below i."""
    return np.concatenate(([0], np.cumsum(partition.holders)))


def copies_of(part, before):
    """How many copies the ranks together hold of the indices of a part. before: what `copies_before` returned."""
    if isinstance(part, slice):
        return int(before[part.stop] - before[part.start])
    return int((before[part + 1] - before[part]).sum())
