"""How the indices of one dimension are divided among the ranks of an axis: evenly, by weights, in groups, or by any owner map.

A part is a slice where its indices follow one another, else an increasing array of indices. Parts may be empty, and they may
overlap: then a rank holds copies of what others own, as the halo of a convolution does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import accumulate
from math import floor, isfinite

import numpy as np
from numpy.typing import ArrayLike

EMPTY = slice(0, 0)


class Partition:
    """A value that says for a dimension of `length` indices which of them each of `ranks` ranks holds.

    It is made by `even`, `weighted`, `of_sizes`, `owned`, `of`, `at_rank`, and from another one by `mapped` and `grouped`. It
    answers for any rank, without communication, and equal partitions compare equal however they were made.

    Parameters
    ----------
    length, ranks : int
        Of indices and of ranks.
    part_of : function
        Of a rank, since a grid may have more ranks than one wants to list: its part, a slice or an increasing index array.
    occupied : int
        A bound on the ranks that hold anything: all ranks from this one on hold nothing.

    Examples
    --------
    >>> from gridgrad.parallel import Partition
    >>> seven = Partition.even(7, 3)
    >>> seven.sizes, seven.part(1), seven.owner(5)
    ([3, 2, 2], slice(3, 5, None), 2)
    >>> Partition.weighted(7, (5, 2)) == Partition.of_sizes([5, 2]) == Partition.owned([0, 0, 0, 0, 0, 1, 1], ranks=2)
    True
    """

    def __init__(self, length: int, ranks: int, part_of: Callable[[int], slice | np.ndarray], occupied: int) -> None:
        self.length, self.ranks, self.occupied, self._part_of = length, ranks, occupied, part_of

    def part(self, rank: int) -> slice | np.ndarray:
        """The indices that a rank holds: a slice, or an increasing index array."""
        return self._part_of(rank)

    def size(self, rank: int) -> int:
        """How many indices a rank holds."""
        return size(self._part_of(rank))

    def of_length(self, length: int) -> "Partition":
        """Itself: a Partition is a Split of one length."""
        return self

    @property
    def parts(self) -> list[slice | np.ndarray]:
        """The parts of all ranks, in rank order."""
        return [self.part(rank) for rank in range(self.ranks)]

    @property
    def sizes(self) -> list[int]:
        """How many indices each rank holds, in rank order."""
        return [self.size(rank) for rank in range(self.ranks)]

    def intersection(self, rank: int, other: "Partition", other_rank: int) -> slice | np.ndarray:
        """The indices that `rank` holds here and `other_rank` holds in the Partition `other`."""
        return common(self.part(rank), other.part(other_rank))

    def owner(self, index: int) -> int | None:
        """The first rank that holds an index; None if no rank does."""
        holding = (rank for rank in range(self.ranks) if size(common(self.part(rank), slice(index, index + 1))))
        return next(holding, None)

    def mapped(self, length: int, function: Callable[[slice | np.ndarray], slice | np.ndarray]) -> "Partition":
        """The Partition of another dimension, of `length` indices, in which each rank holds function(its part of this one),
        computed when it is asked for. The function must turn an empty part into an empty one."""

        @cache
        def part_of(rank):
            return _inside(_normal(function(self.part(rank))), length)

        return Partition(length, self.ranks, part_of, self.occupied)

    def grouped(self, unit: int) -> "Partition":
        """The Partition of `unit` times as many indices where each index of this one stands for `unit` that stay together."""
        return self.mapped(self.length * unit, lambda part: _times(part, unit))

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether all parts are slices, so that nothing is indexed."""
        return all(isinstance(self.part(rank), slice) for rank in range(self.occupied))

    @property
    def holders(self) -> np.ndarray:
        """For each index, how many ranks hold it: an array. Time and memory grow with the length and the occupied ranks."""
        counts = np.zeros(self.length, np.int64)
        for rank in range(self.occupied):
            counts[self.part(rank)] += 1
        return counts

    @property
    def is_exact_cover(self) -> bool:
        """Whether each index belongs to exactly one rank."""
        return bool((self.holders == 1).all())

    def __eq__(self, other):
        if self is other:
            return True
        if not isinstance(other, Partition) or (self.length, self.ranks) != (other.length, other.ranks):
            return False
        return all(equal(self.part(rank), other.part(rank)) for rank in range(max(self.occupied, other.occupied)))

    def __hash__(self):  # with the first part, else the rows that ranks own and those that they need with a halo would collide
        return hash((self.length, self.ranks, self.size(0)))

    def __reduce__(self):  # how it is pickled: functions can not be
        return Partition.of, (self.length, self.parts)

    def __repr__(self):
        sizes = [self.size(rank) for rank in range(min(self.ranks, 8))]
        return f"Partition({self.length} as {'+'.join(map(str, sizes))}{'+..' if self.ranks > 8 else ''})"

    @staticmethod
    @lru_cache(maxsize=4096)
    def even(length: int, ranks: int) -> "Partition":
        """Consecutive parts whose sizes differ by at most one, the larger ones first. ValueError for negative numbers."""
        if length < 0 or ranks < 1:
            raise ValueError(f"cannot split {length} things over {ranks} ranks")
        least, longer = divmod(length, ranks)  # the first `longer` parts hold one index more than `least`

        def part_of(rank):
            start, held = rank * least + min(rank, longer), least + (rank < longer)
            return slice(start, start + held) if held else EMPTY

        return Partition(length, ranks, part_of, min(ranks, length))

    @staticmethod
    @lru_cache(maxsize=4096)
    def weighted(length: int, weights: tuple[float, ...]) -> "Partition":
        """Consecutive parts whose sizes are proportional to `weights`, a tuple with one number of at least 0 for each rank.
        Sizes are rounded by the largest remainder. ValueError for weights that are negative, not finite, or all 0."""
        if not all(w >= 0 and isfinite(w) for w in weights) or sum(weights) <= 0:
            raise ValueError(f"weights {weights} must be finite, at least 0, and not all 0")
        exact = [length * w / sum(weights) for w in weights]
        sizes = [floor(e) for e in exact]
        by_remainder = sorted(range(len(weights)), key=lambda rank: (sizes[rank] - exact[rank], rank))
        for rank in by_remainder[: length - sum(sizes)]:
            sizes[rank] += 1
        return Partition.of_sizes(sizes)

    @staticmethod
    def of_sizes(sizes: Sequence[int]) -> "Partition":
        """Consecutive parts of these sizes, one for each rank."""
        return Partition.of(sum(sizes), tuple(slice(stop - n, stop) for stop, n in zip(accumulate(sizes), sizes)))

    @staticmethod
    def owned(owners: ArrayLike, ranks: int) -> "Partition":
        """Index i belongs to rank owners[i], as a hypergraph partitioner says. ValueError for an owner that is no rank."""
        owners = np.asarray(owners)
        if owners.ndim != 1 or owners.dtype.kind not in "iu" or owners.size and not 0 <= owners.min() <= owners.max() < ranks:
            raise ValueError(f"owners must be a list of ranks from 0 to {ranks - 1}")
        return Partition.of(len(owners), tuple(np.flatnonzero(owners == rank) for rank in range(ranks)))

    @staticmethod
    def at_rank(length: int, ranks: int, rank: int) -> "Partition":
        """One rank holds all indices, the others none."""
        everything = slice(0, length) if length else EMPTY
        return Partition(length, ranks, lambda other: everything if other == rank else EMPTY, rank + 1)

    @staticmethod
    def of(length: int, parts: Sequence[slice | np.ndarray]) -> "Partition":
        """The Partition of these parts: slices, or increasing index arrays. ValueError for indices outside the dimension."""
        found = [_inside(_normal(part), length) for part in parts]
        return Partition(length, len(found), found.__getitem__, len(found))


