"""The table of moves: how an array is brought from one placement along an axis of the grid to another.

Each row is a class of Move, which says how it is executed, by which collective (`kind`, a name in
`parallel/grid/collectives.py`), and how many elements a rank sends. `MOVES` at the end is the table; "marques" adds the rows of
its master. Training, the sums of gradients, the byte formulas, the cost model and the planner all use it.
"""

from collections import Counter
from functools import cached_property, lru_cache
from itertools import accumulate
from math import prod
from typing import Any

from gridgrad.nn.device import to_device, xp
from gridgrad.nn.kernels.window import along
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.group import Group
from gridgrad.parallel.grid.process_grid import GroupDescription
from gridgrad.parallel.placement.partition import common, most_exchanged, positions, resized, size
from gridgrad.parallel.placement.placements import AtRank, Copies, Invariant, Partial, PartialShard, Replicate, Shard


class Move:
    """One move on one rank, for arrays of one shape: `here` before the move and `there` after it. group: anything with a `size`
    and a `rank`. source, target: placements. samples: those that the group holds together."""

    kind: str | None = None  # the name of the collective; None where nothing is sent
    most = 0  # elements of the rank that sends or receives most, for which all wait; 0: the cost follows from `sent`
    messages = None  # [what this rank sends to each rank alone]; None where all ranks work together

    def __init__(self, group, source, target, here, samples):
        self.group, self.source, self.target, self.here = group, source, target, tuple(here)
        there = self.here
        self.outgoing = self.incoming = None  # the Partitions of the dimensions that the source and the target shard
        if source.dim is not None:
            self.outgoing = source.partition_of(samples)
            there = resized(there, source.dim, self.outgoing.length)
        if target.dim is not None:
            self.incoming = target.partition_of(samples)
            there = resized(there, target.dim, self.incoming.size(group.rank))
        self.there = there

    def run(self, x, space, layer):
        """Move x, this rank's array; returns the new one. Collective. space: a Workspace. layer: the name in the tally."""
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
        return prod(self.here), 0

    @cached_property
    def sent(self):
        return 0 if self.kind is None else COLLECTIVES[self.kind].sent(self.group, *self.buffer)

    @property
    def copies(self):
        """What is packed into message buffers, and unpacked from them: two dicts {length of a run in memory: elements}. Here
        all of an array is copied, unless its blocks for the ranks lie one after another."""
        return tuple(
            {prod(shape[shard.dim :]) // self.group.size: prod(shape)} if self.kind and shard.dim not in (None, 0) else {}
            for shard, shape in ((self.target, self.here), (self.source, self.there))
        )

    @property
    def held(self):
        """What the move keeps: its output, and buffers of messages."""
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

    def inside(self, dim, inner, outer):
        """The index of this rank's part of the Partition `inner` in an array of its part of `outer`, or of all if None."""
        rank = self.group.rank
        held = slice(0, inner.length) if outer is None else outer.part(rank)
        return index_of(dim, positions(inner.part(rank), held))


class Blocks:
    """How an array of a shape is cut along a dimension into `parts`, one for each rank, which lie in a flat buffer. own: where
    given, the rank whose block stays in the array; the buffer then has memory of its own even where the blocks lie in order."""

    def __init__(self, shape, dim, parts, own=None):
        lengths = list(map(size, parts))
        self.row = prod(resized(shape, dim, 1))  # elements for one index of the dimension
        self.kept = None if own is None else index_of(dim, parts[own])
        self.counts = [0 if rank == own else length * self.row for rank, length in enumerate(lengths)]
        self.total, ends = sum(self.counts), accumulate(lengths)
        in_order = all(not size(part) or isinstance(part, slice) and part.stop == end for part, end in zip(parts, ends))
        self.is_flat = own is None and dim == 0 and self.total == prod(shape) and in_order
        stops, self.cuts = accumulate(self.counts), {}  # {rank: (index in the array, slice of the buffer, shape)}
        for rank, (part, stop, count) in enumerate(zip(parts, stops, self.counts, strict=True)):
            if count and not self.is_flat:
                self.cuts[rank] = index_of(dim, part), slice(stop - count, stop), resized(shape, dim, lengths[rank])

    def pack(self, x, space):
        """The flat buffer with the blocks of x: its own memory where they lie there one after another."""
        if self.is_flat:
            return x.reshape(-1)
        flat = space("send", (self.total,), x.dtype)
        for index, where, shape in self.cuts.values():
            flat[where].reshape(shape)[...] = x[index]
        return flat

    def unpack(self, flat, out, adds=False):
        """Copy each block to its place in `out`, or add it there."""
        for index, where, shape in self.cuts.values():
            block = flat[where].reshape(shape)
            out[index] = out[index] + block if adds else block

    def pack_one(self, x, rank, message):
        """Copy the block of one rank into a message of its own."""
        index, _, shape = self.cuts[rank]
        message.reshape(shape)[...] = x[index]

    def unpack_one(self, message, rank, out, adds=False):
        """Copy the message of one rank to its place in `out`, or add it there."""
        index, _, shape = self.cuts[rank]
        block = message.reshape(shape)
        out[index] = out[index] + block if adds else block


class AllGather(Move):
    kind = "all-gather"
    gather = staticmethod(Group.all_gather)  # what brings the blocks of all ranks one after another

    def run(self, x, space, layer):
        out, blocks = space("out", self.there, x.dtype), self.received_blocks
        arriving = out if blocks.is_flat else space("receive", (blocks.total,), x.dtype)
        self.gather(self.group, x, arriving, blocks.counts, layer)
        blocks.unpack(arriving, out)
        return out

    def in_place(self, flat, space, layer):
        self.group.all_gather(flat, flat, self.lengths, layer)

    def start(self, flat, space, layer):
        return self.group.start_all_gather_in_place(flat, self.lengths, layer)


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


class AllToAll(Move):
    kind = "all-to-all"

    def run(self, x, space, layer):
        out, sent, received = space("out", self.there, x.dtype), self.sent_blocks, self.received_blocks
        arriving = out if received.is_flat else space("receive", (received.total,), x.dtype)
        self.group.all_to_all(sent.pack(x, space), sent.counts, arriving, received.counts, layer)
        received.unpack(arriving, out)
        return out

    @property
    def buffer(self):
        return prod(self.here), self._count(self.group.rank)

    @property
    def messages(self):
        return [0 if rank == self.group.rank else self._count(rank) for rank in range(self.group.size)]

    def _count(self, rank):
        """The elements of the block for a rank."""
        return prod(resized(self.here, self.target.dim, self.incoming.size(rank)))


@lru_cache(maxsize=512)  # the planner asks for those of a halo with every number of samples and channels
def common_parts(partition, other, rank):
    """For each rank, the indices that it has in `other` and this rank has in `partition`: those of the whole dimension, and
    where they lie in what this rank holds."""
    held = partition.part(rank)
    found = [common(held, part) for part in other.parts]
    return found, [positions(part, held) for part in found]


class Exchange(Move):
    """Each rank is sent the elements that it needs and others hold, point to point; partial sums of an element are added.
    Halos, changes of a partition and owner maps are exchanges. Computing can overlap between `start` and `finish`."""

    kind = "exchange"

    def __init__(self, group, source, target, here, samples):
        super().__init__(group, source, target, here, samples)
        # For each rank, the indices of the whole dimension that this rank sends to it, and receives from it; its own it keeps.
        self.sent_parts, self._sent_positions = common_parts(self.outgoing, self.incoming, group.rank)
        self.received_parts, self._received_positions = common_parts(self.incoming, self.outgoing, group.rank)

    @cached_property
    def sent_blocks(self):
        return Blocks(self.here, self.source.dim, self._sent_positions, own=self.group.rank)

    @cached_property
    def received_blocks(self):
        return Blocks(self.there, self.source.dim, self._received_positions, own=self.group.rank)

    @cached_property
    def has_gaps(self):
        """Whether `out` must begin with zeros: where partial sums are added, and where no rank holds an element."""
        arrives = size(self.sent_parts[self.group.rank]) if self.adds else sum(map(size, self.received_parts))
        return arrives < self.incoming.size(self.group.rank)

    def run(self, x, space, layer):
        out = space("out", self.there, x.dtype)
        transfer = self.start(x, space, layer)
        self.keep(x, out)
        self.finish(transfer, out)
        return out

    def start(self, x, space, layer):
        """Begin to send what other ranks need of x, and to receive what this rank needs; returns the Transfer."""
        sent, received = self.sent_blocks, self.received_blocks
        arriving = space("receive", (received.total,), x.dtype)
        transfer = self.group.start_exchange(sent.pack(x, space), sent.counts, arriving, received.counts, layer)
        transfer.received = arriving
        return transfer

    def keep(self, x, out):
        """Copy the elements that this rank holds both before and after the exchange from x to out."""
        if self.has_gaps:
            out.fill(0)
        out[self.received_blocks.kept] = x[self.sent_blocks.kept]

    def finish(self, transfer, out):
        """Wait for the exchange, and copy what arrived into `out`, or add it where the ranks hold partial sums."""
        transfer.wait()
        self.received_blocks.unpack(transfer.received, out, self.adds)

    @property
    def messages(self):
        return self.sent_blocks.counts

    @property
    def buffer(self):
        return self.sent_blocks.total, 0

    @property
    def most(self):
        return most_exchanged(self.outgoing, self.incoming) * self.sent_blocks.row

    @property
    def held(self):
        return prod(self.there) + self.sent_blocks.total + self.received_blocks.total

    @property
    def copies(self):
        """As in Move: what is sent; and what is received or kept, of which sums are counted twice, since they are read too."""
        rank, row, behind = self.group.rank, self.sent_blocks.row, prod(self.here[self.source.dim % len(self.here) + 1 :])
        packed, unpacked = Counter(), Counter()
        for other, (sent, received) in enumerate(zip(self.sent_parts, self.received_parts, strict=True)):
            if other != rank and (count := size(sent)):
                packed[behind * (count if isinstance(sent, slice) else 1)] += count * row
            if count := size(received):
                times = 1 if other == rank else 1 + self.adds
                unpacked[behind * (count if isinstance(received, slice) else 1)] += count * row * times
        return packed, unpacked


class TakePart(Move):
    """A rank keeps some of the indices that it holds."""

    held = 0  # the output is a view of the input

    @cached_property
    def part(self):
        return self.inside(self.target.dim, self.incoming, self.outgoing)

    def run(self, x, space, layer):
        return x[self.part]


class PutIntoZeros(Move):
    """The adjoint of TakePart: what was kept is put at its place in an array of zeros."""

    @cached_property
    def part(self):
        return self.inside(self.source.dim, self.outgoing, self.incoming)

    def run(self, x, space, layer):
        out = space("out", self.there, x.dtype)
        out.fill(0)
        out[self.part] = x
        return out


class FirstRankKeeps(Move):
    """All ranks have the array; as terms of a sum, the first one keeps it and the others have zeros."""

    held = 0

    def run(self, x, space, layer):
        return x if self.group.rank == 0 else xp.zeros_like(x)


class Unchanged(Move):
    """What a rank holds is what it needs. Where one rank has the whole array, the others get an empty one of another shape."""

    held = 0

    def run(self, x, space, layer):
        return x if x.shape == self.there else xp.empty(self.there, x.dtype)


def index_of(dim, part):
    """The index tuple that selects a part (a slice or an index array) of a dimension, on the device in use."""
    return along(dim, part if isinstance(part, slice) else to_device(part))


MOVES: dict[tuple, type[Move]] = {  # {(source, target): row}; backward is the row of their adjoints, the other way round
    (Shard, Replicate): AllGather,  # backward Partial -> Shard
    (Partial, Shard): ReduceScatter,
    (Partial, Replicate): AllReduce,
    (Shard, Shard): AllToAll,  # of another dimension; of the same one it is an Exchange
    # halos and needed channels
    (Shard, Copies): Exchange,  # backward PartialShard -> Shard
    (PartialShard, Shard): Exchange,
    # of what a rank holds already
    (Copies, Shard): TakePart,  # backward Shard -> PartialShard
    (Shard, PartialShard): PutIntoZeros,
    (Copies, Copies): TakePart,
    (PartialShard, PartialShard): PutIntoZeros,
    (Replicate, Shard): TakePart,  # backward Shard -> Partial
    (Shard, Partial): PutIntoZeros,
    (Replicate, Copies): TakePart,
    (PartialShard, Partial): PutIntoZeros,
    (Replicate, Partial): FirstRankKeeps,
    # Invariant: all ranks have the whole gradient
    (Shard, Invariant): AllGather,  # backward Invariant -> Shard, without communication
    (Invariant, Shard): TakePart,
    (Partial, Invariant): AllReduce,  # backward Invariant -> Replicate
    (Invariant, Replicate): Unchanged,
    (Replicate, Invariant): Unchanged,
    (Invariant, Partial): FirstRankKeeps,
    # one rank holds all
    (Shard, AtRank): Unchanged,
    (AtRank, Shard): Unchanged,
    # the rows of AtMaster are in `parallel/plans/marques.py`
}


def move_of(source: Any, target: Any) -> type[Move]:
    """The row of the table for two placements; KeyError if there is none."""
    key = type(source), type(target)
    return Exchange if key == (Shard, Shard) and source.dim == target.dim else MOVES[key]


def move_between(group, source, target, here, samples=None):
    """The Move from one placement to another by the row of the table, with the arguments of Move; KeyError without a row."""
    return move_of(source, target)(group, source, target, here, samples)


def elements_sent(source, target, samples, shape, group_size):
    """Elements that all ranks of a group together send in one move of `samples` samples, each of this shape as a whole."""
    if source == target or group_size == 1:
        return 0
    whole, total = (samples, *shape), 0
    for rank in range(group_size):
        here = whole
        if source.dim is not None:
            here = resized(whole, source.dim, source.partition_of(samples).size(rank))
        total += move_between(GroupDescription(group_size, rank), source, target, here, samples).sent
    return total
