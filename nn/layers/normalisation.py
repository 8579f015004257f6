"""Normalisation over a minibatch, with the ReLU that follows it in the same passes over the memory, and over channels.

What takes time is to read and write arrays that are larger than the caches. So they are processed in pieces that stay in the
cache (`nn/kernels/workspace.py`). A BatchNorm reads x twice forward, and x and dy twice backward; its sums over a piece are
products with ones. Backward, a LocalResponseNorm computes the denominators again, which is faster than reading them.
"""

from copy import copy
from math import prod

import numpy as np

from gridgrad.nn.arguments import whole_number
from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, xp
from gridgrad.nn.kernels.fused import fused
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.window import matching_slices
from gridgrad.nn.kernels.workspace import channel_sums, pieces, scratch, sums_of_pieces
from gridgrad.nn.layer import Buffer, Layer, Parameter
from gridgrad.nn.layers.activations import ReLU


class BatchNorm(Layer):
    """Batch normalisation, y = gamma (x - mean) / sqrt(variance + eps) + beta for each channel.

    This is algorithm 1 of Ioffe and Szegedy 2015, for x of shape (n, features) or (n, H, W, channels). In training, mean and
    variance are those of the *global* minibatch, over samples and pixels. In evaluation they are running averages over the
    minibatches, running <- (1 - momentum) running + momentum newest; of the variance, as in PyTorch, of the unbiased one.

    Parameters
    ----------
    channels : int
        The number of channels or features.
    eps, momentum : float
        The numbers of the formulas. eps must be above 0 and momentum in [0, 1], else ValueError.

    Examples
    --------
    >>> from gridgrad.nn import BatchNorm, Sequential
    >>> net = Sequential([BatchNorm(3)])
    >>> list(net.state_dict())
    ['0.weight', '0.bias', '0.running_mean', '0.running_var']
    """

    output_may_be_overwritten = True
    overwrites_gradient = False
    relu: ReLU | None = None  # the layer behind, if both run in the same passes over memory

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        channels = whole_number(channels, "BatchNorm: channels")
        if not eps > 0 or not 0 <= momentum <= 1:
            raise ValueError(f"BatchNorm({channels}): eps must be above 0 and momentum in [0, 1], not {eps} and {momentum}")
        self.channels, self.eps, self.momentum = channels, eps, momentum
        self.gamma = Parameter("weight", (channels,), fill=1.0)
        self.beta = Parameter("bias", (channels,))
        self.mean = Buffer("running_mean", (channels,))
        self.variance = Buffer("running_var", (channels,), fill=1.0)
        self.parameters, self.buffers = (self.gamma, self.beta), (self.mean, self.variance)

    def sum_over_ranks(self, sums: Array) -> Array:
        """Sum `sums`, float64, in place over the ranks that hold other samples or pixels, here none; returns it."""
        return sums

    def rectified(self, relu: ReLU) -> "BatchNorm":
        """This layer and the ReLU behind it, in the same passes over memory."""
        both = copy(self)
        both.relu, both.observed_as, both.overwrites_gradient = relu, self, True
        return both

    def forward(self, x: Array, context: Context) -> Array:
        kept = context[self]
        kept.for_gradients = kept.for_input_gradient = kept.x = None
        if context.training:
            kept.x = x
            kept.mean, variance = self._statistics(x, kept)
        else:
            kept.mean, variance = (buffer.value.astype(xp.float64) for buffer in self.buffers)
        if xp.is_cpu:
            kept.inverse = 1 / xp.sqrt(variance + self.eps)
            kept.scale = self.gamma.value * kept.inverse
            kept.shift = self.beta.value - kept.mean * kept.scale
        else:
            numbers = kept.mean, variance, self.gamma.value, self.beta.value, self.eps
            kept.inverse, kept.scale, kept.shift = fused("affine", *numbers)
        y = kept.workspace("y", x.shape, x.dtype)
        for x_piece, y_piece, scale, shift in pieces((x, y), (kept.scale, kept.shift)):
            if not xp.is_cpu:
                fused("normalise", x_piece, scale, shift, int(self.relu is not None), y_piece)
                continue
            xp.multiply(x_piece, scale, out=y_piece)
            xp.add(y_piece, shift, out=y_piece)
            if self.relu:
                self.relu.activate(y_piece, y_piece)
        if self.relu:  # its time is part of that of the BatchNorm
            context.begin_pass(self.relu, "forward")
            context.end_pass(self.relu, "forward")
        return y

    def _statistics(self, x, kept):
        """The mean and the variance of the global minibatch for each channel, float64. Updates the running ones."""
        channels = x.shape[-1]
        near = self._near_mean(x)  # squares of differences from it round less than those of x
        found = sums_of_pieces(x, 2)
        for number, (x_piece, near_piece) in enumerate(pieces((x,), (near,))):
            difference = xp.subtract(x_piece, near_piece, out=scratch("product", x_piece.shape, x.dtype))
            channel_sums(difference, found[0, number])
            xp.multiply(difference, difference, out=difference)
            channel_sums(difference, found[1, number])
        sums = found.sum(axis=1, dtype=xp.float64)
        rows = prod(x.shape[:-1])
        totals = xp.empty(channels + 1, xp.float64)  # the last element counts the rows
        if not xp.is_cpu:
            return self._moments(sums, near, rows, totals, kept)
        totals[:channels] = sums[0] + rows * near.astype(xp.float64)
        totals[channels] = rows
        self.sum_over_ranks(totals)
        kept.count = xp.maximum(totals[channels:], 1)
        mean = totals[:channels] / kept.count
        apart = mean - near
        squares = self.sum_over_ranks(sums[1] - 2 * apart * sums[0] + rows * apart * apart)
        for buffer, newest in (self.mean, mean), (self.variance, squares / xp.maximum(kept.count - 1, 1)):
            old = buffer.value * (1 - self.momentum)
            buffer.value[...] = old + self.momentum * newest.astype(old.dtype)
        return mean, xp.maximum(squares / kept.count, 0)

    def _moments(self, sums, near, rows, totals, kept):
        """The end of `_statistics` on a GPU: a kernel before, between and after the sums over ranks, not some twenty."""
        fused("totals", sums, near, rows, totals)
        self.sum_over_ranks(totals)
        kept.count = xp.maximum(totals[-1], 1)  # on the device, so that nobody waits for it
        mean, squares = fused("moments", totals[:-1], kept.count, near, sums[0], sums[1], rows)
        self.sum_over_ranks(squares)
        running = (buffer.value for buffer in self.buffers)
        return mean, fused("running", mean, squares, kept.count, self.momentum, *running, xp.empty_like(mean))[2]

    def _near_mean(self, x):
        """The mean of the first samples for each channel, in the type of x."""
        if not x.size:
            return xp.zeros(x.shape[-1], x.dtype)
        some = x[: max(1, kernels().piece // prod(x.shape[1:]))]
        return channel_sums(some, xp.empty(x.shape[-1], x.dtype)) / prod(some.shape[:-1])

    def gradients(self, dy: Array, context: Context) -> None:
        kept = context[self]
        sums = kept.pop("for_gradients")
        if sums is None:
            kept.for_input_gradient = sums = self._sums(dy, context)
        xp.copyto(self.beta.grad, sums[0])
        xp.copyto(self.gamma.grad, sums[1])

    def _sums(self, dy, context):
        """The gradients of beta and gamma, sums over the local rows: (2, channels), float64. A ReLU sets dy to 0 where y is."""
        kept = context[self]
        self.check_trained(kept.x)
        found = sums_of_pieces(dy, 2)
        contiguous = xp.ascontiguousarray(dy)
        vectors = kept.mean, kept.scale, 0 - kept.shift  # not -0, whose difference from a 0 would have a sign bit
        for number, (x_piece, dy_piece, mean, scale, minus_shift) in enumerate(pieces((kept.x, contiguous), vectors)):
            product = scratch("product", dy_piece.shape, dy.dtype)
            if xp.is_cpu:
                if self.relu:
                    keep_where_positive(x_piece, scale, minus_shift, dy_piece)
                xp.subtract(x_piece, mean, out=product)
                xp.multiply(product, dy_piece, out=product)
            else:
                fused("terms_of_sums", x_piece, mean, scale, minus_shift, int(self.relu is not None), dy_piece, product)
            channel_sums(dy_piece, found[0, number])
            channel_sums(product, found[1, number])
        if self.relu:
            context.begin_pass(self.relu, "input_gradient")
            context.end_pass(self.relu, "input_gradient")
            if contiguous is not dy:
                xp.copyto(dy, contiguous)
        sums = found.sum(axis=1, dtype=xp.float64)
        sums[1] *= kept.inverse
        return sums

    def input_gradient(self, dy: Array, context: Context) -> Array:
        """dx = scale (dy - mean of dy - normalised x * mean of (dy * normalised x)): scale dy - slope x - constant."""
        kept = context[self]
        sums = kept.pop("for_input_gradient")
        if sums is None:
            kept.for_gradients = sums = self._sums(dy, context)
        total = self.sum_over_ranks(sums.flatten())
        if xp.is_cpu:
            means = total.reshape(sums.shape) / kept.count
            slope = kept.scale * kept.inverse * means[1]
            constant = kept.scale * means[0] - slope * kept.mean
        else:
            slope, constant = fused("coefficients", total, kept.count, kept.mean, kept.inverse, kept.scale)
        dx = context.gradient_space(dy.shape, dy)
        vectors = kept.scale, slope, constant
        for x_piece, dy_piece, dx_piece, scale, slope, constant in pieces((kept.x, dy, dx), vectors):
            if not xp.is_cpu:
                fused("normalise_gradient", x_piece, dy_piece, scale, slope, constant, dx_piece)
                continue
            term = scratch("product", dy_piece.shape, dy.dtype)
            xp.multiply(x_piece, slope, out=term)
            xp.add(term, constant, out=term)
            xp.multiply(dy_piece, scale, out=dx_piece)
            xp.subtract(dx_piece, term, out=dx_piece)
        return dx

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if shape[-1] != self.channels:
            raise ValueError(f"layer {self.name} {self!r} takes {self.channels} channels but gets {shape[-1]}")
        return shape

    def __repr__(self):
        held = self.gamma.size
        return f"BatchNorm({self.channels}{'' if held == self.channels else f', block of {held}'})"


def keep_where_positive(x, scale, minus_shift, dy):
    """Set dy to 0 in place except where x * scale - minus_shift > 0. All arrays are pieces that fit each other."""
    # The sign bit of minus_shift - x * scale becomes a mask, because NumPy multiplies by booleans more slowly.
    sign = scratch("sign", x.shape, x.dtype)
    xp.multiply(x, scale, out=sign)
    xp.subtract(minus_shift, sign, out=sign)
    integers = np.dtype(f"i{x.itemsize}")
    mask, bits = sign.view(integers), dy.view(integers)
    xp.right_shift(mask, 8 * x.itemsize - 1, out=mask)
    xp.bitwise_and(bits, mask, out=bits)


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
        for x_piece, y_piece in pixel_pieces(x, y, progress=context.progress):
            own = self._own(x_piece)
            xp.multiply(own, self._power(self._base(x_piece))[:, : own.shape[1]], out=y_piece)
        return y

    def input_gradient(self, dy: Array, context: Context) -> Array:
        """dx_c = dy_c base_c^-beta - 2 alpha beta / size x_c sum_c' dy_c' x_c' base_c'^(-beta - 1), over dy without a halo.

        base is k + alpha / size * sum x^2; c' are the channels whose window contains c."""
        x = context[self].x
        dx = dy if dy.shape == x.shape and dy.flags.c_contiguous else context.gradient_space(x.shape, dy)
        factor, start = dx.dtype.type(-2 * self.alpha * self.beta / self.size), self.before + (self.size - 1) // 2
        for x_piece, dy_piece, dx_piece in pixel_pieces(x, dy, dx, progress=context.progress):
            (pixels, channels), own = x_piece.shape, dy_piece.shape[1]
            base = self._base(x_piece)
            power = self._power(base)
            ratio = xp.divide(power, base, out=base)
            xp.multiply(ratio, factor, out=ratio)
            flat, padded = self._padded(pixels, channels, x.dtype)
            shared = padded[:, start : start + own]
            xp.multiply(self._own(x_piece), dy_piece, out=shared)
            xp.multiply(shared, ratio[:, :own], out=shared)
            direct = xp.multiply(dy_piece, power[:, :own], out=power[:, :own])
            xp.multiply(x_piece, self._window_sums(flat, padded.shape)[:, :channels], out=dx_piece)  # dx may be dy
            xp.add(self._own(dx_piece), direct, out=self._own(dx_piece))
        return dx

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


def pixel_pieces(*arrays, progress=None):
    """Yield pieces, (pixels, channels), of arrays (.., channels), that stay in the cache; `progress` is called after each."""
    count = prod(arrays[0].shape[:-1])
    rows = [array.reshape(count, array.shape[-1]) for array in arrays]
    many = max(1, kernels().piece // max(1, arrays[0].shape[-1])) if xp.is_cpu else max(1, count)
    for start in range(0, count, many):
        yield tuple(array[start : start + many] for array in rows)
        if progress:
            progress()
