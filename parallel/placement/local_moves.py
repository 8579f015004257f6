"""Moves that send nothing: each rank makes its array from what it holds itself."""

from gridgrad.nn.device import xp
from gridgrad.parallel.placement.moves import Move, place_of
from gridgrad.parallel.placement.partition import positions


class LocalMove(Move):
    """A move without memory of its own: its output is a part of what the rank has, or all of it."""

    def held(self, step):
        return 0


class TakePart(LocalMove):
    """A rank keeps some of the indices that it holds."""

    def run(self, step, x, space, layer):
        return x[place_of(step.target.dim, positions(step.incoming.part(step.group.rank), held(step, step.outgoing)))]


class PutIntoZeros(Move):
    """The adjoint of TakePart: what was kept is put at its place in an array of zeros."""

    def run(self, step, x, space, layer):
        out = space("out", step.there, x.dtype)
        out.fill(0)
        out[place_of(step.source.dim, positions(step.outgoing.part(step.group.rank), held(step, step.incoming)))] = x
        return out


def held(step, partition):
    """The indices that this rank holds in a Partition of the dimension; all of them where it is None."""
    return slice(0, (step.outgoing or step.incoming).length) if partition is None else partition.part(step.group.rank)


class FirstRankKeeps(LocalMove):
    """All ranks have the array; as terms of a sum, the first one keeps it and the others have zeros."""

    def run(self, step, x, space, layer):
        return x if step.group.rank == 0 else xp.zeros_like(x)


class Unchanged(LocalMove):
    """What a rank holds is what it needs."""

    def run(self, step, x, space, layer):
        return x


class SameRank(LocalMove):
    """One rank holds the whole array before and after; the others hold nothing, in another shape."""

    def run(self, step, x, space, layer):
        return x if x.shape == step.there else xp.empty(step.there, x.dtype)