@dataclass(frozen=True)
class Split:
    """How a dimension whose length is not known yet, such as the samples of a minibatch, will be divided over `ranks` ranks."""

    ranks: int
    weights: tuple | None = None  # a number for each rank, in proportion to which it gets indices; None for even parts

    @staticmethod
    def at_rank(ranks, rank):
        """One rank gets all indices, the others none."""
        return Split(ranks, tuple(float(other == rank) for other in range(ranks)))

    def of_length(self, length):
        """The Partition of so many indices."""
        return Partition.even(length, self.ranks) if self.weights is None else Partition.weighted(length, self.weights)


def size(part: slice | np.ndarray) -> int:
    """How many indices a part holds."""
    return part.stop - part.start if isinstance(part, slice) else len(part)


def equal(a, b):
    if isinstance(a, slice) or isinstance(b, slice):  # the normal form of a part is unique
        return isinstance(a, slice) and isinstance(b, slice) and a == b
    return np.array_equal(a, b)


def common(a, b):
    """The indices that two parts have in common: an empty slice if there are none."""
    if isinstance(a, slice) and isinstance(b, slice):
        start, stop = max(a.start, b.start), min(a.stop, b.stop)
        return slice(start, stop) if stop > start else EMPTY
    return _normal(np.intersect1d(indices(a), indices(b), assume_unique=True))


