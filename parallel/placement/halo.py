"""Halos: the rows (or channels) of neighbours that a window reaches into.

The exchange is a redistribution, from blocks that do not overlap to blocks that do; its adjoint adds the gradients of
the copies back to their owners. Blocks may be uneven or empty, and a window may reach over several ranks.
"""

from math import prod

from nn.device import xp
from nn.layer import Layer
from nn.window import along
from parallel.placement.partition import common, resized, size


class Halo(Layer):
    """From the block `owned[r]` of a dimension on rank r to `needed[r]`; backward adds up.

    group: the ranks of the axis. dim: the sharded dimension of the arrays. owned, needed: slices of it, one a rank; the
    first cover it without overlap.
    """

    def __init__(self, group, dim, owned, needed):
        self.group, self.dim, self.owned, self.needed = group, dim, owned, needed
        me = group.rank
        # What goes from here to each rank, and comes here from each: slices of the whole dimension.
        self.sent = [common(owned[me], block) for block in needed]
        self.received = [common(block, needed[me]) for block in owned]

    @property
    def moves_nothing(self):
        """Whether no rank of the group needs anything of another."""
        return list(self.owned) == list(self.needed)

    def forward(self, x, context):
        y = self.start(x, context)
        self.finish(y, context)
        return y

    def input_gradient(self, dy, context):
        self.start_back(dy, context)
        return self.finish_back(dy, context)

    def start(self, x, context):
        """Begin the exchange; returns the needed block, of which what is owned is already there."""
        context[self].shape = x.shape
        mine = self.needed[self.group.rank]
        y = context[self].workspace("forward", resized(x.shape, self.dim, size(mine)), x.dtype)
        kept = self.sent[self.group.rank]
        y[self._at(kept, mine)] = x[self._at(kept, self.owned[self.group.rank])]
        self._begin(x, self.owned[self.group.rank], self.sent, self.received, context)
        return y

    def finish(self, y, context):
        """Wait for the exchange and complete the needed block."""
        context[self].transfer.wait()
        for block, part in self._arrived(self.received, y.shape, context):
            y[self._at(part, self.needed[self.group.rank])] = block

    def start_back(self, dy, context):
        """Begin to send the gradients of what others own back to them."""
        self._begin(dy, self.needed[self.group.rank], self.received, self.sent, context)

    def finish_back(self, dy, context):
        """Wait for it; returns the gradient of the owned block."""
        mine, kept = self.owned[self.group.rank], self.sent[self.group.rank]
        dx = context.gradient_space(context[self].shape, dy)
        if size(kept) < size(mine):  # no window here looks at the rest
            dx.fill(0)
        dx[self._at(kept, mine)] = dy[self._at(kept, self.needed[self.group.rank])]
        context[self].transfer.wait()
        for block, part in self._arrived(self.sent, dx.shape, context):
            target = dx[self._at(part, mine)]
            xp.add(target, block, out=target)
        return dx

    def _begin(self, x, held, outgoing, incoming, context):
        kept = context[self]
        counts, out_counts = ([self._count(x.shape, part, rank) for rank, part in enumerate(p)] for p in (outgoing, incoming))
        send = kept.workspace("send", (sum(counts),), x.dtype)
        kept.buffer = kept.workspace("receive", (sum(out_counts),), x.dtype)
        start = 0
        for part, count in zip(outgoing, counts):
            if count:
                block = x[self._at(part, held)]
                send[start : start + count].reshape(block.shape)[...] = block
                start += count
        kept.transfer = self.group.start_halo(send, counts, kept.buffer, out_counts, self.name)

    def _arrived(self, incoming, shape, context):
        """(block, slice of the dimension) of each rank that sent something."""
        start = 0
        for rank, part in enumerate(incoming):
            if count := self._count(shape, part, rank):
                yield context[self].buffer[start : start + count].reshape(resized(shape, self.dim, size(part))), part
                start += count

    def _count(self, shape, part, rank):
        return 0 if rank == self.group.rank else prod(resized(shape, self.dim, size(part)))

    def _at(self, part, held):
        """The index of the slice `part` of the dimension in an array that holds the slice `held` of it."""
        where = slice(part.start - held.start, part.stop - held.start) if size(part) else slice(0, 0)
        return along(self.dim, where)

    def __repr__(self):
        most = max(size(need) - size(own) for need, own in zip(self.needed, self.owned))
        return f"Halo(dim={self.dim}, up to {most} more, {self.group.size} ranks)"


class HaloConv2d(Layer):
    """A convolution of images whose rows are split, equal to the one of the whole images.

    While the halo is under way, the rows of the output that need none are computed; backward, the kernel's gradient.

    conv: a Conv2d whose window is that of this rank's rows. halo: the exchange of what it looks at. rows: how many rows
    of the output are this rank's.
    """

    output_is_free = True
    fused = True

    def __init__(self, conv, halo, rows):
        self.conv, self.halo, self.parameters = conv, halo, conv.parameters
        self.inner = self._inner(rows)

    def give_name(self, name):
        self.name = self.conv.name = self.halo.name = name

    def forward(self, x, context):
        extended = self.halo.start(x, context)
        y = self.conv.takes(extended, context)
        self.conv.compute(y, self.inner, context)
        context.worked(self, "forward", size(self.inner) / max(1, y.shape[1]))
        self.halo.finish(extended, context)
        self.conv.compute(y, slice(0, self.inner.start), context)
        self.conv.compute(y, slice(self.inner.stop, y.shape[1]), context)
        return y

    def _inner(self, rows):
        """The slice of the output's rows that look at owned rows alone."""
        window, rank = self.conv.window, self.halo.group.rank
        needed, kept = self.halo.needed[rank], self.halo.sent[rank]
        own = slice(kept.start - needed.start, kept.stop - needed.start)  # in the extended block
        looks = [window.input_rows(slice(row, row + 1), size(needed)) for row in range(rows)]
        inside = [row for row, seen in enumerate(looks) if seen.start >= own.start and seen.stop <= own.stop]
        return slice(inside[0], inside[-1] + 1) if inside else slice(0, 0)

    def gradients(self, dy, context):
        self.conv.gradients(dy, context)

    def input_gradient(self, dy, context):
        extended = self.conv.input_gradient(dy, context)
        context.worked(self, "input_gradient", 1.0)
        return self.halo.input_gradient(extended, context)

    def backward(self, dy, context):
        context.begin_pass(self, "input_gradient")
        extended = self.conv.input_gradient(dy, context)
        context.end_pass(self, "input_gradient")
        self.halo.start_back(extended, context)
        context.run(self, "gradients", dy)
        context.written(self)
        return self.halo.finish_back(extended, context)

    def __repr__(self):
        return f"HaloConv2d({self.conv!r}, {self.halo!r})"
