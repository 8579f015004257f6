"""Pooling: the maximum or the mean of each window.

Both are separable: they reduce over the rows of a window first and over its columns then. So whole rows are processed at
once, and a k x k window takes 2 k passes over arrays of decreasing size instead of k^2.
"""

from nn.device import xp
from nn.layer import Layer
from nn.window import COLUMNS, ROWS, along, image_output, make_window, matching_slices
from nn.workspace import blocks, scratch


class Pool2d(Layer):
    """The base class of poolings: (n, H, W, C) -> (n, P, Q, C).

    kernel, stride, padding: as for `Conv2d`; by default the stride is the kernel. Windows may overlap. Raises ValueError if
    the padding is more than half the kernel, because a window could then lie completely in the padding.
    """

    output_may_be_overwritten = takes_images = True
    overwrites_gradient = False

    def __init__(self, kernel, stride=None, padding=0):
        self.window = make_window(kernel, kernel if stride is None else stride, padding, self)
        if any(2 * pad > k for k, pads in zip(self.window.kernel, self.window.padding) for pad in pads):
            raise ValueError(f"{self!r}: the padding must be at most half the kernel")

    def forward(self, x, context):
        y = self.begin_forward(x.shape, x.dtype, context)
        n, height, width, channels = x.shape
        for images, _ in blocks(n, height, width * channels * x.itemsize, progress=context.progress):
            self.forward_block(x[images], y[images], images, context)
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
        n, height, width, channels = shape = context[self].shape
        dx = context.gradient_space(shape, dy)
        for images, _ in blocks(n, height, width * channels * dy.itemsize, progress=context.progress):
            self.backward_block(dy[images], dx[images], images, context)
        return dx

    def prepare_backward(self, halfway, output, context):
        """Allocate what the backward pass needs. halfway: the shape after pooling the rows. output: that of the output."""

    def forward_block(self, x, y, images, context):
        """Write the pooling of x to y. images: the slice of the batch to which x and y belong."""
        raise NotImplementedError

    def backward_block(self, dy, dx, images, context):
        """Write the gradient of the input to dx. images: the slice of the batch to which dy and dx belong."""
        raise NotImplementedError

    def _matching_slices(self, outputs, length, axis):
        """The indices (of outputs, of inputs) that correspond, for each place in the window along `axis`."""
        k, stride, before = self.window.along(axis)
        return [[along(axis, part) for part in matching_slices(i - before, stride, outputs, length)] for i in range(k)]

    def output_shape(self, shape):
        return (*image_output(self.window, shape, self), shape[2])

    def __repr__(self):
        return f"{type(self).__name__}({self.window})"


