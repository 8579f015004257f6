"""Normalisation layers: over the minibatch for each channel, or over neighbouring channels for each pixel."""

from math import prod

from nn.arguments import whole_number
from nn.device import xp
from nn.gemm import column_sums
from nn.layer import Buffer, Layer, Parameter
from nn.window import matching_slices
from nn.workspace import scratch


def rows_of_channels(x):
    """x as a matrix (samples and pixels, channels), also if it has no channels, where reshape(-1, 0) would fail."""
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


class BatchNorm(Layer):
    """y = gamma (x - mean) / sqrt(variance + eps) + beta for each channel (Ioffe and Szegedy 2015, algorithm 1).

    x: (n, features) or (n, H, W, channels). In training, mean and variance are those of the *global* minibatch, over samples
    and pixels. In evaluation they are the running mean and variance: exponential moving averages over the minibatches,
    updated as running <- (1 - momentum) running + momentum newest. As in PyTorch, the running variance averages the unbiased
    variances.

    channels: the global number of channels. eps: above 0. momentum: in [0, 1]. columns: the channels that this process
    holds, a slice or an index array; by default all. Raises ValueError for values out of range.
    """

    output_may_be_overwritten = True

    def __init__(self, channels, eps=1e-5, momentum=0.1, columns=None):
        channels = whole_number(channels, "BatchNorm: channels")
        if not eps > 0 or not 0 <= momentum <= 1:
            raise ValueError(f"BatchNorm({channels}): eps must be above 0 and momentum in [0, 1], not {eps} and {momentum}")
        self.channels, self.eps, self.momentum = channels, eps, momentum
        index = (slice(0, channels) if columns is None else columns,)
        self.gamma = Parameter("weight", (channels,), index=index, fill=1.0)
        self.beta = Parameter("bias", (channels,), index=index)
        self.mean = Buffer("running_mean", (channels,), index=index)
        self.variance = Buffer("running_var", (channels,), index=index, fill=1.0)
        self.parameters, self.buffers = (self.gamma, self.beta), (self.mean, self.variance)

    def sum_over_ranks(self, sums):
        """Sum `sums`, a float64 array, in place over the ranks that hold other samples or pixels; returns it.

        Here there are no other ranks; a parallel network replaces this by an all-reduce.
        """
        return sums

    def forward(self, x, context):
        kept, flat = context[self], rows_of_channels(x)
        kept.for_gradients = kept.for_input_gradient = kept.normal = None
        y = kept.workspace("y", x.shape, x.dtype)
        out = y.reshape(flat.shape)
        if not context.training:
            scale = self.gamma.value / xp.sqrt(self.variance.value + x.dtype.type(self.eps))
            xp.multiply(flat, scale, out=out)
            xp.add(out, self.beta.value - self.mean.value * scale, out=out)
            return y
        channels = flat.shape[1]
        sums = xp.zeros(channels + 1, xp.float64)  # the last element counts the rows
        sums[:channels] = column_sums(flat, xp.empty(channels, x.dtype))
        sums[channels] = len(flat)
        self.sum_over_ranks(sums)
        kept.count = max(float(sums[channels]), 1.0)
        mean = (sums[:channels] / kept.count).astype(x.dtype)
        kept.normal = kept.workspace("normal", flat.shape, x.dtype)
        xp.subtract(flat, mean, out=kept.normal)
        xp.multiply(kept.normal, kept.normal, out=out)
        squares = self.sum_over_ranks(column_sums(out, xp.empty(channels, x.dtype)).astype(xp.float64))
        variance = squares / kept.count
        self._update_running(mean, squares / max(kept.count - 1, 1.0))
        inverse = (1 / xp.sqrt(variance + self.eps)).astype(x.dtype)
        xp.multiply(kept.normal, inverse, out=kept.normal)
        kept.scale = self.gamma.value * inverse
        xp.multiply(kept.normal, self.gamma.value, out=out)
        xp.add(out, self.beta.value, out=out)
        return y

    def _update_running(self, mean, variance):
        """Update the running mean and variance. variance: the unbiased one of the newest minibatch."""
        for buffer, newest in ((self.mean, mean), (self.variance, variance)):
            old = buffer.value * (1 - self.momentum)
            buffer.value[...] = old + self.momentum * newest.astype(old.dtype)

    def gradients(self, dy, context):
        kept = context[self]
        sums = kept.pop("for_gradients")
        if sums is None:
            kept.for_input_gradient = sums = self._sums(dy, kept)
        xp.copyto(self.beta.grad, sums[0])
        xp.copyto(self.gamma.grad, sums[1])

    def _sums(self, dy, kept):
        """The sums over the local rows of dy and of dy times the normalised x: (2, channels).

        They are the gradients of beta and gamma. `input_gradient` needs them, too, summed over the ranks.
        """
        self.check_trained(kept.normal)
        flat = rows_of_channels(dy)
        sums = xp.empty((2, flat.shape[1]), dy.dtype)
        column_sums(flat, sums[0])
        products = scratch("products", flat.shape, flat.dtype)
        xp.multiply(flat, kept.normal, out=products)
        column_sums(products, sums[1])
        return sums

    def input_gradient(self, dy, context):
        kept = context[self]
        sums = kept.pop("for_input_gradient")
        if sums is None:
            kept.for_gradients = sums = self._sums(dy, kept)
        flat = rows_of_channels(dy)
        channels = flat.shape[1]
        means = (self.sum_over_ranks(sums.astype(xp.float64).reshape(-1)) / kept.count).astype(dy.dtype)
        dx = context.gradient_space(dy.shape, dy)
        out = dx.reshape(flat.shape)
        xp.multiply(kept.normal, means[channels:], out=out)
        xp.add(out, means[:channels], out=out)
        xp.subtract(flat, out, out=out)
        xp.multiply(out, kept.scale, out=out)
        return dx

    def output_shape(self, shape):
        if shape[-1] != self.channels:
            raise ValueError(f"layer {self.name} {self!r} takes {self.channels} channels but gets {shape[-1]}")
        return shape

    def __repr__(self):
        held = self.gamma.size
        return f"BatchNorm({self.channels}{'' if held == self.channels else f', block of {held}'})"


