"""A convolution of images that are sharded by height or width, which computes while its halo arrives."""

from dataclasses import replace
from math import prod

from gridgrad.nn.device import xp
from gridgrad.nn.layer import Layer
from gridgrad.parallel.placement.partition import positions, size


class HaloConv2d(Layer):
    """A Conv2d of a rank's rows or columns of images, padded as within the whole images. halo: the Redistribute from those that
    each rank owns to those that its outputs need. All passes are collective over its group."""

    kind = "conv"
    output_may_be_overwritten = True

    def __init__(self, conv, halo):
        self.conv, self.halo, self.parameters, self.dim = conv, halo, conv.parameters, halo.source.dim
        self.inner = self._inner()

    def give_name(self, name):
        self.name = self.conv.name = self.halo.name = name

    def forward(self, x, context):
        """Computes the outputs that need no halo while it arrives, then those at the borders."""
        step, space = self._step("forward", x, context), self.halo.space("forward", context)
        x = xp.ascontiguousarray(x)
        extended = space("out", step.there, x.dtype)
        step.keep(x, extended)
        transfer = step.start(x, space, self.name)
        y, dim = self.conv.begin_forward(extended, context), self.dim
        self.conv.compute(y, dim, self.inner, context)
        step.finish(transfer, extended)
        self.conv.compute(y, dim, slice(0, self.inner.start), context)
        self.conv.compute(y, dim, slice(self.inner.stop, y.shape[dim]), context)
        return y

    def _step(self, direction, x, context):
        return self.halo.step(direction, x.shape, context.batch_size)

    def _inner(self):
        """The slice of this rank's output rows (or columns) whose windows cover only input rows that this rank owns itself."""
        window, rank = self.conv.window, self.halo.group.rank
        owned, needed = self.halo.source.partition, self.halo.target.partition
        kept = owned.intersection(rank, needed, rank)
        own = positions(kept, needed.part(rank))  # the owned rows, counted from the first needed row
        dim, length = self.dim, needed.size(rank)
        looks = [window.input_part(dim, slice(i, i + 1), length) for i in range(window.outputs(dim, length))]
        inside = [i for i, seen in enumerate(looks) if size(kept) and seen.start >= own.start and seen.stop <= own.stop]
        return slice(inside[0], inside[-1] + 1) if inside else slice(0, 0)

    def gradients(self, dy, context):
        self.conv.gradients(dy, context)

    def input_gradient(self, dy, context):
        extended = self.conv.input_gradient(dy, context)
        return self._finish_back(extended, self._start_back(extended, context), context)

    def backward(self, dy, context):
        """Computes the gradients of kernel and bias while those of the halo return to their owners."""
        context.begin_pass(self, "input_gradient")
        extended = self.conv.input_gradient(dy, context)
        context.end_pass(self, "input_gradient")
        transfer = self._start_back(extended, context)
        context.run(self, "gradients", dy)
        return self._finish_back(extended, transfer, context)

    def _start_back(self, extended, context):
        step = self._step("backward", extended, context)
        return step.start(extended, self.halo.space("backward", context), self.name)

    def _finish_back(self, extended, transfer, context):
        """The gradient of the owned rows, with what other ranks have sent. extended: that of all rows that were needed."""
        step = self._step("backward", extended, context)
        dx = context.gradient_space(step.there, extended)
        step.keep(extended, dx)
        step.finish(transfer, dx)
        return dx

    def work(self, workload):
        before = workload.shape
        workload.shape = self.halo.step("forward", before, workload.batch_size).there
        forward, *_ = workload.add(self.conv)
        after, workload.shape = workload.shape, before
        share = size(self.inner) / max(after[self.dim], 1)  # of the outputs that need no halo; the others are another call
        if 0 < share < 1 and len(forward.sizes) == 4:
            n, pixels, *channels = forward.sizes
            parts = [
                replace(forward, sizes=(n, pixels * p, *channels), flops=forward.flops * p, nbytes=forward.nbytes * p)
                for p in (share, 1 - share)
            ]
            workload.works[workload.works.index(forward)] = parts[0]
            workload.works.append(parts[1])
        workload.redistribute(self.halo)
        workload.keep(0 if workload.first else -prod(before))  # the gradient of the input is passed on
        workload.shape = after

    def __repr__(self):
        return f"HaloConv2d({self.conv!r}, {self.halo!r})"
