"""The fully connected layer."""

import math

from nn.arguments import whole_number
from nn.device import xp
from nn.gemm import column_sums, matmul
from nn.layer import Layer, Parameter


class Linear(Layer):
    """y = x W + b, or the block of this product that one rank computes.

    x: (n, inputs), y: (n, outputs). W is stored as (inputs, outputs), because BLAS is fastest for `x @ W` and `x.T @ dy`;
    `state_dict` transposes it to PyTorch's (outputs, inputs). Initial weights and biases are uniform in
    [-1/sqrt(inputs), 1/sqrt(inputs)), as in PyTorch. Raises ValueError if inputs or outputs is not a whole number above 0.

    rows, columns: the block of W that this process holds, as slices or index arrays of the global inputs and outputs.
    bias: the slice of the global bias that this process holds and adds, by default that of the columns. If several ranks
    hold different rows of the same columns, their outputs are partial sums: then one rank holds that part of the bias, and
    the others an empty slice.
    """

    output_may_be_overwritten = True
    kind = "linear"
    overwrites_gradient = False

    def __init__(self, inputs, outputs, rows=None, columns=None, bias=None):
        inputs, outputs = whole_number(inputs, "Linear: inputs"), whole_number(outputs, "Linear: outputs")
        self.inputs, self.outputs = inputs, outputs
        rows = slice(0, inputs) if rows is None else rows
        columns = slice(0, outputs) if columns is None else columns
        bound = 1 / math.sqrt(inputs)
        self.weight = Parameter("weight", (inputs, outputs), bound, (rows, columns), torch_axes=(1, 0))
        self.bias = Parameter("bias", (outputs,), bound, (columns if bias is None else bias,))
        self.parameters = (self.weight, self.bias)

    def block(self, rows, columns, bias):
        """A new layer that holds a block of this one. rows, columns, bias: as for the class."""
        return Linear(self.inputs, self.outputs, rows, columns, bias)

    def forward(self, x, context):
        kept = context[self]
        kept.x = x
        w, b = self.weight.value, self.bias.value
        y = kept.workspace("y", (len(x), w.shape[1]), w.dtype)
        matmul(x, w, y, context.progress)
        if b.size:
            xp.add(y, b, out=y)
        return y

    def gradients(self, dy, context):
        matmul(context[self].x.T, dy, self.weight.grad, context.progress)
        if self.bias.grad.size:
            column_sums(dy, self.bias.grad)

    def input_gradient(self, dy, context):
        w = self.weight.value
        return matmul(dy, w.T, context.gradient_space((len(dy), w.shape[0]), dy), context.progress)

    def output_shape(self, shape):
        if shape != (self.inputs,):
            got = shape[0] if len(shape) == 1 else f"images of {shape}: put a Flatten in front"
            raise ValueError(f"layer {self.name} {self} takes {self.inputs} features but gets {got}")
        return (self.outputs,)

    def __repr__(self):
        held = self.weight.block_shape
        block = "" if held == self.weight.shape else f", block {held[0]}x{held[1]}"
        return f"Linear({self.inputs}, {self.outputs}{block})"
