"""Fully connected layers: with all weights, with most of them zero, or with the same weights twice. Convolutions have the same
base class."""

import math
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gridgrad.nn.arguments import whole_number
from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, to_device, xp
from gridgrad.nn.kernels.gemm import matmul
from gridgrad.nn.kernels.window import take
from gridgrad.nn.kernels.workspace import column_sums
from gridgrad.nn.layer import Layer, Parameter, Part
from gridgrad.nn.layers.activations import Sigmoid


class WeightedLayer(Layer):
    """A layer with a weight (.., inputs, outputs) and, if wanted, a bias. If ranks hold different inputs of the same outputs,
    one of them holds and adds that part of the bias, and the others an empty slice."""

    output_may_be_overwritten = True
    overwrites_gradient = False
    outputs: int

    def __init__(self, weight: Parameter, bias: bool) -> None:
        self.weight, self.has_bias = weight, bool(bias)
        self.bias = Parameter("bias", weight.shape[-1:], weight.bound)
        self.parameters = (self.weight, self.bias) if bias else (self.weight,)

    @property
    def bias_value(self) -> Array:
        """The bias; an empty array if there is none."""
        return self.bias.value if self.has_bias else self.weight.value.reshape(-1)[:0]

    @property
    def bias_gradient(self) -> Array:
        """The array for the gradient of the bias; an empty one if there is none."""
        return self.bias.grad if self.has_bias else self.weight.grad.reshape(-1)[:0]

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if shape != (self.inputs,):
            got = shape[0] if len(shape) == 1 else f"images of {shape}: put a Flatten in front"
            raise ValueError(f"layer {self.name} {self} takes {self.inputs} features but gets {got}")
        return (self.outputs,)


class Linear(WeightedLayer):
    """A fully connected layer, y = x W + b, for x of shape (n, inputs) and y of shape (n, outputs).

    W is stored as (inputs, outputs), for which BLAS is fastest; `state_dict` transposes it to PyTorch's (outputs, inputs).
    Initial weights and biases are uniform in [-1/sqrt(inputs), 1/sqrt(inputs)), as in PyTorch.

    Parameters
    ----------
    inputs, outputs : int
        The numbers of features, at least 1; else ValueError.
    bias : bool
        Whether there is a b.

    Examples
    --------
    >>> from gridgrad.nn import Linear, Sequential
    >>> net = Sequential([Linear(3, 2)])
    >>> {name: array.shape for name, array in net.state_dict().items()}
    {'0.weight': (2, 3), '0.bias': (2,)}
    """

    kind = "linear"

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        inputs, outputs = whole_number(inputs, "Linear: inputs"), whole_number(outputs, "Linear: outputs")
        self.inputs, self.outputs = inputs, outputs
        super().__init__(Parameter("weight", (inputs, outputs), 1 / math.sqrt(inputs), torch_axes=(1, 0)), bias)

    def forward(self, x: Array, context: Context) -> Array:
        kept = context[self]
        kept.x = x
        w, b = self.weight.value, self.bias.value
        y = matmul(x, w, kept.workspace("y", (len(x), w.shape[1]), w.dtype), context.progress)
        return xp.add(y, b, out=y) if self.has_bias and b.size else y

    def gradients(self, dy: Array, context: Context) -> None:
        matmul(context[self].x.T, dy, self.weight.grad, context.progress)
        if self.has_bias and self.bias.grad.size:
            column_sums(dy, self.bias.grad)

    def input_gradient(self, dy: Array, context: Context) -> Array:
        w = self.weight.value
        return matmul(dy, w.T, context.gradient_space((len(dy), w.shape[0]), dy), context.progress)

    def __repr__(self):
        held = self.weight.block_shape
        bias = "" if self.has_bias else ", bias=False"
        block = "" if held == self.weight.shape else f", block {held[0]}x{held[1]}"
        return f"Linear({self.inputs}, {self.outputs}{bias}{block})"


class SparseLinear(Linear):
    """A Linear layer whose weights are zero, and stay so in training, outside of a pattern. The others start as in a Linear.

    The products are those of a dense array, which take about as long as SciPy's with a tenth of the weights. What the zeros
    save is communication, and work of ranks that hold only the rows `inputs_of` their columns.

    Parameters
    ----------
    pattern : array of bool, (inputs, outputs)
        True where a weight may be other than zero. ValueError if it is no such array.
    bias : bool
        Whether there is one.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import SparseLinear
    >>> SparseLinear(np.eye(4, dtype=bool))
    SparseLinear(4, 4, 75.0% zeros)
    """

    def __init__(self, pattern: npt.ArrayLike, bias: bool = True) -> None:
        pattern = np.asarray(pattern)
        if pattern.ndim != 2 or pattern.dtype != bool:
            raise ValueError(f"SparseLinear: pattern must be boolean (inputs, outputs), not {pattern.dtype} {pattern.shape}")
        inputs, outputs = pattern.shape
        super().__init__(inputs, outputs, bias)
        self.pattern = pattern
        self.weight: SparseWeight = SparseWeight(pattern, self.weight.bound)
        self.parameters = (self.weight, *self.parameters[1:])

    def inputs_of(self, columns: Part) -> Part:
        return np.flatnonzero(self.pattern[:, columns].any(axis=1))

    def gradients(self, dy: Array, context: Context) -> None:
        super().gradients(dy, context)
        self.weight.clear(self.weight.grad)

    def __repr__(self):
        return super().__repr__().replace("Linear(", "SparseLinear(").replace(")", f", {1 - self.pattern.mean():.1%} zeros)")


class SparseWeight(Parameter):
    """The weight of a SparseLinear: a dense block that is zero outside of the pattern."""

    def __init__(self, pattern: npt.NDArray[np.bool_], bound: float | None) -> None:
        super().__init__("weight", pattern.shape, bound, torch_axes=(1, 0))
        self.pattern, self.stays_zero = pattern, not pattern.any()

    def placed(self, layout: Any) -> Self:
        new = super().placed(layout)
        vars(new).pop("kept", None)
        return new

    @cached_property
    def kept(self) -> Array:
        """The block of the pattern that this process holds, on the device."""
        return to_device(np.ascontiguousarray(take(self.pattern, self.index)))

    def clear(self, array: Array) -> None:
        """Set the elements of an array of this block's shape to zero that are outside of the pattern."""
        xp.multiply(array, self.kept, out=array)

    def initialise(self, seed: int, stream: str) -> None:
        super().initialise(seed, stream)
        self.clear(self.value)

    def load(self, whole: npt.NDArray[Any]) -> None:
        super().load(whole)
        self.clear(self.value)


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
