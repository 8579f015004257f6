"""Integer shares that minimise the time of the slowest rank, exactly."""

import numpy as np


def fastest_shares(seconds):
    """The integer shares of all ranks with the least time of the slowest one: a list whose sum is `total`.

    seconds: for each rank an array of total + 1 numbers: the seconds that it takes for each share from 0 to `total`, computing
    and communicating. They may rise and fall in any way; infinity says that the rank can not have that share.
    Of several shares that are equally fast, those with the smallest sum of squared times are taken, so that ranks which need
    not be slow are not.
    Raises ValueError if no shares are possible.

    It is dynamic programming over the ranks, in O(ranks total^2): the least time in which the ranks from r on can compute a sum
    of s is the least over n of the longer one of rank r with n and of the ranks behind it with s - n.
    """
    seconds = np.array(seconds, np.float64)
    slowest = combined(seconds, np.maximum)[0][-1]
    if not np.isfinite(slowest):
        raise ValueError("no shares are possible: the largest shares that the ranks can have do not add up to the whole")
    squares = np.where(seconds <= slowest, np.square(seconds), np.inf)
    best = combined(squares, np.add)
    shares, rest = [], seconds.shape[1] - 1
    for own, behind in zip(squares, best[1:], strict=True):
        shares.append(int(np.argmin(own[: rest + 1] + behind[rest::-1])))
        rest -= shares[-1]
    return shares


def combined(costs, combine):
    """best[r, s]: the least cost of the ranks from r on for shares with the sum s. The last row is of no rank.

    costs: (ranks, total + 1). combine: an elementwise function of the cost of one rank
    and the cost of others, which returns the cost of all of them together.
    """
    ranks, sums = costs.shape
    best = np.full((ranks + 1, sums), np.inf)
    best[ranks, 0] = 0.0
    for rank in reversed(range(ranks)):
        own, behind, here = costs[rank], best[rank + 1], best[rank]
        for share in np.flatnonzero(np.isfinite(own)):
            np.minimum(here[share:], combine(own[share], behind[: sums - share]), out=here[share:])
    return best
