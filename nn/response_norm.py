"""Normalisation over neighbouring channels."""

from nn.arguments import whole_number
from nn.device import xp
from nn.layer import Layer
from nn.window import matching_slices
from nn.workspace import scratch


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
