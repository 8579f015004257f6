"""Pooling: the maximum or the mean of each window.

On a GPU each is a kernel (`nn/kernels/fused.py`). On a CPU both reduce over the rows of a window first and over its columns
then, in blocks of output rows that stay in the cache. NumPy is slow in loops over the few channels of a pixel, so all
calculations are on long runs of memory. The rows of an image are such runs. Its columns are first copied apart: one array has
the columns at the first place of all windows, the next one those at the second place, until a place of one window is the first
place of the next window.
"""

from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, xp
from gridgrad.nn.kernels.fused import fused
from gridgrad.nn.kernels.window import COLUMNS, ROWS, Padding, Pixels, along, image_output, make_window, matching_slices, runs
from gridgrad.nn.kernels.workspace import blocks, copy_runs, scratch
from gridgrad.nn.layer import Layer


class Pool2d(Layer):
    """The base class of poolings: (n, H, W, C) -> (n, P, Q, C). Windows may overlap."""

    output_may_be_overwritten = takes_images = True
    overwrites_gradient = False
    in_padding, kernel = 0.0, "average_pool"  # the value of the pixels in the padding, and the kernel on a GPU

    def __init__(self, kernel: Pixels, stride: Pixels | None = None, padding: Padding = 0) -> None:
        self.window = make_window(kernel, kernel if stride is None else stride, padding, self)
        if any(2 * pad > k for k, pads in zip(self.window.kernel, self.window.padding) for pad in pads):
            raise ValueError(f"{self!r}: the padding must be at most half the kernel")

    def forward(self, x: Array, context: Context) -> Array:
        y = self.begin_forward(x.shape, x.dtype, context)
        self.forward_block(x, y, slice(0, len(x)), context)
        return y

    def begin_forward(self, shape: tuple[int, ...], dtype: npt.DTypeLike, context: Context) -> Array:
        """The uninitialised array for the output for inputs of this shape; `forward_block` then fills it block by block."""
        kept, masks = context[self], self.mask_shapes(shape) if xp.is_cpu else {}
        kept.shape = shape
        kept.larger = {a: kept.workspace(a, of, xp.bool_) for a, of in masks.items()} if context.training else None
        y = kept.workspace("y", (shape[0], *self.window.output(*shape[1:3]), shape[3]), dtype)
        if self.is_max_pooling and not xp.is_cpu:  # the number of the pixel that is the maximum
            kept.place = kept.workspace("place", y.shape, np.min_scalar_type(prod(self.window.kernel)))
        return y

    def input_gradient(self, dy: Array, context: Context) -> Array:
        dx = context.gradient_space(context[self].shape, dy)
        self.backward_block(dy, dx, slice(0, len(dy)), context)
        return dx

    def mask_shapes(self, shape: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        """The shapes of the booleans that a context keeps for inputs of this shape: {ROWS or COLUMNS: shape}."""
        return {}

    def forward_block(self, x: Array, y: Array, images: slice, context: Context) -> None:
        """Write the pooling of x to y. images: the slice of the batch to which x and y belong."""
        if not xp.is_cpu:
            return self._run_kernel(self.kernel, x, y, [x], [y, *self._places(images, context)])
        for some, rows, places, space in self._row_blocks(x, y, context):
            where = slice(images.start + some.start, images.start + some.stop), rows
            self._reduce([x[some, part] for part in places.values()], space.halfway, ROWS, min(places), where, context)
            space.take_apart(self.in_padding)
            target = y[some, rows] if space.wide is None else space.wide
            self._reduce(space.places, target, COLUMNS, 0, where, context)
            if space.wide is not None:
                copy_runs(y[some, rows], space.wide[:, :, : y.shape[2]])

    def backward_block(self, dy: Array, dx: Array, images: slice, context: Context) -> None:
        """Write the gradient of the input to dx. images: the slice of the batch to which dy and dx belong."""
        if not xp.is_cpu:
            self.check_trained(context[self].larger)
            return self._run_kernel(f"{self.kernel}_gradient", dx, dy, [dy, *self._places(images, context)], [dx])
        (k, stride, _), (columns, column_stride, _) = self.window.along(ROWS), self.window.along(COLUMNS)
        clear_uncovered(self.window, ROWS, dx, dy.shape[1])
        for some, rows, places, space in self._row_blocks(dx, dy, context):
            where = slice(images.start + some.start, images.start + some.stop), rows
            gradient = dy[some, rows]
            if space.wide is not None:
                space.wide[:, :, dy.shape[2] :] = 0
                xp.copyto(space.wide[:, :, : dy.shape[2]], gradient)
                gradient = space.wide
            # Of all windows with some row or column in them, the first one has it at its last place, and is written first.
            targets = [(target, i + column_stride >= columns) for i, target in enumerate(space.places)]
            for part in space.first:  # what the last place of each window does not overwrite: other places are added to it
                part.fill(0)
            self._spread(gradient, targets, COLUMNS, 0, where, context)
            space.put_together()
            targets = [(dx[some, part], i + stride >= k) for i, part in places.items()]
            self._spread(space.halfway, targets, ROWS, min(places), where, context)

    def _places(self, images, context):
        """What a kernel of a GPU needs beside the arrays: for a maximum [its place in the window of each output]."""
        return [context[self].place[images]] if self.is_max_pooling else []

    def _run_kernel(self, name, x, y, inputs, outputs):
        """Run a kernel of a GPU, for at most 2^32 elements at once. x, y: arrays like the input and the output."""
        (top, _), (left, _) = self.window.padding
        numbers = *x.shape[1:], *y.shape[1:3], *self.window.kernel, *self.window.stride, top, left
        many = max(1, 2**32 // max(1, prod(outputs[0].shape[1:])))
        for part in (slice(start, start + many) for start in range(0, len(x), many)):
            fused(name, *(array[part] for array in inputs), *numbers, *(array[part] for array in outputs))

    def _reduce(self, places, y, axis, first, where, context):
        """Write the reduction of arrays of equal shape, one for each place in a window, to y. axis: ROWS or COLUMNS.
        first: the first of these places; others lie in the padding. where: the slices (images, rows) of the whole output."""
        raise NotImplementedError

    def _spread(self, dy, targets, axis, first, where, context):
        """The adjoint of `_reduce`. targets: for each place (the array for its gradient, whether to overwrite or to add)."""
        raise NotImplementedError

    def _row_blocks(self, x, y, context):
        """Yield (images, output rows, {place: its rows of x}, Space) for blocks that cover y. No place is in the padding."""
        _, stride, before = self.window.along(ROWS)
        row_bytes = stride * prod(x.shape[2:]) * x.itemsize
        for run, places in runs(*self.window.along(ROWS), y.shape[1], x.shape[1]):
            for images, part in blocks(len(x), run.stop - run.start, row_bytes, progress=context.progress):
                rows, length = slice(run.start + part.start, run.start + part.stop), (part.stop - part.start - 1) * stride + 1
                starts = {i: rows.start * stride + i - before for i in places}
                shape = images.stop - images.start, part.stop - part.start, *x.shape[2:]
                space = space_for(self.window, shape, y.shape[2], x.dtype)
                yield images, rows, {i: slice(start, start + length, stride) for i, start in starts.items()}, space

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*image_output(self.window, shape, self), shape[2])

    def __repr__(self):
        return f"{type(self).__name__}({self.window})"


class MaxPool2d(Pool2d):
    """The maximum of each window: (n, H, W, C) -> (n, P, Q, C). Windows may overlap.

    If several pixels have the maximum, the gradient goes to the first column that contains one, and there to the first row.
    For the backward pass the context stores for each place in a window whether the value there is larger than all before it.

    Parameters
    ----------
    kernel, stride : int or (rows, columns)
        The size of a window, and how far the windows are apart, in pixels; by default as far as they are large.
    padding : int, (rows, columns) or ((top, bottom), (left, right))
        The pixels on each side that are smaller than all others; at most half the kernel, else ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import MaxPool2d, Sequential
    >>> image = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    >>> Sequential([MaxPool2d(2)]).predict(image)[0, :, :, 0]
    array([[ 5.,  7.],
           [13., 15.]], dtype=float32)
    """

    is_max_pooling = True
    in_padding, kernel = -float("inf"), "max_pool"

    def mask_shapes(self, shape: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        (rows, columns), (p, q) = self.window.kernel, self.window.output(*shape[1:3])
        n, _, width, channels = shape
        wide = q + (columns - 1) // self.window.stride[1]
        return {ROWS: (rows - 1, n, p, width, channels), COLUMNS: (columns - 1, n, p, wide, channels)}

    def _reduce(self, places, y, axis, first, where, context):
        larger = context[self].larger
        held = places[0]
        for i, place in enumerate(places[1:], first):
            if larger:
                xp.greater(place, held, out=larger[axis][i][where])
            held = xp.maximum(place, held, out=y)
        if held is not y:
            xp.copyto(y, held)

    def _spread(self, dy, targets, axis, first, where, context):
        """Each gradient goes to the last place that was larger than all before it, and is taken from what is left."""
        larger = context[self].larger
        self.check_trained(larger)
        left, mask, rest = dy, scratch("mask", dy.shape, dy.dtype), scratch("rest", dy.shape, dy.dtype)
        for i, (target, overwrites) in reversed(list(enumerate(targets[1:], first))):
            xp.copyto(mask, larger[axis][i][where])
            share = xp.multiply(left, mask, out=target if overwrites else mask)
            goes_to_first = i == first and targets[0][1]
            left = xp.subtract(left, share, out=targets[0][0] if goes_to_first else rest)
            if not overwrites:
                xp.add(target, share, out=target)
        if left is not targets[0][0]:
            put(left, *targets[0])


class AvgPool2d(Pool2d):
    """The mean of each window: (n, H, W, C) -> (n, P, Q, C). Windows may overlap.

    Parameters
    ----------
    kernel, stride : int or (rows, columns)
        The size of a window, and how far the windows are apart, in pixels; by default as far as they are large.
    padding : int, (rows, columns) or ((top, bottom), (left, right))
        The zeros on each side, which count in the mean, as in PyTorch; at most half the kernel, else ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import AvgPool2d, Sequential
    >>> image = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    >>> Sequential([AvgPool2d(2)]).predict(image)[0, :, :, 0]
    array([[ 2.5,  4.5],
           [10.5, 12.5]], dtype=float32)
    """

    def forward_block(self, x: Array, y: Array, images: slice, context: Context) -> None:
        if not self._is_global(x):
            super().forward_block(x, y, images, context)
            return
        n, height, width, channels = x.shape
        weights = scratch("weights", (1, height * width), x.dtype)
        weights.fill(self._weight)
        xp.matmul(weights, x.reshape(n, height * width, channels), out=y.reshape(n, 1, channels))

    def backward_block(self, dy: Array, dx: Array, images: slice, context: Context) -> None:
        if not (xp.is_cpu and self._is_global(dx)):
            super().backward_block(dy, dx, images, context)
            return
        scaled = scratch("scaled", dy.shape, dy.dtype)
        xp.multiply(dy, dy.dtype.type(self._weight), out=scaled)
        copy_runs(dx, scaled)

    def _reduce(self, places, y, axis, first, where, context):
        total = places[0]
        for place in places[1:]:
            total = xp.add(total, place, out=y)
        if total is not y:
            xp.copyto(y, total)
        if axis == COLUMNS:
            xp.multiply(y, y.dtype.type(self._weight), out=y)

    def _spread(self, dy, targets, axis, first, where, context):
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


def put(gradient, target, overwrites):
    """Overwrite the target with the gradient, or add the gradient to it."""
    if overwrites:
        xp.copyto(target, gradient)
    else:
        xp.add(target, gradient, out=target)


# ----- the scratch memory in which a pooling works on a block of images


class Space:
    """Scratch memory for a block of images, (images, rows, width, channels), whose rows are pooled and whose columns are not,
    to `outputs` columns. `places`: for each place in a window, an array with the column that each window has there."""

    def __init__(self, window, shape, outputs, dtype):
        self.window, self.outputs = window, outputs
        (images, rows, width, channels), (k, stride, left) = shape, window.along(COLUMNS)
        # Where windows overlap, the columns at places a stride apart are the same memory, shifted by a column. Each row then
        # has some more columns than there are outputs, whose contents mean nothing.
        shift = (k - 1) // stride
        wide = images, rows, outputs + shift, channels
        self.halfway = scratch("halfway", shape, dtype)  # the block
        self.wide = scratch("wide", wide, dtype) if shift else None  # for the output, where there are more columns
        self.places, self._copies, self._outside, self.first = [None] * k, [], [], []
        for first in range(min(k, stride)):
            flat = scratch(f"columns {first}", (prod(wide) + shift * channels,), dtype)
            apart = flat[: prod(wide)].reshape(wide)
            inside, columns = matching_slices(first - left, stride, outputs + shift, width)
            self._copies.append((apart[:, :, inside], self.halfway[:, :, columns]))
            outside = apart[:, :, : inside.start], apart[:, :, inside.stop :], flat[prod(wide) :]
            self._outside += [part for part in outside if part.size]
            self.first.append(flat[: (k - 1 - first) // stride * channels])
            for i in range(first, k, stride):
                start = i // stride * channels
                self.places[i] = flat[start : start + prod(wide)].reshape(wide)

    def take_apart(self, in_padding):
        """Copy the columns of `halfway` to `places`. in_padding: the value of the columns outside the image."""
        for part in self._outside:
            part.fill(in_padding)
        for apart, columns in self._copies:
            copy_runs(apart, columns)

    def put_together(self):
        """Copy the columns in `places`, which are gradients, to `halfway`."""
        clear_uncovered(self.window, COLUMNS, self.halfway, self.outputs)
        for apart, columns in self._copies:
            copy_runs(columns, apart)


@lru_cache(maxsize=16)
def space_for(window, shape, outputs, dtype):
    """A Space with these arguments. It is kept, because many blocks have the same shape and making one takes long."""
    return Space(window, shape, outputs, dtype)


def clear_uncovered(window, axis, dx, outputs):
    """Set to 0 the rows or columns that no window has at one of its last places, as many as the stride: others are added."""
    k, stride, before = window.along(axis)
    if k < stride:
        dx.fill(0)
        return
    for outside in (slice(0, max(0, k - stride - before)), slice(max(0, (outputs - 1) * stride + k - before), None)):
        part = dx[along(axis, outside)]
        if part.size:
            part.fill(0)