def union(parts):
    if not any(map(size, parts)):
        return EMPTY
    return _normal(np.unique(np.concatenate([indices(part) for part in parts])))


def positions(part, held):
    """Where the indices of `part` lie in an array that holds those of `held`: a slice, or an index array."""
    if not size(part):
        return EMPTY
    if isinstance(part, slice) and isinstance(held, slice):
        return slice(part.start - held.start, part.stop - held.start)
    return _normal(np.searchsorted(indices(held), indices(part)))


def indices(part):
    return np.arange(part.start, part.stop) if isinstance(part, slice) else part


def within(part, inner):
    """The indices of the dimension that lie at the positions `inner` of what `part` holds."""
    if isinstance(part, slice) and isinstance(inner, slice):
        return slice(part.start + inner.start, part.start + inner.stop)
    return _normal(indices(part)[inner])


@lru_cache(maxsize=4096)
def most_exchanged(outgoing, incoming):
    """The most indices that any rank sends or receives in an exchange between two Partitions. Time and memory are linear in the
    length of the dimension and the number of ranks that hold any index."""
    # For each i, how many copies the ranks together hold of the indices below i.
    needed, held = (np.concatenate(([0], np.cumsum(partition.holders))) for partition in (incoming, outgoing))
    most = 0
    for rank in range(max(outgoing.occupied, incoming.occupied)):
        before, behind = outgoing.part(rank), incoming.part(rank)
        kept = size(common(before, behind))
        most = max(most, copies_of(before, needed) - kept, copies_of(behind, held) - kept)
    return most


def copies_of(part, below):
    """How many copies the ranks together hold of the indices of a part. below: for each i, of the indices below i."""
    if isinstance(part, slice):
        return int(below[part.stop] - below[part.start])
    return int((below[part + 1] - below[part]).sum())


def resized(shape, dim, length):
    shape = list(shape)
    shape[dim] = length
    return tuple(shape)


def _times(part, unit):
    if isinstance(part, slice):
        return slice(part.start * unit, part.stop * unit)
    return (part[:, None] * unit + np.arange(unit)).ravel()


def _normal(part):
    """The unique form of a part: a slice where the indices are consecutive, `EMPTY` if there are none, else an index array."""
    if isinstance(part, slice):
        return part if part.stop > part.start else EMPTY
    part = np.asarray(part, np.int64)
    if not len(part):
        return EMPTY
    if (np.diff(part) <= 0).any():
        raise ValueError("the indices of a part must increase")
    if part[-1] - part[0] + 1 == len(part):
        return slice(int(part[0]), int(part[-1]) + 1)
    return part


def _inside(part, length):
    """The part itself; ValueError if it has indices outside of a dimension of this length."""
    if size(part):
        first, last = (part.start, part.stop - 1) if isinstance(part, slice) else (int(part[0]), int(part[-1]))
        if first < 0 or last >= length:
            raise ValueError(f"a part reaches from {first} to {last}, outside of {length} indices")
    return part
