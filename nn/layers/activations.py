"""Elementwise layers: activations and dropout.

They avoid slow operations of NumPy: `np.where`, boolean indexing and `copyto(where=)` take 10 to 25 times as long as a plain
pass over the array, and `np.maximum` with the scalar 0 takes three times as long as with an array of zeros.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from gridgrad.nn.arguments import fraction
from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, xp
from gridgrad.nn.graphs import constant, upload
from gridgrad.nn.kernels.fused import KERNELS, fused
from gridgrad.nn.kernels.window import take
from gridgrad.nn.kernels.workspace import flat_pieces, scratch
from gridgrad.nn.layer import Layer, Part
from gridgrad.nn.random import random_block


class Activation(Layer):
    """An elementwise function that never decreases and whose derivative can be computed from its output y. It works in pieces
    that stay in the cache. y overwrites x if `in_place`, and dx always overwrites dy."""

    is_monotone = True
    passes_buffer = False

    def has_own_output(self, before: Layer | None) -> int:
        return before is None or not before.output_may_be_overwritten

    def forward(self, x: Array, context: Context) -> Array:
        kept = context[self]
        kept.y = y = x if self.in_place else kept.workspace("y", x.shape, x.dtype)
        for x_piece, y_piece in flat_pieces(x, y, progress=context.progress):
            self.activate(x_piece, y_piece)
        return y

    def input_gradient(self, dy: Array, context: Context) -> Array:
        kernel = f"{type(self).__name__}_slope"
        if not xp.is_cpu and kernel in KERNELS:
            return fused(kernel, context[self].y, dy)
        for y_piece, dy_piece in flat_pieces(context[self].y, dy, progress=context.progress):
            slope = scratch("slope", y_piece.shape, dy.dtype)
            self.slope(y_piece, slope)
            xp.multiply(dy_piece, slope, out=dy_piece)
        return dy

    def activate(self, x: Array, y: Array) -> None:
        """Write the function of x to y, which may be the same array."""
        raise NotImplementedError

    def slope(self, y: Array, out: Array) -> None:
        """Write the derivative, as a function of the output y, to `out`."""
        raise NotImplementedError


@constant(maxsize=64)
def zeros(shape, dtype):
    """Read-only zeros: of `shape` on a CPU, where broadcasting a single one would be slow; on a GPU a single one."""
    return xp.zeros(shape if xp.is_cpu else (1,), dtype)


class ReLU(Activation):
    """The activation function max(x, 0), whose derivative at 0 is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import ReLU, Sequential
    >>> Sequential([ReLU()]).predict(np.array([[-2.0, 3.0]], np.float32))
    array([[0., 3.]], dtype=float32)
    """

    def activate(self, x: Array, y: Array) -> None:
        xp.maximum(x, zeros(x.shape, x.dtype), out=y)

    def slope(self, y: Array, out: Array) -> None:
        out[...] = y > 0


class LeakyReLU(Activation):
    """The activation function max(x, negative_slope x), whose derivative at 0 is negative_slope.

    Parameters
    ----------
    negative_slope : float
        In [0, 1), else ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import LeakyReLU, Sequential
    >>> Sequential([LeakyReLU(0.5)]).predict(np.array([[-2.0, 3.0]], np.float32))
    array([[-1.,  3.]], dtype=float32)
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = fraction(negative_slope, "LeakyReLU: negative_slope")

    def activate(self, x: Array, y: Array) -> None:
        scaled = scratch("scaled", x.shape, x.dtype)
        xp.multiply(x, x.dtype.type(self.negative_slope), out=scaled)
        xp.maximum(x, scaled, out=y)

    def slope(self, y: Array, out: Array) -> None:
        xp.multiply(y > 0, out.dtype.type(1 - self.negative_slope), out=out)
        xp.add(out, out.dtype.type(self.negative_slope), out=out)

    def __repr__(self):
        return f"LeakyReLU({self.negative_slope})"


class Tanh(Activation):
    """The activation function tanh(x).

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import Sequential, Tanh
    >>> Sequential([Tanh()]).predict(np.array([[0.0, 20.0]], np.float32))
    array([[0., 1.]], dtype=float32)
    """

    def activate(self, x: Array, y: Array) -> None:
        xp.tanh(x, out=y)

    def slope(self, y: Array, out: Array) -> None:
        xp.multiply(y, y, out=out)
        xp.subtract(1, out, out=out)


class Sigmoid(Activation):
    """The activation function 1 / (1 + exp(-x)).

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import Sequential, Sigmoid
    >>> Sequential([Sigmoid()]).predict(np.array([[0.0, 50.0]], np.float32))
    array([[0.5, 1. ]], dtype=float32)
    """

    def activate(self, x: Array, y: Array) -> None:
        # (1 + tanh(x / 2)) / 2, because NumPy's tanh is vectorised and cannot overflow
        xp.multiply(x, x.dtype.type(0.5), out=y)
        xp.tanh(y, out=y)
        xp.add(y, y.dtype.type(1), out=y)
        xp.multiply(y, y.dtype.type(0.5), out=y)

    def slope(self, y: Array, out: Array) -> None:
        xp.multiply(y, y, out=out)
        xp.subtract(y, out, out=out)


