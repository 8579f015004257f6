"""Which elements of the global arrays each rank writes, and how they are put together again for other ranks.

A *piece* is a range of the elements, in C order, of one block of a global array. Of an array that is laid out as the flat
buffers each element is written once in a worker: the ranks that have it divide it evenly.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
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

    @staticmethod
    def whole(layer, array):
        """The whole block that this rank has of a Parameter or Buffer of a layer."""
        return Piece(f"{layer.name}.{array.name}", tuple(array.shape), array.index, 0, array.size)

    def blocks(self):
        """Yields the blocks of the global array that it consists of, (a part for each dimension, elements before it)."""
        first = 0
        for box in boxes(self.start, self.stop, sizes(self.block)):
            yield tuple(map(within, self.block, box)), first
            first += prod(sizes(box))


def sizes(block):
    return tuple(map(size, block))


def boxes(start, stop, shape):
    """The elements from `start` to `stop`, in C order, of an array of a shape as boxes, in that order: tuples of slices."""
    if not shape and start < stop:
        yield ()
        return
    row = prod(shape[1:])
    while start < stop:
        number, inside = divmod(start, row)
        if inside or stop - start < row:  # a part of one row
            end = min(stop, (number + 1) * row)
            for box in boxes(inside, end - number * row, shape[1:]):
                yield slice(number, number + 1), *box
        else:
            end = stop // row * row
            yield slice(number, end // row), *(slice(0, length) for length in shape[1:])
        start = end


def pieces_of(net, slices):
    """[Piece] of the parameters that lie in some slices of the flat buffers, in the order of the slices."""
    found = []
    for where in slices:
        for layer, p, place in net.reduction.places:
            if size(part := common(where, place)):
                found.append(replace(Piece.whole(layer, p), start=part.start - place.start, stop=part.stop - place.start))
    return found


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
    ends, found = sorted({end for theirs in everyone for interval in theirs for end in interval}), []
    for first, last in everyone[rank]:
        for start, stop in pairwise(end for end in ends if first <= end <= last):
            holders = [one for one, theirs in enumerate(everyone) if any(a <= start and stop <= b for a, b in theirs)]
            part = Partition.even(stop - start, len(holders)).part(holders.index(rank))
            if size(part):
                found.append((start + part.start, start + part.stop))
    return found


def position_in(slices, where):
    """Where a slice of the flat buffers lies in an array that holds `slices` of them in a row; one of them contains it."""
    before = 0
    for held in slices:
        if held.start <= where.start and where.stop <= held.stop:
            return slice(before + where.start - held.start, before + where.stop - held.start)
        before += size(held)


def fill(out, wanted, sources):
    """Fill a flat array of zeros with the elements of a Piece; what no source has stays 0.
    sources: [(Piece of the same array, function that returns its elements)], all of one shape, which may be another one for
    the same elements in the same order."""
    shape = sources[0][0].shape if sources else wanted.shape
    if shape != wanted.shape:
        whole = [Piece(wanted.array, one, tuple(slice(0, length) for length in one), 0, prod(one))
                 for one in (shape, wanted.shape)]  # fmt: skip
        elements = np.zeros(len(whole[0]), out.dtype)
        fill(elements, whole[0], sources)
        sources = [(whole[1], lambda: elements)]
    for block, first in wanted.blocks():
        inside = out[first : first + prod(sizes(block))].reshape(sizes(block))
        for piece, read in sources:
            for theirs, before in piece.blocks():
                shared = tuple(map(common, theirs, block))
                if all(sizes(shared)):
                    there = read()[before : before + prod(sizes(theirs))].reshape(sizes(theirs))
                    taken = take(there, tuple(map(positions, shared, theirs)))
                    put(inside, tuple(map(positions, shared, block)), taken)
