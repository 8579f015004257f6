"""Moves through the master, the first rank of a group: it hands out what the others need, and they hand in what they have.

Everything that is sent is sent or received by the master, point to point. A rank that needs nothing is sent nothing.
"""

from math import prod

from gridgrad.parallel.placement.moves import Move, place_of
from gridgrad.parallel.placement.partition import resized, size

MASTER = 0


class HandOut(Move):
    """The master, which has the whole array, sends each rank its part of the target. No rank sends anything else."""

    kind = "hand out"

    def run(self, step, x, space, layer):
        group, dim, parts = step.group, step.target.dim, step.incoming.parts
        if group.rank != MASTER:
            out = space("out", step.there, x.dtype)
            group.start_point_to_point(empties(x, group), [out, *empties(x, group)[1:]], layer, self.kind).wait()
            return out
        blocks = [x if size(part) == x.shape[dim] else x[place_of(dim, part)] for part in parts]
        sent = [block if block is x else self._packed(block, space, f"to {rank}") for rank, block in enumerate(blocks)]
        group.start_point_to_point(sent, empties(x, group), layer, self.kind).wait()
        return sent[MASTER]

    @staticmethod
    def _packed(block, space, name):
        packed = space(name, block.shape, block.dtype)
        packed[...] = block
        return packed

    def held(self, step):
        return self.most(step) if step.group.rank == MASTER else prod(step.there)

    def buffer(self, step):
        return self.most(step) if step.group.rank == MASTER else 0, 0

    def most(self, step):
        return through_master(step, step.incoming, step.target.dim)

    def messages(self, step):
        row = elements(step, step.target.dim) if step.group.rank == MASTER else 0
        return [0, *(row * n for n in step.incoming.sizes[1:])]


class HandIn(Move):
    """Each rank sends its part of the source to the master, which joins them, or adds them where they overlap."""

    kind = "hand in"

    def run(self, step, x, space, layer):
        group, dim, parts = step.group, step.source.dim, step.outgoing.parts
        out = space("out", step.there, x.dtype)
        if group.rank != MASTER:
            group.start_point_to_point([x, *empties(x, group)[1:]], empties(x, group), layer, self.kind).wait()
            return out
        shapes = [resized(step.there, dim, size(part)) for part in parts]
        blocks = [x, *(space(f"of {rank}", shape, x.dtype) for rank, shape in enumerate(shapes) if rank != MASTER)]
        group.start_point_to_point(empties(x, group), blocks, layer, self.kind).wait()
        if step.adds:
            out.fill(0)
        for part, block in zip(parts, blocks, strict=True):
            if not size(part):  # a rank without kernels has no samples either, so that its block does not fit
                continue
            where = place_of(dim, part)
            if step.adds:
                out[where] += block
            else:
                out[where] = block
        return out

    def held(self, step):
        return prod(step.there) + (self.most(step) if step.group.rank == MASTER else 0)

    def buffer(self, step):
        rank = step.group.rank
        return 0 if rank == MASTER else elements(step, step.source.dim) * step.outgoing.size(rank), 0

    def most(self, step):
        return through_master(step, step.outgoing, step.source.dim)

    def messages(self, step):
        return [self.buffer(step)[0], *[0] * (step.group.size - 1)]


def empties(x, group):
    """An empty array for each rank: nothing is sent there, or received from there."""
    return [x.reshape(-1)[:0]] * group.size


def elements(step, dim):
    """How many elements the whole array of a Step has for one index of a dimension."""
    whole = resized(resized(step.here, step.source.dim, step.outgoing.length), step.target.dim, step.incoming.length)
    return prod(resized(whole, dim, 1))


def through_master(step, parts, dim):
    """Elements that the master sends or receives if the other ranks hold `parts`, a Partition of the dimension `dim`."""
    return elements(step, dim) * (sum(parts.sizes) - parts.size(MASTER))
