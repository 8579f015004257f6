"""The table of collectives, with one row for each kind: for counting bytes, the cost model, traces and the calibration.

Bytes are those that a rank must *send* in a bandwidth-optimal algorithm (Thakur, Rabenseifner and Gropp 2005; the beta terms of
Gholami et al. 2018). Their sum over the group is exact for blocks of any sizes; closed forms are in
`experiments/common/byte_formulas.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from types import SimpleNamespace

import numpy as np

CALIBRATION = "calibration"  # the name of trials in the tally


@dataclass(frozen=True)
class Collective:
    """What is known of one kind of collective."""

    # (group, elements, own): the elements that this rank of a group sends, which has a `size` and a `rank`. elements: the
    # length of its send buffer. own: how many of them it keeps for itself.
    sent: Callable
    rounds: Callable  # (ranks): the messages that follow one another in the algorithm with the lowest latency
    needs: Callable  # (rank): the slice of the ranks that must have entered it before this rank can leave it
    through_first: bool = False  # whether all messages begin or end at the first rank, which sends or receives all bytes


@lru_cache(maxsize=4096)
def all_reduce_elements(elements, ranks, rank):
    """The elements that one rank sends in an all-reduce: a reduce-scatter of even blocks, then an all-gather of the sums."""
    own = elements // ranks + (rank < elements % ranks)
    return elements - own + own * (ranks - 1)


@lru_cache(maxsize=4096)
def sent_by_rank(kind, elements, own, ranks, rank):
    """The elements that one rank sends in a collective of a kind: see `Collective.sent`."""
    return COLLECTIVES[kind].sent(SimpleNamespace(size=ranks, rank=rank), elements, own)


def rounded_up_log2(ranks):
    """The logarithm of base 2 of a number of ranks, rounded up."""
    return (ranks - 1).bit_length()


def everyone(rank):
    """All ranks must have entered the collective before any of them can leave it."""
    return slice(None)


def first(rank):
    """Every rank needs the first one, which has the data."""
    return slice(0, 1)


def only_the_first_waits(rank):
    """The first rank needs all; the others need nobody but themselves."""
    return slice(None) if rank == 0 else slice(rank, rank + 1)


def all_but_own(group, elements, own):
    """The elements sent where every rank sends its buffer without its own block, in parts, to the others."""
    return elements - own


COLLECTIVES = {
    "all-reduce": Collective(
        lambda group, elements, own: all_reduce_elements(elements, group.size, group.rank),
        lambda ranks: 2 * rounded_up_log2(ranks), everyone),
    "all-gather": Collective(lambda group, elements, own: elements * (group.size - 1), rounded_up_log2, everyone),
    "reduce-scatter": Collective(all_but_own, rounded_up_log2, everyone),
    "all-to-all": Collective(all_but_own, rounded_up_log2, everyone),
    "exchange": Collective(all_but_own, lambda ranks: min(2, ranks - 1),
        lambda rank: slice(max(0, rank - 1), rank + 2)),  # with those next to it
    "broadcast": Collective(
        lambda group, elements, own: 0 if group.rank else elements * (group.size - 1), rounded_up_log2, first),
    "scatter": Collective(lambda group, elements, own: 0 if group.rank else elements - own, rounded_up_log2, first,
        through_first=True),
    "gather": Collective(lambda group, elements, own: elements if group.rank else 0, rounded_up_log2, only_the_first_waits,
        through_first=True),
    "hand out": Collective(all_but_own, lambda ranks: ranks - 1, first, through_first=True),  # one message to each other rank
    "hand in": Collective(all_but_own, lambda ranks: ranks - 1, only_the_first_waits, through_first=True),
    "shared sum": Collective(all_but_own, rounded_up_log2, everyone),
    "barrier": Collective(lambda group, elements, own: 0, rounded_up_log2, everyone),
}  # fmt: skip

# ----- for the calibration

zeros = partial(np.zeros, dtype=np.float32)
TRIALS = {  # {kind: (group, counts, own): the method of a Group that runs it, and what it takes before the name}
    "all-reduce": lambda group, counts, own: (group.all_reduce, zeros(sum(counts))),
    "all-gather": lambda group, counts, own: (group.all_gather, zeros(own), zeros(sum(counts)), counts),
    "reduce-scatter": lambda group, counts, own: (group.reduce_scatter, zeros(sum(counts)), zeros(own), counts),
    "all-to-all": lambda group, counts, own: (
        group.all_to_all, zeros(sum(counts)), counts, zeros(own * len(counts)), [own] * len(counts)),
}  # fmt: skip
CALIBRATED = *TRIALS, "exchange"


def trial(kind, group, length):
    """A function that runs a collective of a kind once, with `length` numbers of float32 in all, evenly split."""
    if kind == "exchange":  # half of them with the neighbour on each side, as in the halo exchange of height shards
        counts = [length // 2 if abs(rank - group.rank) == 1 else 0 for rank in range(group.size)]
        blocks, out = zeros(sum(counts)), zeros(sum(counts))
        return lambda: group.start_exchange(blocks, counts, out, counts, CALIBRATION).wait()
    counts = [length // group.size + (rank < length % group.size) for rank in range(group.size)]
    return partial(*TRIALS[kind](group, counts, counts[group.rank]), CALIBRATION)
