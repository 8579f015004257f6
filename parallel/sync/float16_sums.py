"""Sums of gradients that are sent in float16 and added in the arrays' own type, float32 or float64.

Each block is multiplied by a power of two before it is rounded to float16, so that its largest magnitude comes close to the
largest float16 number; the power is sent with the block. Then only magnitudes below 2^-39 of the block's largest are lost
(if that one is above 1e-33), and all others are rounded by at most 2^-11 of themselves.

In a reduce-scatter each rank adds the blocks that it receives for its part, in rank order; its own block is not rounded. An
all-reduce then sends the sums to the other ranks in the same format, which rounds them once more. So an element of the
result of an all-reduce differs from the exact sum of the elements g_r of the P ranks by at most

    2^-11 (sum_r |g_r| + |sum_r g_r|) + P 2^-39 max |g|,

and after a reduce-scatter by at most 2^-11 sum_r |g_r| + P 2^-39 max |g|. Half the bytes of float32 are sent.
"""

import math

import numpy as np

from gridgrad.parallel.grid.staging import Staging
from gridgrad.parallel.grid.transfer import Transfer
from gridgrad.parallel.placement.moves import AllReduce, Move, ReduceScatter
from gridgrad.parallel.placement.partition import Partition, size
from gridgrad.parallel.placement.placements import Replicate, Shard

HEADER = 2  # elements of 2 bytes in front of a block, which hold the block's scale as a float32
LARGEST = 15  # the scaled numbers are below 2^15; the largest float16 number is nearly 2^16


class Float16AllReduce(Move):
    """The row `Partial -> Replicate` for flat arrays, in float16. All ranks get the same result, bit by bit."""

    kind = AllReduce.kind

    def start(self, step, flat, space, layer):
        group, parts = step.group, Partition.even(flat.size, step.group.size).parts
        tags = group.next_tag(), group.next_tag()

        def steps():
            stage = Staging(direct=False)
            on_host = stage.outgoing(flat)
            yield from _reduce_scatter(group, on_host, parts, tags[0])
            records = [_record(part) for part in parts]
            mine = records[group.rank]
            _encode(on_host[parts[group.rank]], mine)
            yield group.point_to_point([mine] * group.size, records, tags[1])
            for part, record in zip(parts, records):  # its own part too, so that all ranks have the same rounded sums
                on_host[part] = _decode(record)
            stage.arrived(on_host, flat)

        others = size(parts[group.rank]) * (group.size - 1)
        return Transfer(group, layer, self.kind, _sent(group, parts) + 2 * others, steps())


class Float16ReduceScatter(Move):
    """The row `Partial -> Shard` for flat arrays, in float16."""

    kind = ReduceScatter.kind

    def start(self, step, flat, space, layer):
        group, parts, tag = step.group, step.incoming.parts, step.group.next_tag()

        def steps():
            stage = Staging(direct=False)
            on_host = stage.outgoing(flat)
            yield from _reduce_scatter(group, on_host, parts, tag)
            stage.arrived(on_host, flat)

        return Transfer(group, layer, self.kind, _sent(group, parts), steps())


FLOAT16_MOVES = {Replicate: Float16AllReduce(), Shard: Float16ReduceScatter()}  # {target: the row that sums in float16}


def _sent(group, parts):
    """The bytes of float16 numbers that this rank sends in a reduce-scatter; the scales are not counted."""
    return 2 * (sum(map(size, parts)) - size(parts[group.rank]))


def _reduce_scatter(group, array, parts, tag):
    """The steps of a reduce-scatter of a host array, for a Transfer."""
    mine = parts[group.rank]
    outgoing, incoming = [_record(part) for part in parts], [_record(mine) for _ in parts]
    for rank, part in enumerate(parts):
        if rank != group.rank:
            _encode(array[part], outgoing[rank])
    yield group.point_to_point(outgoing, incoming, tag)
    total = np.zeros(size(mine), array.dtype)
    for rank, record in enumerate(incoming):
        total += array[mine] if rank == group.rank else _decode(record)
    array[mine] = total


def _record(part):
    """An uninitialised message: a block of float16 numbers with its scale in front of it."""
    return np.empty(HEADER + size(part), np.uint16)


def _encode(block, record):
    """Write a block into a message, scaled and rounded."""
    largest = float(np.abs(block).max(initial=0))
    exponent = LARGEST - math.frexp(largest)[1] if 0 < largest < math.inf else 0  # inf and nan are sent as they are
    exponent = max(-126, min(exponent, 126))
    record[:HEADER].view(np.float32)[0] = 2.0**-exponent
    np.multiply(block, 2.0**exponent, out=record[HEADER:].view(np.float16), casting="unsafe")


def _decode(record):
    """The block that a message holds, in float32."""
    return record[HEADER:].view(np.float16).astype(np.float32) * record[:HEADER].view(np.float32)[0]
