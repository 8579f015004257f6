"""Sums of gradients that travel in float16 and are added in float32.

A block is sent as float16 numbers times a power of two, chosen so that its largest number comes close to the largest of
float16: only what is below 2^-39 of the largest is lost (of blocks whose largest is above 1e-33), and the rest is rounded by
at most 2^-11 of itself. Each rank adds up its part of the sum, in rank order, in the arrays' own type, its own addend
unrounded; an all-reduce rounds the sum once more on its way to the others. So an element of the result differs from the
exact sum of addends g_r by at most

    2^-11 (sum_r |g_r| + |sum_r g_r|) + P 2^-39 max |g|,

and after a reduce-scatter by the first and last terms alone. Half the bytes of float32 travel.
"""

import math

import numpy as np

from parallel.grid.transfer import Transfer
from parallel.placement.partition import Partition, size

HEADER = 2  # elements in front of a block, that hold its scale as a float32
LARGEST = 15  # the scaled numbers are below 2^15


def start_float16_all_reduce(group, array, layer):
    """Begin to sum a host array over the group, in place; the same numbers on every rank: a Transfer."""
    parts, tags = Partition.even(array.size, group.size).parts, (group.next_tag(), group.next_tag())

    def steps():
        yield from _reduce_scatter(group, array, parts, tags[0])
        records = [_record(part) for part in parts]
        mine = records[group.rank]
        _encode(array[parts[group.rank]], mine)
        yield group.point_to_point([mine] * group.size, records, tags[1])
        for part, record in zip(parts, records):  # the own part too: all ranks hold what was rounded
            array[part] = _decode(record)

    others = size(parts[group.rank]) * (group.size - 1)
    return Transfer(group, layer, "all-reduce", _sent(group, parts) + 2 * others, steps())


def start_float16_reduce_scatter(group, array, layer):
    """Begin to sum this rank's part of a host array, in an even partition of it, over the group, in its place: a Transfer."""
    parts = Partition.even(array.size, group.size).parts
    steps = _reduce_scatter(group, array, parts, group.next_tag())
    return Transfer(group, layer, "reduce-scatter", _sent(group, parts), steps)


def _sent(group, parts):
    return 2 * (sum(map(size, parts)) - size(parts[group.rank]))


def _reduce_scatter(group, array, parts, tag):
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
    """Room for a block of float16 numbers, with its scale in front."""
    return np.empty(HEADER + size(part), np.uint16)


def _encode(block, record):
    largest = float(np.abs(block).max(initial=0))
    exponent = LARGEST - math.frexp(largest)[1] if 0 < largest < math.inf else 0  # what is not finite stays so
    exponent = max(-126, min(exponent, 126))
    record[:HEADER].view(np.float32)[0] = 2.0**-exponent
    np.multiply(block, 2.0**exponent, out=record[HEADER:].view(np.float16), casting="unsafe")


def _decode(record):
    return record[HEADER:].view(np.float16).astype(np.float32) * record[:HEADER].view(np.float32)[0]
