"""Normalisation over neighbouring channels.

The arrays are processed in pieces that stay in the cache, and the backward pass computes the denominators again, which is
faster than reading them from memory.
"""

from math import prod

from gridgrad.nn.arguments import whole_number
from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, xp
from gridgrad.nn.kernels.window import matching_slices
from gridgrad.nn.kernels.workspace import scratch
from gridgrad.nn.layer import Layer

PIECE = 1 << 15  # the elements of one array in a piece, on a CPU


class LocalResponseNorm(Layer):
    """Normalisation across channels, y_c = x_c / (k + alpha / size * sum_(c' near c) x_c'^2)^beta.

    This is section 3.3 of Krizhevsky et al. 2012, for x and y of shape (n, .., channels). As in PyTorch, the sum goes over the
    channels from c - size // 2 to c + (size - 1) // 2, and alpha is divided by `size`.

    Parameters
    ----------
    size : int
        The number of channels in a sum.
    alpha, beta, k : float
        The numbers of the formula. alpha must be at least 0 and k above 0, else ValueError.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import LocalResponseNorm, Sequential
    >>> Sequential([LocalResponseNorm(1, alpha=3.0, beta=0.5)]).predict(np.ones((1, 2), np.float32))
    array([[0.5, 0.5]], dtype=float32)
    """

    output_may_be_overwritten = True
    passes_buffer = False
    # How many of the first and last channels of x are a halo: they enter the sums of their neighbours, but their own outputs
    # are computed by other ranks, so that y has fewer channels.
    before = after = 0

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        size = whole_number(size, "LocalResponseNorm: size")
        if not alpha >= 0 or not k > 0:
            raise ValueError(f"LocalResponseNorm({size}): alpha must be at least 0 and k above 0, not {alpha} and {k}")
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Array, context: Context) -> Array:
        kept = context[self]
        kept.x = x
        y = kept.workspace("y", self._own(x).shape, x.dtype)
        for x_piece, y_piece in pieces(x, y, progress=context.progress):
            own = self._own(x_piece)
            xp.multiply(own, self._power(self._base(x_piece))[:, : own.shape[1]], out=y_piece)
        return y

    def input_gradient(self, dy: Array, context: Context) -> Array:
        """dx_c = dy_c base_c^-beta - 2 alpha beta / size x_c sum_c' dy_c' x_c' base_c'^(-beta - 1), over dy without a halo.

        base is k + alpha / size * sum x^2; c' are the channels whose window contains c."""
        x = context[self].x
        dx = dy if dy.shape == x.shape and dy.flags.c_contiguous else context.gradient_space(x.shape, dy)
        for x_piece, dy_piece, dx_piece in pieces(x, dy, dx, progress=context.progress):
            self._gradient(x_piece, dy_piece, dx_piece)
        return dx

    def _gradient(self, x, dy, dx):
        """Write the gradient of a piece of the input. dx: may be dy."""
        (pixels, channels), own = x.shape, dy.shape[1]
        base = self._base(x)
        power = self._power(base)
        ratio = xp.divide(power, base, out=base)
        xp.multiply(ratio, dx.dtype.type(-2 * self.alpha * self.beta / self.size), out=ratio)
        flat, padded = self._padded(pixels, channels, x.dtype)
        start = self.before + (self.size - 1) // 2
        shared = padded[:, start : start + own]
        xp.multiply(self._own(x), dy, out=shared)
        xp.multiply(shared, ratio[:, :own], out=shared)
        direct = xp.multiply(dy, power[:, :own], out=power[:, :own])
        xp.multiply(x, self._window_sums(flat, padded.shape)[:, :channels], out=dx)
        xp.add(self._own(dx), direct, out=self._own(dx))

    def neighbours(self, part: slice, channels: int) -> slice:
        """The slice of input channels that the slice `part` of output channels needs. channels: their global number."""
        return slice(max(0, part.start - self.size // 2), min(channels, part.stop + (self.size - 1) // 2))

    def _own(self, x):
        """x without the channels of the halo."""
        return x[..., self.before : x.shape[-1] - self.after]

    def _base(self, x):
        """k + alpha / size * sum x^2 for a piece of x, in scratch memory: its first columns are those of the own channels."""
        pixels, channels = x.shape
        own = channels - self.before - self.after
        flat, padded = self._padded(pixels, own, x.dtype)
        inside, part = matching_slices(self.before - self.size // 2, 1, padded.shape[1], channels)
        xp.multiply(x[:, part], x[:, part], out=padded[:, inside])
        base = self._window_sums(flat, padded.shape)
        xp.multiply(base, x.dtype.type(self.alpha / self.size), out=base)
        return xp.add(base, x.dtype.type(self.k), out=base)

    def _power(self, base):
        """base^-beta, in scratch memory. Square roots are faster than a power with the usual exponent."""
        power = scratch("power", base.shape, base.dtype)
        if self.beta != 0.75:
            return xp.power(base, base.dtype.type(-self.beta), out=power)
        xp.sqrt(base, out=power)
        xp.multiply(power, base, out=power)
        xp.sqrt(power, out=power)
        return xp.divide(base.dtype.type(1), power, out=power)

    def _padded(self, pixels, channels, dtype):
        """Scratch zeros, flat and as a matrix, with size - 1 more columns, so that no window reaches into another pixel."""
        wide = channels + self.size - 1
        flat = scratch("padded", (pixels * wide + self.size - 1,), dtype)
        flat.fill(0)
        return flat, flat[: pixels * wide].reshape(pixels, wide)

    def _window_sums(self, flat, shape):
        """For each element of the padded matrix of this shape the sum of `size` elements from this one on."""
        sums = scratch("sums", shape, flat.dtype)
        out = sums.reshape(-1)  # one run of memory, as NumPy is slow in loops over the channels of one pixel
        xp.copyto(out, flat[: out.size])
        for i in range(1, self.size):
            xp.add(out, flat[i : i + out.size], out=out)
        return sums

    def __repr__(self):
        return f"LocalResponseNorm({self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k})"


def pieces(*arrays, progress=None):
    """Yield pieces, (pixels, channels), of arrays (.., channels), that stay in the cache; `progress` is called after each."""
    count = prod(arrays[0].shape[:-1])
    rows = [array.reshape(count, array.shape[-1]) for array in arrays]
    many = max(1, PIECE // max(1, arrays[0].shape[-1])) if xp.is_cpu else max(1, count)
    for start in range(0, count, many):
        yield tuple(array[start : start + many] for array in rows)
        if progress:
            progress()
