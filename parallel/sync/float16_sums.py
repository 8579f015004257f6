"""Sums of gradients that are sent in float16 and added in the arrays' own type, float32 or float64.

Each block is multiplied by a power of two, which is sent with it, so that its largest magnitude comes close to the largest
float16 number. A rank adds the blocks for its part in rank order, its own unrounded; an all-reduce sends the sums likewise.
With P ranks the result of an all-reduce differs from the exact sum of g_r by at most

    2^-11 (sum_r |g_r| + |sum_r g_r|) + P 2^-39 max |g|

(if max |g| is above 1e-33), that of a reduce-scatter by at most 2^-11 sum_r |g_r| + P 2^-39 max |g|.
"""

import math

import numpy as np

from gridgrad.parallel.grid.devices import Staging
from gridgrad.parallel.grid.group import Transfer
from gridgrad.parallel.placement.moves import Move
from gridgrad.parallel.placement.partition import Partition, size

HEADER = 2  # elements of 2 bytes in front of a block, which hold its scale as a float32; they are not counted as sent
LARGEST = 15  # the scaled numbers are below 2^15; the largest float16 number is nearly 2^16


class Float16Sum(Move):
    """The rows `Partial -> Replicate` and `Partial -> Shard` of flat arrays, in float16. All ranks get the same bits."""

    def start(self, flat, space, layer):
        group, whole = self.group, self.incoming is None
        parts = Partition.even(flat.size, group.size).parts if whole else self.incoming.parts
        own, tags = parts[group.rank], [group.next_tag() for _ in range(1 + whole)]

        def steps():
            stage = Staging(direct=False)
            array = stage.outgoing(flat)
            incoming = [np.empty(HEADER + size(own), np.uint16) for _ in parts]
            outgoing = [None if rank == group.rank else _encoded(array[part]) for rank, part in enumerate(parts)]
            yield group.point_to_point(outgoing, incoming, tags[0])
            total = np.zeros(size(own), array.dtype)
            for rank, message in enumerate(incoming):
                total += array[own] if rank == group.rank else _decoded(message)
            array[own] = total
            for tag in tags[1:]:  # of an all-reduce
                messages = [np.empty(HEADER + size(part), np.uint16) for part in parts]
                messages[group.rank] = mine = _encoded(total)
                yield group.point_to_point([mine] * group.size, messages, tag)
                for part, message in zip(parts, messages):  # its own part too, so that all ranks have the same rounded sums
                    array[part] = _decoded(message)
            stage.arrived(array, flat)

        sent = 2 * (sum(map(size, parts)) - size(own)) + whole * 2 * size(own) * (group.size - 1)
        return Transfer(group, layer, "all-reduce" if whole else "reduce-scatter", sent, steps)


def _encoded(block):
    """The message of a block, scaled and rounded."""
    message = np.empty(HEADER + block.size, np.uint16)
    largest = float(np.abs(block).max(initial=0))
    exponent = LARGEST - math.frexp(largest)[1] if 0 < largest < math.inf else 0  # inf and nan are sent as they are
    exponent = max(-126, min(exponent, 126))
    message[:HEADER].view(np.float32)[0] = 2.0**-exponent
    np.multiply(block, 2.0**exponent, out=message[HEADER:].view(np.float16), casting="unsafe")
    return message


def _decoded(message):
    """The block that a message holds, in float32."""
    return message[HEADER:].view(np.float16).astype(np.float32) * message[:HEADER].view(np.float32)[0]
