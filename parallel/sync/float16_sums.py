"""Sums of gradients that are sent in float16 and added in the arrays' own type, float32 or float64.

Each block is multiplied by a power of two, which is sent with it, so that its largest magnitude comes close to the largest
float16 number. A rank adds the blocks for its part in rank order, its own unrounded; an all-reduce sends the sums likewise.
So with P ranks the result of an all-reduce differs from the exact sum of g_r by at most

    2^-11 (sum_r |g_r| + |sum_r g_r|) + P 2^-39 max |g|

(if max |g| is above 1e-33), that of a reduce-scatter by at most 2^-11 sum_r |g_r| + P 2^-39 max |g|.
"""

import math

import numpy as np

from gridgrad.parallel.grid.devices import Staging
from gridgrad.parallel.grid.group import Transfer
from gridgrad.parallel.placement.moves import AllReduce, Move, ReduceScatter
from gridgrad.parallel.placement.partition import Partition, size
from gridgrad.parallel.placement.placements import Replicate, Shard

HEADER = 2  # elements of 2 bytes in front of a block, which hold its scale as a float32; they are not counted as sent
LARGEST = 15  # the scaled numbers are below 2^15; the largest float16 number is nearly 2^16


class Float16Shards(Move):
    """A row `Partial -> Shard` or, where `whole`, `Partial -> Replicate`, for flat arrays. All ranks get the same bits."""

    kind, whole = ReduceScatter.kind, False

    def start(self, flat, space, layer):
        group = self.group
        parts = Partition.even(flat.size, group.size).parts if self.whole else self.incoming.parts
        own, tags = parts[group.rank], [group.next_tag() for _ in range(1 + self.whole)]
        sent = 2 * (sum(map(size, parts)) - size(own)) + self.whole * 2 * size(own) * (group.size - 1)
        return Transfer(group, layer, self.kind, sent, self._steps(group, flat, parts, own, tags))

    def _steps(self, group, flat, parts, own, tags):
        stage = Staging(direct=False)
        array = stage.outgoing(flat)
        incoming = [_record(size(own)) for _ in parts]
        outgoing = [None if rank == group.rank else _encoded(array[part]) for rank, part in enumerate(parts)]
        yield group.point_to_point(outgoing, incoming, tags[0])
        total = np.zeros(size(own), array.dtype)
        for rank, record in enumerate(incoming):
            total += array[own] if rank == group.rank else _decode(record)
        array[own] = total
        if self.whole:
            records = [_record(size(part)) for part in parts]
            records[group.rank] = mine = _encoded(total)
            yield group.point_to_point([mine] * group.size, records, tags[1])
            for part, record in zip(parts, records):  # its own part too, so that all ranks have the same rounded sums
                array[part] = _decode(record)
        stage.arrived(array, flat)


class Float16Sums(Float16Shards):
    kind, whole = AllReduce.kind, True


FLOAT16_MOVES = {Replicate: Float16Sums, Shard: Float16Shards}  # {target: the row that sums in float16}


def _record(length):
    """An uninitialised message: a block of float16 numbers with its scale in front of it."""
    return np.empty(HEADER + length, np.uint16)


def _encoded(block):
    """The message of a block, scaled and rounded."""
    record = _record(block.size)
    largest = float(np.abs(block).max(initial=0))
    exponent = LARGEST - math.frexp(largest)[1] if 0 < largest < math.inf else 0  # inf and nan are sent as they are
    exponent = max(-126, min(exponent, 126))
    record[:HEADER].view(np.float32)[0] = 2.0**-exponent
    np.multiply(block, 2.0**exponent, out=record[HEADER:].view(np.float16), casting="unsafe")
    return record


def _decode(record):
    """The block that a message holds, in float32."""
    return record[HEADER:].view(np.float16).astype(np.float32) * record[:HEADER].view(np.float32)[0]
