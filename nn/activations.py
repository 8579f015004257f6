"""Elementwise layers: activations and dropout.

Each is a few whole-array calls into workspaces. What NumPy does slowly is avoided: `np.where`, boolean
indexing and `copyto(where=)` cost 10 to 25 times a plain pass, and `np.maximum` with the scalar 0 three
times the same call with an array of zeros.
"""

from math import prod

import numpy as np

from nn import device
from nn.device import to_device, xp
from nn.layer import Layer
from nn.random import random_block
from nn.window import take
from nn.workspace import flat_pieces, scratch


class Activation(Layer):
    """An elementwise function that never decreases, whose derivative follows from its output y.

    It goes through its arrays in pieces that stay in the cache, so that the passes over a piece cost little and what
    they need besides is small. y takes the place of x where nobody needs x again, dx that of dy.
    """

    is_monotone = True

    def forward(self, x, context):
        kept = context[self]
        kept.y = x if self.in_place else kept.workspace("y", x.shape, x.dtype)
        for some_x, some_y in flat_pieces(x, kept.y, progress=context.progress):
            self.activate(some_x, some_y)
        return kept.y

    def input_gradient(self, dy, context):
        for some_y, some_dy in flat_pieces(context[self].y, dy, progress=context.progress):
            slope = scratch("slope", some_y.shape, dy.dtype)
            self.slope(some_y, slope)
            xp.multiply(some_dy, slope, out=some_dy)
        return dy

    def activate(self, x, y):
        """Write the function of x into y, which may be x."""
        raise NotImplementedError

    def slope(self, y, out):
        """Write the derivative at the output y into `out`."""
        raise NotImplementedError


def zeros(shape, dtype):
    """Zeros that nobody writes to: of that shape on a CPU, where one number for all would be slow, else a single one."""
    shape = shape if device.is_cpu() else (1,)
    key = dtype, prod(shape)
    if key not in _zeros:
        _zeros[key] = xp.zeros(key[1], dtype)
    return _zeros[key].reshape(shape)


_zeros = {}


def is_positive(y):
    return xp.greater(y, zeros(y.shape, y.dtype), out=scratch("positive", y.shape, np.bool_))


class ReLU(Activation):
    """max(x, 0); the derivative at 0 is 0."""

    def activate(self, x, y):
        xp.maximum(x, zeros(x.shape, x.dtype), out=y)

    def slope(self, y, out):
        xp.copyto(out, is_positive(y))


class LeakyReLU(Activation):
    """max(x, slope x) with 0 <= negative_slope < 1; the derivative at 0 is the negative slope."""

    def __init__(self, negative_slope=0.01):
        if not 0 <= negative_slope < 1:
            raise ValueError(f"LeakyReLU: negative_slope must be in [0, 1), not {negative_slope}")
        self.negative_slope = negative_slope

    def activate(self, x, y):
        less = scratch("less", x.shape, x.dtype)
        xp.multiply(x, x.dtype.type(self.negative_slope), out=less)
        xp.maximum(x, less, out=y)

    def slope(self, y, out):
        xp.multiply(is_positive(y), out.dtype.type(1 - self.negative_slope), out=out)
        xp.add(out, out.dtype.type(self.negative_slope), out=out)

    def __repr__(self):
        return f"LeakyReLU({self.negative_slope})"


class Tanh(Activation):
    """tanh(x)."""

    def activate(self, x, y):
        xp.tanh(x, out=y)

    def slope(self, y, out):
        xp.multiply(y, y, out=out)
        xp.subtract(1, out, out=out)


class Sigmoid(Activation):
    """1 / (1 + exp(-x)), as (1 + tanh(x / 2)) / 2: NumPy's tanh is vectorised, and cannot overflow."""

    def activate(self, x, y):
        xp.multiply(x, x.dtype.type(0.5), out=y)
        xp.tanh(y, out=y)
        xp.add(y, y.dtype.type(1), out=y)
        xp.multiply(y, y.dtype.type(0.5), out=y)

    def slope(self, y, out):
        xp.multiply(y, y, out=out)
        xp.subtract(y, out, out=out)


class Dropout(Layer):
    """While training, zero each activation with probability p and scale the others so that the mean stays.

    The mask is a function of the seed, the step, the layer, the row in the global minibatch and the global
    feature, so it is the same on every grid. 16 random bits decide an element: p is rounded to a multiple of
    2^-16, and the scale uses the rounded value.

    shape: the global shape of a sample (by default what comes in). block: the part of it held here, one slice or index array for each dimension.
    rows: from the global batch size, the slice of samples held here.
    """

    def __init__(self, p=0.5, shape=None, block=None, rows=None):
        if not 0 <= p < 1:
            raise ValueError(f"Dropout: p must be in [0, 1), not {p}")
        self.p, self.shape, self.block = p, shape, block
        self.rows = rows or (lambda batch_size: slice(0, batch_size))

    def forward(self, x, context):
        kept = context[self]
        if not context.training or self.p == 0:
            kept.mask = None
            return x
        shape = self.shape or x.shape[1:]
        rows, whole = self.rows(context.batch_size), slice(0, prod(shape))
        rows = slice(context.first + rows.start, context.first + rows.stop)
        threshold = min(round(self.p * 2**16), 2**16 - 1)
        bits = random_block(context.seed, f"dropout {self.name}", whole.stop, rows, whole, np.uint16, context.step)
        if self.block is not None:
            bits = take(bits.reshape(-1, *shape), (slice(None), *self.block))
        kept.mask = kept.workspace("mask", x.shape, x.dtype)
        remains = to_device(bits.reshape(x.shape)) >= threshold
        xp.multiply(remains, x.dtype.type(2**16 / (2**16 - threshold)), out=kept.mask)
        return xp.multiply(x, kept.mask, out=kept.workspace("y", x.shape, x.dtype))

    def input_gradient(self, dy, context):
        mask = context[self].mask
        return dy if mask is None else xp.multiply(dy, mask, out=dy)

    def __repr__(self):
        return f"Dropout({self.p})"
