"""One function splits n things over p ranks: evenly, or by weights. Empty parts are legal."""

from functools import lru_cache
from itertools import accumulate
from math import floor, isfinite


@lru_cache(maxsize=4096)
def split(n, parts, weights=None):
    """`parts` consecutive slices that cover range(n), as a tuple.

    n: how many things, at least 0. parts: over how many ranks, at least 1.
    weights: a tuple with one number of at least 0 a rank; sizes are proportional to them, rounded by the largest
    remainder. Without weights the sizes differ by at most one, the larger ones first.
    Raises ValueError for sizes out of range or weights that do not fit.
    """
    if n < 0 or parts < 1:
        raise ValueError(f"cannot split {n} things over {parts} ranks")
    if weights is None:
        sizes = [n // parts + (rank < n % parts) for rank in range(parts)]
    else:
        if len(weights) != parts:
            raise ValueError(f"{len(weights)} weights for {parts} ranks: give one a rank")
        if not all(w >= 0 and isfinite(w) for w in weights) or sum(weights) <= 0:
            raise ValueError(f"weights {weights} must be finite, at least 0, and not all 0")
        exact = [n * w / sum(weights) for w in weights]
        sizes = [floor(e) for e in exact]
        by_remainder = sorted(range(parts), key=lambda rank: (sizes[rank] - exact[rank], rank))
        for rank in by_remainder[: n - sum(sizes)]:
            sizes[rank] += 1
    return tuple(slice(stop - size, stop) for stop, size in zip(accumulate(sizes), sizes))


def size(part):
    """How many things a part of `split` holds."""
    return part.stop - part.start


def common(a, b):
    """What two slices have in common: an empty slice if nothing."""
    start, stop = max(a.start, b.start), min(a.stop, b.stop)
    return slice(start, stop) if stop > start else slice(0, 0)


def resized(shape, dim, length):
    """`shape` with another length of one dimension."""
    shape = list(shape)
    shape[dim] = length
    return tuple(shape)
