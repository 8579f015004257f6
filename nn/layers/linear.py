"""The fully connected layer, and what it has in common with a convolution."""

import math

from gridgrad.nn.arguments import whole_number
from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, xp
from gridgrad.nn.kernels.gemm import matmul
from gridgrad.nn.kernels.workspace import column_sums
from gridgrad.nn.layer import Layer, Parameter


class WeightedLayer(Layer):
    """The base class of Linear and Conv2d, with a weight (.., inputs, outputs) and, if wanted, a bias. If ranks hold different
    inputs of the same outputs, one of them holds and adds that part of the bias, and the others an empty slice.
    """

    output_may_be_overwritten = True
    overwrites_gradient = False

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
        """The array for its gradient; an empty one if there is no bias."""
        return self.bias.grad if self.has_bias else self.weight.grad.reshape(-1)[:0]


class Linear(WeightedLayer):
    """A fully connected layer, y = x W + b, for x of shape (n, inputs) and y of shape (n, outputs).

    W is stored as (inputs, outputs), because BLAS is fastest for `x @ W` and `x.T @ dy`; `state_dict` transposes it to
    PyTorch's (outputs, inputs). Initial weights and biases are uniform in [-1/sqrt(inputs), 1/sqrt(inputs)), as in PyTorch.

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

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if shape != (self.inputs,):
            got = shape[0] if len(shape) == 1 else f"images of {shape}: put a Flatten in front"
            raise ValueError(f"layer {self.name} {self} takes {self.inputs} features but gets {got}")
        return (self.outputs,)

    def __repr__(self):
        held = self.weight.block_shape
        bias = "" if self.has_bias else ", bias=False"
        block = "" if held == self.weight.shape else f", block {held[0]}x{held[1]}"
        return f"Linear({self.inputs}, {self.outputs}{bias}{block})"
