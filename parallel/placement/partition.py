"""How the indices of one dimension are divided among the ranks of an axis: evenly, by weights, in groups, or by any owner map.

A part is a slice where its indices follow one another, else an increasing array of indices. Parts may be empty, and they may
overlap: then a rank holds copies of what others own, as the halo of a convolution does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import floor, isfinite

import numpy as np
from numpy.typing import ArrayLike

EMPTY = slice(0, 0)


class Partition:
    """A value that says for a dimension of `length` indices which of them each of `ranks` ranks holds.

    It is made by `even`, `weighted`, `of_sizes`, `owned`, `of`, `at_rank`, and from another one by `mapped` and `grouped`. It
    answers for any rank, without communication, and equal partitions compare equal however they were made.

    Examples
    --------
    >>> from gridgrad.parallel import Partition
    >>> seven = Partition.even(7, 3)
    >>> seven.sizes, seven.part(1), seven.owner(5)
    ([3, 2, 2], slice(3, 5, None), 2)
    >>> Partition.weighted(7, (5, 2)) == Partition.of_sizes([5, 2]) == Partition.owned([0, 0, 0, 0, 0, 1, 1], ranks=2)
    True
    """

    length: int
    ranks: int

    def part(self, rank: int) -> slice | np.ndarray:
        """The indices that a rank holds: a slice, or an increasing index array."""
        raise NotImplementedError

    def size(self, rank: int) -> int:
        """How many indices a rank holds."""
        return size(self.part(rank))

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
        for rank in range(self.ranks):
            if size(common(self.part(rank), slice(index, index + 1))):
                return rank
        return None

    def mapped(self, length: int, function: Callable[[slice | np.ndarray], slice | np.ndarray]) -> "Partition":
        """The Partition of another dimension, of `length` indices, in which each rank holds function(its part of this one),
        computed when it is asked for. The function must turn slices into slices, and an empty part into an empty one."""
        return _Mapped(self, length, function)

    def grouped(self, unit: int) -> "Partition":
        """The Partition of `unit` times as many indices where each index of this one stands for `unit` that stay together."""
        return Partition.of(self.length * unit, tuple(_times(part, unit) for part in self.parts))

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether all parts are slices, so that nothing is indexed."""
        return all(isinstance(part, slice) for part in self.parts)

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

    @property
    def occupied(self) -> int:
        """A bound on the ranks that hold anything: all ranks from this one on hold nothing."""
        return self.ranks

    def __eq__(self, other):
        if self is other:
            return True
        if not isinstance(other, Partition) or (self.length, self.ranks) != (other.length, other.ranks):
            return False
        return all(equal(self.part(rank), other.part(rank)) for rank in range(max(self.occupied, other.occupied)))

    def __hash__(self):
        return hash((self.length, self.ranks))

    def __repr__(self):
        sizes = [self.size(rank) for rank in range(min(self.ranks, 8))]
        return f"Partition({self.length} as {'+'.join(map(str, sizes))}{'+..' if self.ranks > 8 else ''})"

    @staticmethod
    @lru_cache(maxsize=4096)
    def even(length: int, ranks: int) -> "Partition":
        """Consecutive parts whose sizes differ by at most one, the larger ones first. ValueError for negative numbers."""
        if length < 0 or ranks < 1:
            raise ValueError(f"cannot split {length} things over {ranks} ranks")
        return _Even(length, ranks)

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
        return _AtRank(length, ranks, rank)

    @staticmethod
    def of(length: int, parts: Sequence[slice | np.ndarray]) -> "Partition":
        """The Partition of these parts: slices, or increasing index arrays. ValueError for indices outside the dimension."""
        return _Explicit(length, tuple(_inside(_normal(part), length) for part in parts))


class _Even(Partition):
    """Even parts, computed when they are asked for. unit: how many indices stay together."""

    is_contiguous = True

    def __init__(self, length, ranks, unit=1):
        self.length, self.ranks, self.unit = length, ranks, unit
        self.least, self.longer = divmod(length // unit, ranks)  # the first `longer` parts hold one unit more than `least`

    def part(self, rank):
        start, held = rank * self.least + min(rank, self.longer), self.least + (rank < self.longer)
        return slice(start * self.unit, (start + held) * self.unit) if held else EMPTY

    def size(self, rank):
        return (self.least + (rank < self.longer)) * self.unit

    @property
    def occupied(self):
        return min(self.ranks, self.length // self.unit)

    def grouped(self, unit):
        return _Even(self.length * unit, self.ranks, self.unit * unit)

    def __eq__(self, other):
        if isinstance(other, _Even) and self.unit == other.unit:
            return (self.length, self.ranks) == (other.length, other.ranks)
        return super().__eq__(other)

    __hash__ = Partition.__hash__


class _AtRank(Partition):
    """All indices are at one rank."""

    is_contiguous = True

    def __init__(self, length, ranks, rank):
        self.length, self.ranks, self.rank = length, ranks, rank

    def part(self, rank):
        return slice(0, self.length) if rank == self.rank and self.length else EMPTY

    @property
    def occupied(self):
        return self.rank + 1


class _Mapped(Partition):
    """Each part is computed from the part of another Partition, see `Partition.mapped`."""

    def __init__(self, base, length, function):
        self.base, self.length, self.ranks, self.function = base, length, base.ranks, function
        self._known = {}  # parts by rank: the planner asks for those of halos again and again

    def part(self, rank):
        if rank not in self._known:
            self._known[rank] = _inside(_normal(self.function(self.base.part(rank))), self.length)
        return self._known[rank]

    @property
    def occupied(self):
        return self.base.occupied

    @property
    def is_contiguous(self):
        return self.base.is_contiguous


class _Explicit(Partition):
    def __init__(self, length, parts):
        self.length, self.ranks, self._parts = length, len(parts), parts

    def part(self, rank):
        return self._parts[rank]


@dataclass(frozen=True)
class Split:
    """How a dimension whose length is not known yet, such as the samples of a minibatch, will be divided over `ranks` ranks."""

    ranks: int
    weights: tuple | None = None  # in proportion to which ranks get indices; None for even parts

    def __post_init__(self):
        if self.weights is not None:
            if len(self.weights) != self.ranks:
                raise ValueError(f"{len(self.weights)} weights for {self.ranks} ranks: give one for each rank")
            Partition.weighted(0, self.weights)  # refuses weights that are none

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
def exchanged(outgoing, incoming, rank):
    """(indices that this rank sends, the most that any rank sends or receives) in an exchange between two Partitions. Time and
    memory are linear in the length of the dimension and the number of ranks that hold any index."""
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
    """How many copies the ranks together hold of the indices of a part. before: a result of `copies_before`."""
    if isinstance(part, slice):
        return int(before[part.stop] - before[part.start])
    return int((before[part + 1] - before[part]).sum())


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
