"""Pooling: the maximum or the mean of each window.

Both are separable: they reduce over the rows of a window first and over its columns then, in blocks of output rows that stay
in the cache. NumPy is slow in loops over the few channels of a pixel, so all calculations are on long runs of memory. The
rows of an image are such runs. Its columns are first copied apart: one array has the columns at the first place of all
windows, the next one those at the second place, until a place of one window is the first place of the next window.
"""

from functools import lru_cache
from itertools import groupby
from math import prod

from nn import device
from nn.device import xp
from nn.layer import Layer
from nn.window import COLUMNS, ROWS, along, image_output, make_window, matching_slices
from nn.workspace import blocks, scratch

BLOCK_BYTES = 1 << 19  # the rows of the image in a block, on a CPU: what is computed from them needs as much again, and more


class Pool2d(Layer):
    """The base class of poolings: (n, H, W, C) -> (n, P, Q, C).

    kernel, stride, padding: as for `Conv2d`; by default the stride is the kernel. Windows may overlap. Raises ValueError if
    the padding is more than half the kernel, because a window could then lie completely in the padding.
    """

    output_may_be_overwritten = takes_images = True
    overwrites_gradient = False
    in_padding = 0.0  # the value of the pixels in the padding

    def __init__(self, kernel, stride=None, padding=0):
        self.window = make_window(kernel, kernel if stride is None else stride, padding, self)
        if any(2 * pad > k for k, pads in zip(self.window.kernel, self.window.padding) for pad in pads):
            raise ValueError(f"{self!r}: the padding must be at most half the kernel")

    def forward(self, x, context):
        y = self.begin_forward(x.shape, x.dtype, context)
        self.forward_block(x, y, slice(0, len(x)), context)
        return y

    def begin_forward(self, shape, dtype, context):
        """Prepare a forward pass for inputs of this shape; returns the uninitialised array for the output.

        The caller then calls `forward_block` for each block of images.
        """
        kept = context[self]
        kept.shape = shape
        (n, _, width, channels), (p, q) = shape, self.window.output(*shape[1:3])
        self.prepare_backward((n, p, width, channels), (n, p, q, channels), context)
        return kept.workspace("y", (n, p, q, channels), dtype)

    def input_gradient(self, dy, context):
        dx = context.gradient_space(context[self].shape, dy)
        self.backward_block(dy, dx, slice(0, len(dy)), context)
        return dx

    def prepare_backward(self, halfway, output, context):
        """Allocate what the backward pass needs. halfway: the shape after pooling the rows. output: that of the output."""

    def forward_block(self, x, y, images, context):
        """Write the pooling of x to y. images: the slice of the batch to which x and y belong."""
        for some, rows, places in self._row_blocks(x, y, context):
            halfway = scratch("halfway", (some.stop - some.start, rows.stop - rows.start, *x.shape[2:]), x.dtype)
            where = slice(images.start + some.start, images.start + some.stop), rows
            self.reduce([x[some, part] for part in places.values()], halfway, ROWS, min(places), where, context)
            self._reduce_columns(halfway, y[some, rows], where, context)

    def backward_block(self, dy, dx, images, context):
        """Write the gradient of the input to dx. images: the slice of the batch to which dy and dx belong."""
        k, stride, _ = self.window.along(ROWS)
        self._clear_uncovered(dx, dy.shape[1], ROWS)
        for some, rows, places in self._row_blocks(dx, dy, context):
            halfway = scratch("halfway", (some.stop - some.start, rows.stop - rows.start, *dx.shape[2:]), dx.dtype)
            where = slice(images.start + some.start, images.start + some.stop), rows
            self._spread_columns(dy[some, rows], halfway, where, context)
            # Of all windows with some row of the image, the first one, which is written first, has it at its last place.
            targets = [(dx[some, part], i + stride >= k) for i, part in places.items()]
            self.spread(halfway, targets, ROWS, min(places), where, context)

    def reduce(self, places, y, axis, first, where, context):
        """Write the reduction of some arrays of equal shape, one for each place in the window, to y.

        axis: ROWS or COLUMNS. first: the first of these places; those before it lie in the padding. where: the slices
        (images, rows) of the whole output to which this belongs.
        """
        raise NotImplementedError

    def spread(self, dy, targets, axis, first, where, context):
        """Write or add the gradient of each place: the adjoint of `reduce`.

        targets: for each place (the array for its gradient, whether to overwrite it rather than add to it).
        """
        raise NotImplementedError

    def _row_blocks(self, x, y, context):
        """Yield (images, output rows, {place: its rows of x}) for blocks that together cover y, from top to bottom.

        All windows in a block have the same places in the image and not in the padding.
        """
        _, stride, before = self.window.along(ROWS)
        row_bytes = stride * prod(x.shape[2:]) * x.itemsize
        for run, places in runs(*self.window.along(ROWS), y.shape[1], x.shape[1]):
            for images, part in blocks(len(x), run.stop - run.start, row_bytes, 1, BLOCK_BYTES, context.progress):
                rows = slice(run.start + part.start, run.start + part.stop)
                starts = {i: rows.start * stride + i - before for i in places}
                length = (rows.stop - rows.start - 1) * stride + 1
                yield images, rows, {i: slice(start, start + length, stride) for i, start in starts.items()}

    def _columns_apart(self, name, images, rows, width, outputs, channels, dtype):
        """Arrays in scratch memory for columns that are copied apart.

        Returns ([(array (images, rows, wide, C), which of its columns are in the image, the slice of the image's columns that
        these are)], [for each place in a window, the array in which each output finds its column there]).

        The rows have `wide` columns, as many as there are outputs and some more where windows overlap: so the arrays of
        places a stride apart are the same memory, shifted by a column, and all are contiguous. Only the first `outputs`
        columns of the latter mean anything.
        """
        k, stride, left = self.window.along(COLUMNS)
        shift = (k - 1) // stride
        wide = outputs + shift
        shape, size = (images, rows, wide, channels), images * rows * wide * channels
        apart, places = [], [None] * k
        for first in range(min(k, stride)):
            flat = scratch(f"{name} {first}", (size + shift * channels,), dtype)
            inside, columns = matching_slices(first - left, stride, wide, width)
            apart.append((flat, flat[:size].reshape(shape), inside, columns))
            for i in range(first, k, stride):
                start = i // stride * channels
                places[i] = flat[start : start + size].reshape(shape)
        return apart, places

    def _reduce_columns(self, x, y, where, context):
        """Write the reduction of the columns of x, (n, rows, W, C), to y, (n, rows, Q, C)."""
        apart, places = self._columns_apart("columns", *x.shape[:3], *y.shape[2:], x.dtype)
        for flat, array, inside, columns in apart:
            for outside in (array[:, :, : inside.start], array[:, :, inside.stop :], flat[array.size :]):
                if outside.size:
                    outside[...] = self.in_padding
            copy_pixels(array[:, :, inside], x[:, :, columns])
        if places[0].shape == y.shape:
            self.reduce(places, y, COLUMNS, 0, where, context)
            return
        reduced = scratch("reduced", places[0].shape, x.dtype)
        self.reduce(places, reduced, COLUMNS, 0, where, context)
        copy_pixels(y, reduced[:, :, : y.shape[2]])

    def _spread_columns(self, dy, dx, where, context):
        """Write the gradient of the columns, (n, rows, W, C), to dx: the adjoint of `_reduce_columns`."""
        (k, stride, _), outputs = self.window.along(COLUMNS), dy.shape[2]
        apart, places = self._columns_apart("columns", *dx.shape[:3], *dy.shape[2:], dx.dtype)
        if places[0].shape != dy.shape:
            wide = scratch("reduced", places[0].shape, dx.dtype)
            xp.copyto(wide[:, :, :outputs], dy)
            wide[:, :, outputs:] = 0
            dy = wide
        for first, (flat, *_) in enumerate(apart):
            flat[: (k - 1 - first) // stride * dx.shape[3]] = 0  # what the last place does not overwrite
        self.spread(dy, [(place, i + stride >= k) for i, place in enumerate(places)], COLUMNS, 0, where, context)
        self._clear_uncovered(dx, outputs, COLUMNS)
        for _, array, inside, columns in apart:
            copy_pixels(dx[:, :, columns], array[:, :, inside])

    def _clear_uncovered(self, dx, outputs, axis):
        """Set to 0 what no window has at one of its last places, as many as the stride: the others add to it."""
        k, stride, before = self.window.along(axis)
        if k < stride:
            dx.fill(0)
            return
        for outside in (slice(0, max(0, k - stride - before)), slice(max(0, (outputs - 1) * stride + k - before), None)):
            part = dx[along(axis, outside)]
            if part.size:
                part.fill(0)

    def output_shape(self, shape):
        return (*image_output(self.window, shape, self), shape[2])

    def __repr__(self):
        return f"{type(self).__name__}({self.window})"


@lru_cache(maxsize=4096)
def runs(k, stride, before, outputs, length):
    """[(slice of outputs, range of places)]: runs of outputs whose windows have the same places inside the image."""
    inside = lambda p: range(max(0, before - p * stride), min(k, length + before - p * stride))  # noqa: E731
    found = []
    for places, group in groupby(range(outputs), inside):
        group = list(group)
        found.append((slice(group[0], group[-1] + 1), places))
    return found


def copy_pixels(target, source):
    """Copy images whose channels are contiguous. On a CPU whole pixels are copied, which is faster for few channels."""
    if device.is_cpu() and source.shape[3]:
        pixel = f"V{source.shape[3] * source.itemsize}"
        target, source = target.view(pixel), source.view(pixel)
    xp.copyto(target, source)


class MaxPool2d(Pool2d):
    """The maximum of each window.

    If several pixels have the maximum, the gradient goes to the first column that contains one, and there to the first row.
    For the backward pass the context stores one bit for each place in a window: whether the value there is larger than all
    values before it. The last place with this bit has the maximum.
    """

    is_max_pooling = True
    in_padding = -float("inf")

    def prepare_backward(self, halfway, output, context):
        kept = context[self]
        kept.larger = None
        if context.training:
            (rows, columns), (n, p, q, channels) = self.window.kernel, output
            wide = q + (columns - 1) // self.window.stride[1]
            kept.larger = {
                ROWS: kept.workspace(ROWS, (rows - 1, *halfway), xp.bool_),
                COLUMNS: kept.workspace(COLUMNS, (columns - 1, n, p, wide, channels), xp.bool_),
            }

    def reduce(self, places, y, axis, first, where, context):
        larger = context[self].larger
        held = places[0]
        for i, place in enumerate(places[1:], first):
            if larger:
                xp.greater(place, held, out=larger[axis][i][where])
            held = xp.maximum(place, held, out=y)
        if held is not y:
            xp.copyto(y, held)

    def spread(self, dy, targets, axis, first, where, context):
        """Each gradient goes to the last place that was larger than all before it, and is taken from what is left."""
        larger = context[self].larger
        self.check_trained(larger)
        left, mask = dy, scratch("mask", dy.shape, dy.dtype)
        for i, (target, overwrites) in reversed(list(enumerate(targets[1:], first))):
            xp.copyto(mask, larger[axis][i][where])
            share = xp.multiply(left, mask, out=target if overwrites else mask)
            left = xp.subtract(left, share, out=scratch("left", dy.shape, dy.dtype))
            if not overwrites:
                xp.add(target, share, out=target)
        put(left, *targets[0])


class AvgPool2d(Pool2d):
    """The mean of each window. Pixels of the padding count as zeros, as in PyTorch by default."""

    def forward_block(self, x, y, images, context):
        if not self._is_global(x):
            super().forward_block(x, y, images, context)
            return
        n, height, width, channels = x.shape
        weights = scratch("weights", (1, height * width), x.dtype)
        weights.fill(self._weight)
        xp.matmul(weights, x.reshape(n, height * width, channels), out=y.reshape(n, 1, channels))

    def backward_block(self, dy, dx, images, context):
        if not self._is_global(dx):
            super().backward_block(dy, dx, images, context)
            return
        scaled = scratch("scaled", dy.shape, dy.dtype)
        xp.multiply(dy, dy.dtype.type(self._weight), out=scaled)
        copy_pixels(dx, scaled)

    def reduce(self, places, y, axis, first, where, context):
        add_up(places, y)
        if axis == COLUMNS:
            xp.multiply(y, y.dtype.type(self._weight), out=y)

    def spread(self, dy, targets, axis, first, where, context):
        if axis == COLUMNS:
            dy = xp.multiply(dy, dy.dtype.type(self._weight), out=scratch("scaled", dy.shape, dy.dtype))
        for target, overwrites in reversed(targets):
            put(dy, target, overwrites)

    def _is_global(self, x):
        """Whether one window is the whole image: then the mean is a product with a vector."""
        return x.shape[1:3] == self.window.kernel and not any(map(any, self.window.padding))

    @property
    def _weight(self):
        """1 / (the number of pixels in a window)."""
        return 1 / prod(self.window.kernel)


def add_up(arrays, out):
    """Write the sum of arrays of equal shape to `out`."""
    if len(arrays) == 1:
        xp.copyto(out, arrays[0])
        return
    total = arrays[0]
    for array in arrays[1:]:
        total = xp.add(total, array, out=out)


def put(gradient, target, overwrites):
    """Overwrite the target with the gradient, or add the gradient to it."""
    if overwrites:
        xp.copyto(target, gradient)
    else:
        xp.add(target, gradient, out=target)
