"""Moves of an array from one placement along an axis of the grid to another: the rows of the table in `move_table.py`.

Each Move says how it is executed, by which collective (`parallel/grid/collectives.py`, by the name in `kind`), and how many
elements a rank sends.
"""

from collections import Counter
from functools import cached_property, lru_cache
from itertools import accumulate
from math import prod

import numpy as np

from gridgrad.nn.device import to_device, xp
from gridgrad.nn.kernels.window import along
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.placement.partition import common, positions, resized, size
from gridgrad.parallel.placement.placements import PartialShard

MASTER = 0


class Move:
    """One move on one rank, for arrays of one shape. Each subclass is a row of the table.

    group: the ranks of the axis, anything with a `size` and a `rank`. source, target: placements. here: the shape of this
    rank's array before the move. samples: how many samples the ranks of the group hold together.

    kind: the name of the collective; None where nothing is sent. there: the shape of this rank's array after the move.
    outgoing, incoming: the Partition of the dimension that the source and the target shard; None where they shard none.
    """

    kind: str | None = None

    def __init__(self, group, source, target, here, samples):
        self.group, self.source, self.target, self.here = group, source, target, tuple(here)
        there = self.here
        self.outgoing = self.incoming = None
        if source.dim is not None:
            self.outgoing = source.partition_of(samples)
            there = resized(there, source.dim, self.outgoing.length)
        if target.dim is not None:
            self.incoming = target.partition_of(samples)
            there = resized(there, target.dim, self.incoming.size(group.rank))
        self.there = there

    def run(self, x, space, layer):
        """Move x, this rank's array; returns the new array. Collective over the group.

        space: a function (name, shape, dtype) that returns a workspace. layer: the name under which the bytes are counted.
        """
        raise NotImplementedError

    def in_place(self, flat, space, layer):
        """Move within a whole flat array, in which a rank's part of a Shard has its place; other parts become undefined."""
        self.start(flat, space, layer).wait()

    def start(self, x, space, layer):
        """Begin `in_place` and return a Transfer. An Exchange works on arrays that are not flat: see there."""
        raise NotImplementedError

    # ----- for the cost model, in elements

    @property
    def buffer(self):
        """(elements of this rank's send buffer, how many of them it keeps for itself)."""
        raise NotImplementedError

    @cached_property
    def sent(self):
        """Elements that this rank sends."""
        return 0 if self.kind is None else COLLECTIVES[self.kind].sent(self.group, *self.buffer)

    @property
    def most(self):
        """The most that any rank sends or receives, where ranks send different amounts: the move ends with the longest message.

        It is 0 where the cost follows from what this rank sends.
        """
        return 0

    @property
    def messages(self):
        """For each rank of the group, what this rank sends to it alone; None where all ranks work together."""
        return None

    @property
    def copies(self):
        """What is packed into message buffers, and what is unpacked from them: two dicts {length of a run: elements}.

        The elements of a run follow one another in memory. Here all of an array is copied, unless its blocks for the ranks lie
        one after another.
        """
        return tuple(
            {prod(shape[shard.dim :]) // self.group.size: prod(shape)} if self.kind and shard.dim not in (None, 0) else {}
            for shard, shape in ((self.target, self.here), (self.source, self.there))
        )

    @property
    def held(self):
        """Of the arrays that the move keeps: its output, and buffers of messages."""
        packed, unpacked = self.copies
        return prod(self.there) + sum(packed.values()) + sum(unpacked.values())

    # ----- for those that are carried out

    @cached_property
    def lengths(self):
        """For each rank, the length of its part of the dimension that either the source or the target shards."""
        return (self.incoming or self.outgoing).sizes

    @cached_property
    def sent_blocks(self):
        """The Blocks of this rank's array before the move, one for each rank."""
        return Blocks(self.here, self.target.dim, self.incoming.parts)

    @cached_property
    def received_blocks(self):
        """The Blocks of this rank's array after the move, one from each rank."""
        return Blocks(self.there, self.source.dim, self.outgoing.parts)

    @cached_property
    def adds(self):
        """Whether several ranks hold partial sums of one element."""
        return isinstance(self.source, PartialShard) and bool((self.outgoing.holders > 1).any())

    def indices(self, partition):
        """The indices that this rank holds in a Partition of the dimension; all of them where it is None."""
        return slice(0, (self.outgoing or self.incoming).length) if partition is None else partition.part(self.group.rank)


class Blocks:
    """How an array is cut along a dimension into one block for each rank, which follow one another in a flat buffer.

    shape: of the array. parts: the indices of the dimension in each block. counts: the elements of each block.
    """

    def __init__(self, shape, dim, parts):
        shapes = [resized(shape, dim, size(part)) for part in parts]
        self.counts = list(map(prod, shapes))
        self.is_flat = dim == 0 and all(isinstance(part, slice) for part in parts)  # so they lie in the array already
        stops = accumulate(self.counts)
        self.places = [] if self.is_flat else [
            (place_of(dim, part), slice(stop - count, stop), block)
            for part, stop, count, block in zip(parts, stops, self.counts, shapes, strict=True)
        ]  # fmt: skip

    def buffer(self, x, name, space):
        """A flat buffer for all blocks of an array: its own memory where they lie there one after another."""
        return x.reshape(-1) if self.is_flat else space(name, (sum(self.counts),), x.dtype)

    def pack(self, x, space):
        """The flat buffer with the blocks of x."""
        flat = self.buffer(x, "send", space)
        for place, where, shape in self.places:
            flat[where].reshape(shape)[...] = x[place]
        return flat

    def unpack(self, flat, out):
        """Copy each block to its place in `out`."""
        for place, where, shape in self.places:
            out[place] = flat[where].reshape(shape)


class AllGather(Move):
    kind = "all-gather"

    def run(self, x, space, layer):
        out, blocks = space("out", self.there, x.dtype), self.received_blocks
        arriving = blocks.buffer(out, "receive", space)
        self.gather(x, arriving, blocks.counts, layer)
        blocks.unpack(arriving, out)
        return out

    def gather(self, x, out, counts, layer):
        """Write the blocks of all ranks, counts[i] elements each, to `out` one after another."""
        self.group.all_gather(x, out, counts, layer)

    def in_place(self, flat, space, layer):
        self.group.all_gather_in_place(flat, self.lengths, layer)

    def start(self, flat, space, layer):
        return self.group.start_all_gather_in_place(flat, self.lengths, layer)

    @property
    def buffer(self):
        return prod(self.here), 0


class ReduceScatter(Move):
    kind = "reduce-scatter"

    def run(self, x, space, layer):
        out, blocks = space("out", self.there, x.dtype), self.sent_blocks
        self.group.reduce_scatter(blocks.pack(x, space), out, blocks.counts, layer)
        return out

    def in_place(self, flat, space, layer):
        flat[self.incoming.part(self.group.rank)] = self.run(flat, space, layer)

    def start(self, flat, space, layer):
        return self.group.start_reduce_scatter(flat, self.lengths, space("out", self.there, flat.dtype), layer)

    @property
    def buffer(self):
        return prod(self.here), prod(self.there)


class AllReduce(Move):
    kind = "all-reduce"

    def run(self, x, space, layer):
        out = space("out", self.here, x.dtype)
        xp.copyto(out, x)
        self.group.all_reduce(out, layer)
        return out

    def in_place(self, flat, space, layer):
        self.group.all_reduce(flat, layer)

    def start(self, flat, space, layer):
        return self.group.start_all_reduce(flat, layer)

    @property
    def buffer(self):
        return prod(self.here), 0


class AllToAll(Move):
    kind = "all-to-all"

    def run(self, x, space, layer):
        out, sent, received = space("out", self.there, x.dtype), self.sent_blocks, self.received_blocks
        arriving = received.buffer(out, "receive", space)
        self.group.all_to_all(sent.pack(x, space), sent.counts, arriving, received.counts, layer)
        received.unpack(arriving, out)
        return out

    @property
    def buffer(self):
        return prod(self.here), prod(resized(self.here, self.target.dim, self.incoming.size(self.group.rank)))

    @property
    def messages(self):
        counts = [prod(resized(self.here, self.target.dim, n)) for n in self.incoming.sizes]
        counts[self.group.rank] = 0
        return counts


class Exchange(Move):
    """Each rank is sent the elements that it needs and others hold, point to point; partial sums of an element are added.

    Halos, changes of the partition of one dimension, and owner maps are exchanges. `start` returns at once, so that computing
    can overlap; `finish` waits.
    """

    kind = "exchange"

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
    def sent_counts(self):
        """For each rank, the elements of the message to it."""
        return [0 if rank == self.group.rank else size(part) * self.row for rank, part in enumerate(self.sent_parts)]

    @cached_property
    def received_counts(self):
        """For each rank, the elements of the message from it."""
        return [0 if rank == self.group.rank else size(part) * self.row for rank, part in enumerate(self.received_parts)]

    @cached_property
    def row(self):
        """How many elements this rank's array has for one index of the dimension."""
        return prod(resized(self.here, self.source.dim, 1))

    def run(self, x, space, layer):
        out = space("out", self.there, x.dtype)
        transfer = self.start(x, space, layer)
        self.keep(x, out)
        self.finish(transfer, out)
        return out

    def start(self, x, space, layer):
        """Start sending the parts of x that other ranks need, and receiving those that this rank needs.

        Returns a transfer, whose attribute `received` is the flat buffer for what arrives.
        """
        outgoing, incoming = self.sent_counts, self.received_counts
        send, received = (space(name, (sum(c),), x.dtype) for name, c in (("send", outgoing), ("receive", incoming)))
        start = 0
        for rank, count in enumerate(outgoing):
            if count:
                self.pack(x, rank, send[start : start + count])
                start += count
        transfer = self.group.start_exchange(send, outgoing, received, incoming, layer)
        transfer.received = received
        return transfer

    def keep(self, x, out):
        """Copy the elements that this rank holds both before and after the exchange from x to out."""
        dim, kept = self.source.dim, self.sent_parts[self.group.rank]
        before, behind = self.outgoing.part(self.group.rank), self.incoming.part(self.group.rank)
        arrives = size(kept) if self.adds else sum(map(size, self.received_parts))
        if arrives < size(behind):  # zeros where partial sums are added, and where no rank holds the element
            out.fill(0)
        out[place_of(dim, positions(kept, behind))] = x[place_of(dim, positions(kept, before))]

    def finish(self, transfer, out):
        """Wait for the exchange, and copy what arrived into `out`, or add it where the ranks hold partial sums."""
        transfer.wait()
        start = 0
        for rank, count in enumerate(self.received_counts):
            if count:
                self.unpack(transfer.received[start : start + count], rank, out)
                start += count

    def pack(self, x, rank, message):
        """Copy what another rank needs of x into a message: a flat array."""
        block = x[place_of(self.source.dim, positions(self.sent_parts[rank], self.outgoing.part(self.group.rank)))]
        message.reshape(block.shape)[...] = block

    def unpack(self, message, rank, out):
        """Copy the message of another rank into `out`, or add it where the ranks hold partial sums."""
        dim, part = self.source.dim, self.received_parts[rank]
        block = message.reshape(resized(self.there, dim, size(part)))
        where = place_of(dim, positions(part, self.incoming.part(self.group.rank)))
        out[where] = out[where] + block if self.adds else block

    @property
    def buffer(self):
        return exchanged(self.outgoing, self.incoming, self.group.rank)[0] * self.row, 0

    @property
    def held(self):
        return prod(self.there) + sum(self.sent_counts) + sum(self.received_counts)

    @property
    def most(self):
        return exchanged(self.outgoing, self.incoming, self.group.rank)[1] * self.row

    @property
    def messages(self):
        return self.sent_counts

    @property
    def copies(self):
        """What is sent; and what is received or kept, of which sums are counted twice because they are read as well."""
        rank, behind = self.group.rank, prod(self.here[self.source.dim % len(self.here) + 1 :])
        packed, unpacked = Counter(), Counter()
        for other, (sent, received) in enumerate(zip(self.sent_parts, self.received_parts, strict=True)):
            times = 1 if other == rank else 1 + self.adds
            for copied, part, number in ((packed, sent, other != rank), (unpacked, received, times)):
                if number and size(part):
                    copied[behind * (size(part) if isinstance(part, slice) else 1)] += size(part) * self.row * number
        return packed, unpacked


class LocalMove(Move):
    """A move without memory of its own: its output is a part of what the rank has, or all of it."""

    @property
    def held(self):
        return 0


class TakePart(LocalMove):
    """A rank keeps some of the indices that it holds."""

    def run(self, x, space, layer):
        return x[place_of(self.target.dim, positions(self.incoming.part(self.group.rank), self.indices(self.outgoing)))]


class PutIntoZeros(Move):
    """The adjoint of TakePart: what was kept is put at its place in an array of zeros."""

    def run(self, x, space, layer):
        out = space("out", self.there, x.dtype)
        out.fill(0)
        out[place_of(self.source.dim, positions(self.outgoing.part(self.group.rank), self.indices(self.incoming)))] = x
        return out


class FirstRankKeeps(LocalMove):
    """All ranks have the array; as terms of a sum, the first one keeps it and the others have zeros."""

    def run(self, x, space, layer):
        return x if self.group.rank == 0 else xp.zeros_like(x)


class Unchanged(LocalMove):
    """What a rank holds is what it needs."""

    def run(self, x, space, layer):
        return x


class SameRank(LocalMove):
    """One rank holds the whole array before and after; the others hold nothing, in another shape."""

    def run(self, x, space, layer):
        return x if x.shape == self.there else xp.empty(self.there, x.dtype)


class MasterMove(Move):
    """Through the master, the first rank: it sends or receives all that is sent. A rank that needs nothing is sent nothing."""

    def whole_row(self, dim):
        """How many elements the whole array has for one index of a dimension."""
        whole = resized(resized(self.here, self.source.dim, self.outgoing.length), self.target.dim, self.incoming.length)
        return prod(resized(whole, dim, 1))

    def through_master(self, parts, dim):
        """Elements that the master sends or receives if the other ranks hold `parts`, a Partition of the dimension `dim`."""
        return self.whole_row(dim) * (sum(parts.sizes) - parts.size(MASTER))


class HandOut(MasterMove):
    """The master, which has the whole array, sends each rank its part of the target. No rank sends anything else."""

    kind = "hand out"

    def run(self, x, space, layer):
        group, dim, parts = self.group, self.target.dim, self.incoming.parts
        if group.rank != MASTER:
            out = space("out", self.there, x.dtype)
            group.start_point_to_point(empties(x, group), [out, *empties(x, group)[1:]], layer, self.kind).wait()
            return out
        blocks = [x if size(part) == x.shape[dim] else x[place_of(dim, part)] for part in parts]
        sent = [block if block is x else self._packed(block, space, f"to {rank}") for rank, block in enumerate(blocks)]
        group.start_point_to_point(sent, empties(x, group), layer, self.kind).wait()
        return sent[MASTER]

    @staticmethod
    def _packed(block, space, name):
        packed = space(name, block.shape, block.dtype)
        packed[...] = block
        return packed

    @property
    def held(self):
        return self.most if self.group.rank == MASTER else prod(self.there)

    @property
    def buffer(self):
        return self.most if self.group.rank == MASTER else 0, 0

    @property
    def most(self):
        return self.through_master(self.incoming, self.target.dim)

    @property
    def messages(self):
        row = self.whole_row(self.target.dim) if self.group.rank == MASTER else 0
        return [0, *(row * n for n in self.incoming.sizes[1:])]


class HandIn(MasterMove):
    """Each rank sends its part of the source to the master, which joins them, or adds them where they overlap."""

    kind = "hand in"

    def run(self, x, space, layer):
        group, dim, parts = self.group, self.source.dim, self.outgoing.parts
        out = space("out", self.there, x.dtype)
        if group.rank != MASTER:
            group.start_point_to_point([x, *empties(x, group)[1:]], empties(x, group), layer, self.kind).wait()
            return out
        shapes = [resized(self.there, dim, size(part)) for part in parts]
        blocks = [x, *(space(f"of {rank}", shape, x.dtype) for rank, shape in enumerate(shapes) if rank != MASTER)]
        group.start_point_to_point(empties(x, group), blocks, layer, self.kind).wait()
        if self.adds:
            out.fill(0)
        for part, block in zip(parts, blocks, strict=True):
            if not size(part):  # a rank without kernels has no samples either, so that its block does not fit
                continue
            where = place_of(dim, part)
            if self.adds:
                out[where] += block
            else:
                out[where] = block
        return out

    @property
    def held(self):
        return prod(self.there) + (self.most if self.group.rank == MASTER else 0)

    @property
    def buffer(self):
        rank = self.group.rank
        return 0 if rank == MASTER else self.whole_row(self.source.dim) * self.outgoing.size(rank), 0

    @property
    def most(self):
        return self.through_master(self.outgoing, self.source.dim)

    @property
    def messages(self):
        return [self.buffer[0], *[0] * (self.group.size - 1)]


def empties(x, group):
    """An empty array for each rank: nothing is sent there, or received from there."""
    return [x.reshape(-1)[:0]] * group.size


def place_of(dim, part):
    """The index tuple that selects a part (a slice or an index array) of a dimension, on the device in use."""
    return along(dim, part if isinstance(part, slice) else to_device(part))


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