class GELU(Activation):
    """The activation function x Phi(x), with tanh in the place of the normal distribution Phi (Hendrycks and Gimpel 2016).

    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as PyTorch's GELU(approximate="tanh"). It is not monotone.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import GELU, Sequential
    >>> Sequential([GELU()]).predict(np.array([[-9.0, 0.0, 9.0]], np.float32)).round(3)
    array([[-0.,  0.,  9.]], dtype=float32)
    """

    is_monotone = False  # so it stays in front of a max-pooling, and keeps its slope, which does not follow from its output

    def has_own_output(self, before: Layer | None) -> int:
        return 1 + super().has_own_output(before)

    def forward(self, x: Array, context: Context) -> Array:
        kept = context[self]
        y = x if self.in_place else kept.workspace("y", x.shape, x.dtype)
        kept.slopes = kept.workspace("slopes", x.shape, x.dtype)
        number, scale = x.dtype.type, math.sqrt(2 / math.pi)
        if not xp.is_cpu:
            return fused("gelu", x, scale, 0.044715 * scale, y, kept.slopes)[0]
        for x_piece, y_piece, slope in flat_pieces(x, y, kept.slopes, progress=context.progress):
            square, half = (scratch(name, x_piece.shape, x.dtype) for name in ("square", "half"))
            xp.multiply(x_piece, x_piece, out=square)
            xp.multiply(square, number(0.044715 * scale), out=slope)
            xp.add(slope, number(scale), out=slope)
            xp.multiply(slope, x_piece, out=slope)
            xp.tanh(slope, out=half)  # y = x (1 + tanh(u)) / 2, and dy/dx = (1 + tanh(u)) / 2 + x / 2 (1 - tanh(u)^2) du/dx
            xp.multiply(square, number(3 * 0.044715 * scale), out=square)
            xp.add(square, number(scale), out=square)
            xp.multiply(square, x_piece, out=square)
            xp.multiply(half, half, out=slope)
            xp.subtract(number(1), slope, out=slope)
            xp.multiply(slope, square, out=slope)
            xp.add(half, number(1), out=half)
            xp.add(slope, half, out=slope)
            xp.multiply(slope, number(0.5), out=slope)
            xp.multiply(x_piece, half, out=y_piece)
            xp.multiply(y_piece, number(0.5), out=y_piece)
        return y

    def input_gradient(self, dy: Array, context: Context) -> Array:
        for slope, dy_piece in flat_pieces(context[self].slopes, dy, progress=context.progress):
            xp.multiply(dy_piece, slope, out=dy_piece)
        return dy


class Dropout(Layer):
    """In training, set each activation to zero with probability p, and scale the others by 1 / (1 - p) to keep the mean.

    The mask is a function of the seed, the step, the layer's name, the row in the global minibatch and the global feature,
    so it is the same on every grid. 16 random bits decide about each element, so p is rounded to a multiple of 2^-16.

    Parameters
    ----------
    p : float
        The probability, in [0, 1), else ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import Context, Dropout, Sequential
    >>> net, x = Sequential([Dropout(0.5)]), np.ones((1, 1000), np.float32)
    >>> set(net.forward(x, Context(training=True)).ravel().tolist()) == {0.0, 2.0}
    True
    >>> bool((net.predict(x) == x).all())
    True
    """

    passes_buffer = False
    shape: tuple[int, ...] | None = None  # of a whole sample, where this process does not hold all of it, and so has a part
    part: Sequence[Part] | None = None

    def __init__(self, p: float = 0.5) -> None:
        self.p = fraction(p, "Dropout: p")

    def has_own_output(self, before: Layer | None) -> bool:
        return self.p > 0

    def rows(self, batch_size: int) -> slice:
        """The samples of a global minibatch that this process has: all. A parallel network replaces this."""
        return slice(0, batch_size)

    def forward(self, x: Array, context: Context) -> Array:
        kept = context[self]
        if not context.training or self.p == 0:
            kept.mask = None
            return x
        threshold = min(round(self.p * 2**16), 2**16 - 1)
        kept.mask, y = (kept.workspace(name, x.shape, x.dtype) for name in ("mask", "y"))
        bits, scale = upload(partial(self._bits, x.shape, context)), x.dtype.type(2**16 / (2**16 - threshold))
        if not xp.is_cpu:
            return fused("dropout", x, bits, threshold, scale, kept.mask, y)[1]
        xp.multiply(bits >= threshold, scale, out=kept.mask)
        return xp.multiply(x, kept.mask, out=y)

    def _bits(self, x_shape, context):
        """16 random bits for each element of an input of this shape."""
        shape = self.shape or x_shape[1:]
        rows, features = self.rows(context.batch_size), slice(0, math.prod(shape))
        rows = slice(context.first + rows.start, context.first + rows.stop)
        bits = random_block(context.seed, f"dropout {self.name}", features.stop, rows, features, np.uint16, context.step)
        if self.part is not None:
            bits = take(bits.reshape(-1, *shape), (slice(None), *self.part))
        return bits.reshape(x_shape)

    def input_gradient(self, dy: Array, context: Context) -> Array:
        mask = context[self].mask
        return dy if mask is None else xp.multiply(dy, mask, out=dy)

    def __repr__(self):
        return f"Dropout({self.p})"