class MaxPool2d(Pool2d):
    """The maximum of each window.

    If several pixels have the maximum, the gradient goes to the first column that contains one, and there to the first row.
    For the backward pass the context stores one bit for each place in a window: whether the value there is larger than all
    values before it. The last place with this bit has the maximum.
    """

    is_max_pooling = True

    def prepare_backward(self, halfway, output, context):
        kept = context[self]
        kept.larger = None
        if context.training:
            kept.larger = {
                axis: kept.workspace(axis, (shape[0], self.window.kernel[axis - 1] - 1, *shape[1:]), xp.bool_)
                for axis, shape in ((ROWS, halfway), (COLUMNS, output))
            }

    def forward_block(self, x, y, images, context):
        larger = context[self].larger
        halfway = scratch("halfway", (len(x), y.shape[1], *x.shape[2:]), x.dtype)
        self._largest(x, halfway, larger and larger[ROWS][images], ROWS)
        self._largest(halfway, y, larger and larger[COLUMNS][images], COLUMNS)

    def backward_block(self, dy, dx, images, context):
        larger = context[self].larger
        self.check_trained(larger)
        halfway = scratch("halfway", (len(dx), dy.shape[1], *dx.shape[2:]), dx.dtype)
        self._spread(dy, halfway, larger[COLUMNS][images], COLUMNS)
        self._spread(halfway, dx, larger[ROWS][images], ROWS)

    def _largest(self, x, y, larger, axis):
        """Write the maximum along `axis` to y.

        larger: a boolean array, (images, kernel - 1, ...), in which to write for each place of the window but the first
        whether its value is larger than all values before it; None if that is not needed.
        """
        held = y  # the array with the maximum so far; the first place itself as long as nothing was written to y
        for i, (outputs, inputs) in enumerate(self._matching_slices(y.shape[axis], x.shape[axis], axis)):
            place = x[inputs]
            if i == 0 and place.shape == y.shape:
                held = place
                continue
            if i == 0:  # some windows have their first place in the padding, which counts as -infinity
                covered = outputs[axis]
                y[along(axis, slice(0, covered.start))] = -xp.inf
                y[along(axis, slice(covered.stop, None))] = -xp.inf
                xp.copyto(y[outputs], place)
                continue
            if place.shape != y.shape and held is not y:
                xp.copyto(y, held)
                held = y
            if larger is not None:
                if place.shape != y.shape:
                    larger[:, i - 1] = False
                xp.greater(place, held[outputs], out=larger[:, i - 1][outputs])
            xp.maximum(place, held[outputs], out=y[outputs])
            held = y
        if held is not y:
            xp.copyto(y, held)

    def _spread(self, dy, dx, larger, axis):
        """Write each gradient to the place that had the maximum: the last one that was larger than all before it."""
        k, stride, before = self.window.along(axis)
        share, later = scratch("share", dy.shape, dy.dtype), None
        if k == stride:  # each pixel is in one window and is written below, except those after the last window
            dx[along(axis, slice(max(0, dy.shape[axis] * stride - before), None))] = 0
        else:
            dx.fill(0)
        places = self._matching_slices(dy.shape[axis], dx.shape[axis], axis)
        for i in reversed(range(k)):
            outputs, inputs = places[i]
            chosen, later = self._chosen(larger[:, i - 1] if i else None, later, dy.shape)
            xp.copyto(share, chosen)
            if k <= stride:
                xp.multiply(share[outputs], dy[outputs], out=dx[inputs])
            else:
                xp.multiply(share, dy, out=share)
                xp.add(dx[inputs], share[outputs], out=dx[inputs])

    @staticmethod
    def _chosen(larger, later, shape):
        """(where this place has the maximum, where this or a later place has it), as boolean arrays, True or None.

        larger: whether this place is larger than all before it; None for the first place. later: the second result for the
        next place, None if there is none. shape: that of the arrays.
        """
        if later is None:
            return (True, None) if larger is None else (larger, larger)
        chosen = scratch("chosen", shape, xp.bool_)
        if larger is None:
            return xp.logical_not(later, out=chosen), None
        xp.greater(larger, later, out=chosen)  # of booleans: larger here, and not at any later place
        return chosen, xp.logical_or(larger, later, out=scratch("later", shape, xp.bool_))


class AvgPool2d(Pool2d):
    """The mean of each window. Pixels of the padding count as zeros, as in PyTorch by default."""

    def forward_block(self, x, y, images, context):
        halfway = scratch("halfway", (len(x), y.shape[1], *x.shape[2:]), x.dtype)
        self._sum(x, halfway, ROWS)
        self._sum(halfway, y, COLUMNS)
        xp.multiply(y, self._weight(y), out=y)

    def backward_block(self, dy, dx, images, context):
        halfway = scratch("halfway", (len(dx), dy.shape[1], *dx.shape[2:]), dx.dtype)
        self._spread(dy, halfway, COLUMNS)
        self._spread(halfway, dx, ROWS)
        xp.multiply(dx, self._weight(dx), out=dx)

    def _weight(self, array):
        """1 / (number of pixels in a window), in the dtype of the array."""
        return array.dtype.type(1 / (self.window.kernel[0] * self.window.kernel[1]))

    def _sum(self, x, y, axis):
        """Write the sums over the windows along `axis` to y."""
        y.fill(0)
        for outputs, inputs in self._matching_slices(y.shape[axis], x.shape[axis], axis):
            xp.add(y[outputs], x[inputs], out=y[outputs])

    def _spread(self, dy, dx, axis):
        """Write the sum of the gradients of the windows that contain a pixel, along `axis`, to dx: the adjoint of `_sum`."""
        dx.fill(0)
        for outputs, inputs in self._matching_slices(dy.shape[axis], dx.shape[axis], axis):
            xp.add(dx[inputs], dy[outputs], out=dx[inputs])
