"""A convolution of images whose rows are shared out: it computes while the rows that it needs of others are on their way."""

from nn.device import xp
from nn.layer import Layer
from nn.workspace import gradient_space
from parallel.placement.partition import positions, size


class HaloConv2d(Layer):
    """A Conv2d of height shards, equal to the one of the whole images.

    While the halo is under way, the rows of the output that need none are computed; backward, the kernel's gradient.

    halo: the Redistribute from the rows that ranks own to those that they need. conv: a Conv2d whose window is that of this
    rank's rows. rows: how many rows of the output are this rank's.
    """

    output_is_free = True

    def __init__(self, conv, halo, rows):
        self.conv, self.halo, self.parameters = conv, halo, conv.parameters
        self.inner = self._inner(rows)

    def give_name(self, name):
        self.name = self.conv.name = self.halo.name = name

    def begin(self, seed, step, batch_size, first=0):
        self.halo.begin(seed, step, batch_size, first)

    def forward(self, x, training=False):
        step, space = self._step("forward", x), self.halo.space("forward")
        x = xp.ascontiguousarray(x)
        extended = space("out", step.there, x.dtype)
        step.move.keep(step, x, extended)
        transfer = step.move.start(step, x, space, self.name)
        y = self.conv.takes(extended)
        self.conv.compute(y, self.inner)
        step.move.finish(step, transfer, extended)
        self.conv.compute(y, slice(0, self.inner.start))
        self.conv.compute(y, slice(self.inner.stop, y.shape[1]))
        return y

    def _step(self, direction, x):
        return self.halo.step(direction, x.shape, self.halo.batch_size)

    def _inner(self, rows):
        """The slice of the output's rows that look at owned rows alone."""
        window, rank = self.conv.window, self.halo.group.rank
        owned, needed = self.halo.source.partition, self.halo.target.partition
        kept = owned.intersection(rank, needed, rank)
        own = positions(kept, needed.part(rank))  # in the extended block
        looks = [window.input_rows(slice(row, row + 1), needed.size(rank)) for row in range(rows)]
        inside = [row for row, seen in enumerate(looks) if size(kept) and seen.start >= own.start and seen.stop <= own.stop]
        return slice(inside[0], inside[-1] + 1) if inside else slice(0, 0)

    def gradients(self, dy):
        self.conv.gradients(dy)

    def input_gradient(self, dy):
        return self._finish_back(self.conv.input_gradient(dy))

    def backward(self, dy):
        return self._finish_back(self.conv.input_gradient(dy), lambda: self._kernel_gradient(dy))

    def _kernel_gradient(self, dy):
        self.conv.gradients(dy)
        self.written()

    def _finish_back(self, extended, meanwhile=lambda: None):
        """The gradient of the owned rows, from that of the needed ones. meanwhile: called while the exchange is under way."""
        step, space = self._step("backward", extended), self.halo.space("backward")
        transfer = step.move.start(step, extended, space, self.name)
        meanwhile()
        dx = gradient_space(step.there, extended)
        step.move.keep(step, extended, dx)
        step.move.finish(step, transfer, dx)
        return dx

    def __repr__(self):
        return f"HaloConv2d({self.conv!r}, {self.halo!r})"
