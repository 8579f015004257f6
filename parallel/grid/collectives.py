"""The collectives that ranks take part in: one row each, which everything that knows of communication reads.

Running counts the bytes of a row (`parallel/grid/group.py`), the cost model prices them with its rounds, a trace asks it for
whom a rank waits, and the calibration times its trial. Bytes are what a rank must *send* in a bandwidth-optimal algorithm
(Thakur et al. 2005; the beta terms of Gholami et al. 2018), summed over the group they are exact whatever the sizes of the
blocks: `parallel/placement/volume.py` has the closed forms.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Collective:
    """One row.

    sent(group, elements, own): the elements that a rank of `group` sends (anything with a `size` and a `rank`). elements:
    of its send buffer; own: those of them that are for itself.
    rounds(ranks): messages that follow one another in the algorithm of least latency.
    needs(place): the slice of the ranks of its group that must have come before the rank at `place` can leave.
    trial(group, length): a function that runs it once with `length` float32 numbers, for the calibration; None if it is not
    calibrated.
    """

    sent: Callable
    rounds: Callable
    needs: Callable
    trial: Callable | None = None


def all_reduce_elements(elements, ranks, rank):
    """What one rank sends in an all-reduce: the blocks of the others, and then its own block to each of them."""
    own = elements // ranks + (rank < elements % ranks)
    return elements - own + own * (ranks - 1)


def logarithm(ranks):
    """The logarithm of base 2, rounded up."""
    return (ranks - 1).bit_length()


def everyone(place):
    return slice(None)


def first(place):
    return slice(0, 1)


def only_the_first_waits(place):
    return slice(None) if place == 0 else slice(place, place + 1)


def neighbours(place):
    return slice(max(0, place - 1), place + 2)


def even(length, group):
    """The counts of an even split, and a rank's own."""
    counts = [length // group.size + (rank < length % group.size) for rank in range(group.size)]
    return counts, counts[group.rank]


def zeros(length):
    return np.zeros(length, np.float32)


def try_all_reduce(group, length):
    array = zeros(length)
    return lambda: group.all_reduce(array, "calibration")


def try_all_gather(group, length):
    (counts, own), out = even(length, group), zeros(length)
    block = zeros(own)
    return lambda: group.all_gather(block, out, counts, "calibration")


def try_reduce_scatter(group, length):
    (counts, own), blocks = even(length, group), zeros(length)
    out = zeros(own)
    return lambda: group.reduce_scatter(blocks, out, counts, "calibration")


def try_all_to_all(group, length):
    counts, own = even(length, group)
    blocks, received = zeros(length), [own] * group.size
    out = zeros(sum(received))
    return lambda: group.all_to_all(blocks, counts, out, received, "calibration")


def try_exchange(group, length):
    """With the neighbour on each side, as height shards exchange their borders."""
    counts = [length // 2 if abs(rank - group.rank) == 1 else 0 for rank in range(group.size)]
    blocks, out = zeros(sum(counts)), zeros(sum(counts))
    return lambda: group.start_exchange(blocks, counts, out, counts, "calibration").wait()


def all_but_own(group, elements, own):
    return elements - own


def to_all_others(group, elements, own):
    return elements * (group.size - 1)


COLLECTIVES = {
    "all-reduce": Collective(
        lambda group, elements, own: all_reduce_elements(elements, group.size, group.rank),
        lambda ranks: 2 * logarithm(ranks), everyone, try_all_reduce),
    "all-gather": Collective(to_all_others, logarithm, everyone, try_all_gather),
    "reduce-scatter": Collective(all_but_own, logarithm, everyone, try_reduce_scatter),
    "all-to-all": Collective(all_but_own, logarithm, everyone, try_all_to_all),
    "exchange": Collective(all_but_own, lambda ranks: min(2, ranks - 1), neighbours, try_exchange),
    "broadcast": Collective(
        lambda group, elements, own: 0 if group.rank else elements * (group.size - 1), logarithm, first),
    "scatter": Collective(lambda group, elements, own: 0 if group.rank else elements - own, logarithm, first),
    "gather": Collective(lambda group, elements, own: elements if group.rank else 0, logarithm, only_the_first_waits),
    "shared sum": Collective(lambda group, elements, own: elements - own, logarithm, everyone),
    "barrier": Collective(lambda group, elements, own: 0, logarithm, everyone),
}  # fmt: skip
