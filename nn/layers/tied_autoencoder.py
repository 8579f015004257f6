"""The autoencoder with tied weights: one fully connected layer, a sigmoid, and the transpose of the same weights."""

import math

from gridgrad.nn.arguments import whole_number
from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, xp
from gridgrad.nn.kernels.gemm import matmul
from gridgrad.nn.kernels.workspace import column_sums
from gridgrad.nn.layer import Parameter
from gridgrad.nn.layers.activations import Sigmoid
from gridgrad.nn.layers.linear import WeightedLayer


class TiedAutoencoder(WeightedLayer):
    """An autoencoder with tied weights, y = h W^T + c with h = sigmoid(x W + b), for x, y (n, inputs) and h (n, hidden).

    A Sigmoid behind it and the mean squared error from x complete the autoencoder of Marques 2016, Appendix A. W, (inputs,
    hidden), and b have the initial values, and in a `state_dict` the names and shapes, of a `Linear(inputs, hidden)`, so that
    they move into the network that is trained further. c is the "decoder_bias" and starts at 0; where ranks hold blocks of
    the hidden units, one holds and adds all of c, and the others an empty slice.

    Parameters
    ----------
    inputs, hidden : int
        The numbers of features that are encoded and that encode them, at least 1; else ValueError.

    Examples
    --------
    >>> from gridgrad.nn import Linear, Sequential, Sigmoid, TiedAutoencoder
    >>> net, encoder = Sequential([TiedAutoencoder(6, 2), Sigmoid()]), Sequential([Linear(6, 2), Sigmoid()])
    >>> encoder.load_state_dict(net.state_dict(), strict=False)
    """

    kind = "autoencoder"

    def __init__(self, inputs: int, hidden: int) -> None:
        inputs, hidden = whole_number(inputs, "TiedAutoencoder: inputs"), whole_number(hidden, "TiedAutoencoder: hidden")
        super().__init__(Parameter("weight", (inputs, hidden), 1 / math.sqrt(inputs), torch_axes=(1, 0)), bias=True)
        self.inputs, self.outputs, self.hidden = inputs, inputs, hidden
        self.decoder_bias = Parameter("decoder_bias", (inputs,))
        self.parameters = (*self.parameters, self.decoder_bias)
        self.activation = Sigmoid()
        self.activation.in_place = True  # x W + b is needed nowhere else

    def forward(self, x: Array, context: Context) -> Array:
        kept, w, n = context[self], self.weight.value, len(x)
        kept.for_gradients = kept.for_input_gradient = None
        # In the second half are the hidden units; in the first half there will be the gradients in front of the sigmoid.
        kept.x, kept.right = x, kept.workspace("right", (2 * n, w.shape[1]), w.dtype)
        hidden = matmul(x, w, kept.right[n:], context.progress)
        xp.add(hidden, self.bias.value, out=hidden)
        self.activation.forward(hidden, context)
        y = matmul(hidden, w.T, kept.workspace("y", x.shape, w.dtype), context.progress)
        if self.decoder_bias.size:
            xp.add(y, self.decoder_bias.value, out=y)
        return y

    def gradients(self, dy: Array, context: Context) -> None:
        """Both uses of W add to its gradient, x^T da + dy^T h. This is one product, of [x; dy]^T and [da; h]."""
        kept, n = context[self], len(dy)
        da = kept.pop("for_gradients")
        if da is None:
            da = kept.for_input_gradient = self._encoder_gradient(dy, context)
        left = kept.workspace("left", (2 * n, self.inputs), dy.dtype)
        xp.copyto(left[:n], kept.x)
        xp.copyto(left[n:], dy)
        matmul(left.T, kept.right, self.weight.grad, context.progress)
        column_sums(da, self.bias.grad)
        if self.decoder_bias.size:
            column_sums(dy, self.decoder_bias.grad)

    def input_gradient(self, dy: Array, context: Context) -> Array:
        da = context[self].pop("for_input_gradient")
        if da is None:
            da = context[self].for_gradients = self._encoder_gradient(dy, context)
        return matmul(da, self.weight.value.T, context.gradient_space(dy.shape, dy), context.progress)

    def _encoder_gradient(self, dy, context):
        """da, the gradient of x W + b, (n, hidden units held here). The half of backward that runs first computes it."""
        da = matmul(dy, self.weight.value, context[self].right[: len(dy)], context.progress)
        return self.activation.input_gradient(da, context)

    def __repr__(self):
        held = self.weight.block_shape[1]
        block = "" if held == self.hidden else f", {held} of them here"
        return f"TiedAutoencoder({self.inputs}, {self.hidden}{block})"
