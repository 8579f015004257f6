"""The fully connected layer."""

import math

from nn.arguments import whole_number
from nn.device import xp
from nn.gemm import column_sums, matmul
from nn.layer import Layer, Parameter


class Linear(Layer):
    """y = x W + b, or the block of it that one rank holds.

    x: (n, inputs), y: (n, outputs). W is kept as (inputs, outputs), because `x @ W` and `x.T @ dy` are the
    two products that BLAS does best; `state_dict` turns it into PyTorch's (outputs, inputs).
    Initial weights and biases are uniform in +-1/sqrt(inputs), PyTorch's default.

    rows, columns: the block of W held, as slices or index arrays of the global inputs and outputs.
    bias: the slice of the global bias that is *added here*: the columns held; or, where several ranks hold
    rows of the same columns and their products are summed later, all of it on one rank and none on the others.
    """

    output_may_be_overwritten = True
    kind = "linear"

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
        """A new layer that holds a block of this one: see `rows`, `columns` and `bias` above."""
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