class LocalResponseNorm(Layer):
    """y_c = x_c / (k + alpha / size * sum_(c' near c) x_c'^2)^beta (Krizhevsky et al. 2012, section 3.3).

    x: (n, .., C), y: (n, .., C - before - after). As in PyTorch, the sum goes over the channels from c - size // 2 to
    c + (size - 1) // 2, and alpha is divided by `size`. alpha: at least 0. k: above 0. Raises ValueError for values out of
    range.

    before, after: how many of the first and last channels of x are a halo: they enter the sums of their neighbours, but
    their own outputs are computed by other ranks.
    """

    output_may_be_overwritten = True

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0, before=0, after=0):
        size = whole_number(size, "LocalResponseNorm: size")
        if not alpha >= 0 or not k > 0:
            raise ValueError(f"LocalResponseNorm({size}): alpha must be at least 0 and k above 0, not {alpha} and {k}")
        self.size, self.alpha, self.beta, self.k, self.before, self.after = size, alpha, beta, k, before, after

    def forward(self, x, context):
        kept = context[self]
        kept.x = x
        own = self._own(x)
        squares = scratch("squares", x.shape, x.dtype)
        xp.multiply(x, x, out=squares)
        kept.base = base = kept.workspace("base", own.shape, x.dtype)
        base.fill(0)
        for outputs, inputs in self._matching_slices(x):
            xp.add(base[..., outputs], squares[..., inputs], out=base[..., outputs])
        xp.multiply(base, x.dtype.type(self.alpha / self.size), out=base)
        xp.add(base, x.dtype.type(self.k), out=base)
        kept.factor = kept.workspace("factor", own.shape, x.dtype)
        xp.power(base, x.dtype.type(-self.beta), out=kept.factor)
        y = kept.workspace("y", own.shape, x.dtype)
        return xp.multiply(own, kept.factor, out=y)

    def input_gradient(self, dy, context):
        """dx_c = dy_c base_c^-beta - 2 alpha beta / size x_c sum_c' dy_c' x_c' base_c'^(-beta - 1).

        base is the denominator k + alpha / size * sum x^2; c' are the channels whose window contains c.
        """
        kept = context[self]
        dx = context.gradient_space(kept.x.shape, dy)
        shared = scratch("shared", dy.shape, dy.dtype)
        xp.multiply(dy, self._own(kept.x), out=shared)
        xp.multiply(shared, kept.factor, out=shared)
        xp.divide(shared, kept.base, out=shared)
        dx.fill(0)
        for outputs, inputs in self._matching_slices(dx):
            xp.add(dx[..., inputs], shared[..., outputs], out=dx[..., inputs])
        xp.multiply(dx, kept.x, out=dx)
        xp.multiply(dx, dy.dtype.type(-2 * self.alpha * self.beta / self.size), out=dx)
        xp.multiply(dy, kept.factor, out=shared)
        own = self._own(dx)
        xp.add(own, shared, out=own)
        return dx

    def neighbours(self, part, channels):
        """The slice of input channels that the slice `part` of output channels needs. channels: their global number."""
        return slice(max(0, part.start - self.size // 2), min(channels, part.stop + (self.size - 1) // 2))

    def _own(self, x):
        """x without the channels of the halo."""
        return x[..., self.before : x.shape[-1] - self.after]

    def _matching_slices(self, x):
        """For each place in the window: the slices (outputs, inputs) such that each output has that input at this place."""
        channels = x.shape[-1]
        own = channels - self.before - self.after
        places = range(-(self.size // 2), (self.size - 1) // 2 + 1)
        return [matching_slices(self.before + place, 1, own, channels) for place in places]

    def __repr__(self):
        return f"LocalResponseNorm({self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k})"
