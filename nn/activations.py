"""Elementwise layers: activations and dropout.

Each is a few whole-array calls into workspaces. What NumPy does slowly is avoided: `np.where`, boolean
indexing and `copyto(where=)` cost 10 to 25 times a plain pass, and `np.maximum` with the scalar 0 three
times the same call with an array of zeros.
"""

import numpy as np

from nn.layer import Layer
from nn.random import random_block


class Activation(Layer):
    """An elementwise function whose derivative follows from its output y."""

    def forward(self, x, training=False):
        self.y = self.workspace("y", x.shape, x.dtype)
        self.activate(x, self.y)
        return self.y

    def input_gradient(self, dy):
        slope = self.workspace("slope", dy.shape, dy.dtype)
        self.slope(self.y, slope)
        return np.multiply(slope, dy, out=slope)

    def activate(self, x, y):
        """Write the function of x into y."""
        raise NotImplementedError

    def slope(self, y, out):
        """Write the derivative at the output y into `out`."""
        raise NotImplementedError

    def zeros(self, shape, dtype):
        zeros = self.workspace("zeros", shape, dtype)
        if self.__dict__.get("_zeroed") is not zeros:  # filled once for each view handed out
            zeros.fill(0)
            self._zeroed = zeros
        return zeros

    def is_positive(self, y):
        mask = self.workspace("mask", y.shape, np.bool_)
        return np.greater(y, self.zeros(y.shape, y.dtype), out=mask)


class ReLU(Activation):
    """max(x, 0); the derivative at 0 is 0."""

    def activate(self, x, y):
        np.maximum(x, self.zeros(x.shape, x.dtype), out=y)

    def slope(self, y, out):
        np.copyto(out, self.is_positive(y))


class LeakyReLU(Activation):
    """max(x, slope x) with 0 <= negative_slope < 1; the derivative at 0 is the negative slope."""

    def __init__(self, negative_slope=0.01):
        if not 0 <= negative_slope < 1:
            raise ValueError(f"LeakyReLU: negative_slope must be in [0, 1), not {negative_slope}")
        self.negative_slope = negative_slope

    def activate(self, x, y):
        np.multiply(x, x.dtype.type(self.negative_slope), out=y)
        np.maximum(x, y, out=y)

    def slope(self, y, out):
        np.multiply(self.is_positive(y), out.dtype.type(1 - self.negative_slope), out=out)
        np.add(out, out.dtype.type(self.negative_slope), out=out)

    def __repr__(self):
        return f"LeakyReLU({self.negative_slope})"


class Tanh(Activation):
    """tanh(x)."""

    def activate(self, x, y):
        np.tanh(x, out=y)

    def slope(self, y, out):
        np.multiply(y, y, out=out)
        np.subtract(1, out, out=out)


class Sigmoid(Activation):
    """1 / (1 + exp(-x)), as (1 + tanh(x / 2)) / 2: NumPy's tanh is vectorised, and cannot overflow."""

    def activate(self, x, y):
        np.multiply(x, x.dtype.type(0.5), out=y)
        np.tanh(y, out=y)
        np.add(y, y.dtype.type(1), out=y)
        np.multiply(y, y.dtype.type(0.5), out=y)

    def slope(self, y, out):
        np.multiply(y, y, out=out)
        np.subtract(y, out, out=out)


class Dropout(Layer):
    """While training, zero each activation with probability p and scale the others so that the mean stays.

    The mask is a function of the seed, the step, the layer, the row in the global minibatch and the global
    feature, so it is the same on every grid. 16 random bits decide an element: p is rounded to a multiple of
    2^-16, and the scale uses the rounded value.

    features: the global number of features (by default what comes in).
    columns: the slice of them held here. rows: from the global batch size, the slice of samples held here.
    """

    def __init__(self, p=0.5, features=None, columns=None, rows=None):
        if not 0 <= p < 1:
            raise ValueError(f"Dropout: p must be in [0, 1), not {p}")
        self.p, self.features, self.columns = p, features, columns
        self.rows = rows or (lambda batch_size: slice(0, batch_size))
        self.mask = None

    def begin(self, seed, step, batch_size):
        self.seed, self.step, self.batch_size = seed, step, batch_size

    def forward(self, x, training=False):
        if not training or self.p == 0:
            self.mask = None
            return x
        features = self.features or x.shape[1]
        columns = self.columns or slice(0, features)
        threshold = min(round(self.p * 2**16), 2**16 - 1)
        bits = random_block(
            self.seed, f"dropout {self.name}", features, self.rows(self.batch_size), columns, np.uint16, self.step
        )
        self.mask = self.workspace("mask", x.shape, x.dtype)
        np.multiply(bits >= threshold, x.dtype.type(2**16 / (2**16 - threshold)), out=self.mask)
        return np.multiply(x, self.mask, out=self.workspace("y", x.shape, x.dtype))

    def input_gradient(self, dy):
        return dy if self.mask is None else np.multiply(dy, self.mask, out=dy)

    def __repr__(self):
        return f"Dropout({self.p})"
