"""Which elements of the global arrays each rank writes, and how they are put together again for other ranks.

A *piece* is a range of the elements, in C order, of one block of a global array. Of an array that is laid out as the flat
buffers each element is written once in a worker. Where all ranks that hold a run of parameters have the same elements, each
writes an even part of them; where they have different ones, such as the states of a sharded optimizer, each writes those that
no lower rank has.
"""

from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np

from gridgrad.nn.kernels.window import put, take
from gridgrad.parallel.placement.partition import Partition, common, positions, size, within


@dataclass(frozen=True)
class Piece:
    """Some elements of one block of a global array."""

    array: str  # its name
    shape: tuple  # of the global array
    block: tuple  # for each dimension a slice or an increasing index array
    start: int  # the elements of the block, counted in C order
    stop: int

    def __len__(self):
        return self.stop - self.start

    @property
    def block_shape(self):
        return tuple(map(size, self.block))

    def blocks(self):
        """Yields the blocks of the global array that it consists of, (a part for each dimension, elements before it)."""
        first = 0
        for box in boxes(self.start, self.stop, self.block_shape):
            yield tuple(map(within, self.block, box)), first
            first += prod(map(size, box))


def boxes(start, stop, shape):
    """The elements from `start` to `stop`, in C order, of an array of a shape as boxes, in that order: tuples of slices."""
    if start >= stop:
        return
    if not shape:
        yield ()
        return
    row = prod(shape[1:])
    first, last = -(-start // row), stop // row  # the rows that are whole

    def within_row(number, start, stop):
        inside = boxes(start - number * row, stop - number * row, shape[1:])
        return ((slice(number, number + 1), *box) for box in inside)

    if first > last:
        yield from within_row(last, start, stop)
        return
    yield from within_row(first - 1, start, first * row)
    if first < last:
        yield (slice(first, last), *(slice(0, length) for length in shape[1:]))
    yield from within_row(last, last * row, stop)


def written_slices(net, slices):
    """{path: slices of the flat buffers that this rank writes} of {path: those that it has}, alike on all ranks. Collective."""
    found = {path: [] for path in slices}
    for group, run in net.reduction.copies:
        mine = {path: [(part.start - run.start, part.stop - run.start) for where in some if size(part := common(where, run))]
                for path, some in slices.items()}  # fmt: skip
        everyone = group.comm.allgather(mine)
        for path, written in found.items():
            shared = share([theirs[path] for theirs in everyone], group.rank)
            written += [slice(run.start + start, run.start + stop) for start, stop in shared]
    return found


def share(everyone, rank):
    """What a rank writes, [(start, stop)], so that one rank writes each element. everyone: [what each rank has]."""
    mine = everyone[rank]
    if all(theirs == mine for theirs in everyone):
        return even_share(mine, len(everyone), rank)
    for theirs in everyone[:rank]:
        for start, stop in theirs:
            mine = [rest for interval in mine for rest in without(interval, start, stop)]
    return mine


def even_share(intervals, ranks, rank):
    """The part of some intervals that a rank has if all elements are divided evenly."""
    part = Partition.even(sum(stop - start for start, stop in intervals), ranks).part(rank)
    found, before = [], 0
    for start, stop in intervals:
        first, last = max(part.start - before, 0), min(part.stop - before, stop - start)
        if first < last:
            found.append((start + first, start + last))
        before += stop - start
    return found


def without(interval, start, stop):
    """What remains of an interval without the elements from `start` to `stop`: up to two intervals."""
    return [(a, b) for a, b in ((interval[0], min(interval[1], start)), (max(interval[0], stop), interval[1])) if a < b]


def pieces_of(net, slices):
    """[Piece] of the parameters that lie in some slices of the flat buffers, in the order of the slices."""
    parts = parts_of(net, slices)
    return [Piece(f"{layer.name}.{p.name}", p.shape, p.index, part.start, part.stop) for layer, p, part in parts]


def parts_of(net, slices):
    """Yields (layer, parameter, slice of its flat block) of what lies in some slices of the flat buffers, in their order."""
    for where in slices:
        for layer, p, place in net.reduction.places:
            part = common(where, place)
            if size(part):
                yield layer, p, slice(part.start - place.start, part.stop - place.start)


def taken(slices, some):
    """Where `some` slices of the flat buffers lie in an array that holds `slices` of them one after another: a list of slices.
    Each of `some` is within one of `slices`."""
    starts, found = [0, *accumulate(map(size, slices))], []
    for wanted in some:
        for start, where in zip(starts, slices):
            part = common(where, wanted)
            if size(part):
                found.append(slice(start + part.start - where.start, start + part.stop - where.start))
    return found


def pieces_of_buffers(net):
    """[(number in net.buffers, Piece)] of the buffers that this rank writes: whole blocks."""
    found = []
    for number, (layer, buffer) in enumerate(net.buffers):
        if buffer.layout.is_counted(net.grid.coordinates) and buffer.size:
            found.append((number, Piece(f"{layer.name}.{buffer.name}", buffer.shape, buffer.index, 0, buffer.size)))
    return found


def assemble(shape, block, dtype, pieces):
    """A block of a global array of a shape, from [(Piece, function that returns its elements)]; what no piece has is 0.
    The arrays of the pieces may have another shape, with the same elements in the same order."""
    if any(piece.shape != tuple(shape) for piece, _ in pieces):
        stored = pieces[0][0].shape
        whole = assemble(stored, tuple(slice(0, length) for length in stored), dtype, pieces)
        return take(whole.reshape(shape), block)
    out = np.zeros(tuple(map(size, block)), dtype)
    for piece, read in pieces:
        for theirs, first in piece.blocks():
            shared = tuple(map(common, theirs, block))
            if all(map(size, shared)):
                elements = read()[first : first + prod(map(size, theirs))].reshape(tuple(map(size, theirs)))
                put(out, tuple(map(positions, shared, block)), take(elements, tuple(map(positions, shared, theirs))))
    return out
