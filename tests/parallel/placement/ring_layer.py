"""A communicating layer that the project does not have, all of it in this file: an all-gather as a ring of messages.

In each round every rank passes the block that came last on to its neighbour. Two rows make it known: `COLLECTIVE` under `KIND`
in the table of collectives, and `PLAN` in that of plans. See test_plans.py.
"""

from functools import partial
from math import prod

from gridgrad.parallel.grid.collectives import CALIBRATION, Collective, all_but_own, even_counts, everyone, zeros
from gridgrad.parallel.grid.devices import staging
from gridgrad.parallel.grid.group import Call
from gridgrad.parallel.placement.moves import AllGather, move_of
from gridgrad.parallel.placement.partition import resized
from gridgrad.parallel.placement.redistribute import Redistribute
from gridgrad.parallel.plans.plans import ShardOutputs

KIND = "ring all-gather"


def ring_all_gather(group, block, out, counts, layer):
    """Concatenate the blocks of all ranks, counts[i] elements each, into `out`, in P - 1 rounds."""
    starts = [sum(counts[:rank]) for rank in range(group.size)]
    after, before, tag = (group.rank + 1) % group.size, (group.rank - 1) % group.size, group.next_tag()
    out = out.reshape(-1)
    out[starts[group.rank] : starts[group.rank] + block.size] = block.reshape(-1)
    with Call(group, KIND, layer, all_but_own(group, out.size, counts[after]) * out.itemsize):
        reached = staging.outgoing(out)
        blocks = [reached[start : start + count] for start, count in zip(starts, counts, strict=True)]
        for turn in range(group.size - 1):
            given, taken = (group.rank - turn) % group.size, (before - turn) % group.size
            group.comm.Sendrecv(blocks[given], after, tag, blocks[taken], before, tag)
        staging.arrived(reached, out)


class RingAllGather(AllGather):
    kind = KIND
    gather = staticmethod(ring_all_gather)

    @property
    def buffer(self):
        after = (self.group.rank + 1) % self.group.size  # the owner of the one block that this rank does not pass on
        return prod(self.there), self._elements(self.outgoing.size(after))

    @property
    def most(self):
        return prod(self.there) - self._elements(min(self.outgoing.sizes))

    def _elements(self, length):
        return prod(resized(self.there, self.source.dim, length))


class RingRedistribute(Redistribute):
    """A Redistribute whose all-gathers are rings."""

    @staticmethod
    def move_of(source, target):
        row = move_of(source, target)
        return RingAllGather if row is AllGather else row


def trial(group, length):
    counts = even_counts(length, group)
    return partial(ring_all_gather, group, zeros(counts[group.rank]), zeros(length), counts, CALIBRATION)


COLLECTIVE = Collective(all_but_own, lambda ranks: ranks - 1, everyone, trial)


class RingOutputs(ShardOutputs):
    word, move = "ring", RingRedistribute


PLAN = RingOutputs()
