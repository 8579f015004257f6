"""A convolution of images whose rows are shared out: it computes while the rows that it needs of others are on their way."""

from nn.device import xp
from nn.layer import Layer
from parallel.placement.partition import positions, size


class HaloConv2d(Layer):
    """A Conv2d of height shards, equal to the one of the whole images.

    While the halo is under way, the rows of the output that need none are computed; backward, the kernel's gradient.

    halo: the Redistribute from the rows that ranks own to those that they need. conv: a Conv2d whose window is that of this
    rank's rows. rows: how many rows of the output are this rank's.
    """

    output_may_be_overwritten = True
    has_fused_backward = True

    def __init__(self, conv, halo, rows):
        self.conv, self.halo, self.parameters = conv, halo, conv.parameters
        self.inner = self._inner(rows)

    def give_name(self, name):
        self.name = self.conv.name = self.halo.name = name

    def forward(self, x, context):
        step, space = self._step("forward", x, context), self.halo.space("forward", context)
        x = xp.ascontiguousarray(x)
        extended = space("out", step.there, x.dtype)
        step.move.keep(step, x, extended)
        transfer = step.move.start(step, x, space, self.name)
        y = self.conv.begin_forward(extended, context)
        self.conv.compute(y, self.inner, context)
        context.worked(self, "forward", size(self.inner) / max(1, y.shape[1]))
        step.move.finish(step, transfer, extended)
        self.conv.compute(y, slice(0, self.inner.start), context)
        self.conv.compute(y, slice(self.inner.stop, y.shape[1]), context)
        return y

    def _step(self, direction, x, context):
        return self.halo.step(direction, x.shape, context.batch_size)

    def _inner(self, rows):
        """The slice of the output's rows that look at owned rows alone."""
        window, rank = self.conv.window, self.halo.group.rank
        owned, needed = self.halo.source.partition, self.halo.target.partition
        kept = owned.intersection(rank, needed, rank)
        own = positions(kept, needed.part(rank))  # in the extended block
        looks = [window.input_rows(slice(row, row + 1), needed.size(rank)) for row in range(rows)]
        inside = [row for row, seen in enumerate(looks) if size(kept) and seen.start >= own.start and seen.stop <= own.stop]
        return slice(inside[0], inside[-1] + 1) if inside else slice(0, 0)

    def gradients(self, dy, context):
        self.conv.gradients(dy, context)

    def input_gradient(self, dy, context):
        extended = self.conv.input_gradient(dy, context)
        context.worked(self, "input_gradient", 1.0)
        return self._finish_back(extended, self._start_back(extended, context), context)

    def backward(self, dy, context):
        context.begin_pass(self, "input_gradient")
        extended = self.conv.input_gradient(dy, context)
        context.end_pass(self, "input_gradient")
        transfer = self._start_back(extended, context)
        context.run(self, "gradients", dy)
        context.written(self)
        return self._finish_back(extended, transfer, context)

    def _start_back(self, extended, context):
        """Begin to send the gradients of rows that others own back to them: a transfer."""
        step = self._step("backward", extended, context)
        return step.move.start(step, extended, self.halo.space("backward", context), self.name)

    def _finish_back(self, extended, transfer, context):
        """The gradient of the owned rows, from that of the needed ones."""
        step = self._step("backward", extended, context)
        dx = context.gradient_space(step.there, extended)
        step.move.keep(step, extended, dx)
        step.move.finish(step, transfer, dx)
        return dx

    def __repr__(self):
        return f"HaloConv2d({self.conv!r}, {self.halo!r})"
