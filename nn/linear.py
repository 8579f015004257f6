"""The fully connected layer."""

import math

from gridgrad.nn.arguments import whole_number
from gridgrad.nn.device import xp
from gridgrad.nn.gemm import column_sums, matmul
from gridgrad.nn.layer import Parameter
from gridgrad.nn.weighted import WeightedLayer


class Linear(WeightedLayer):
    """y = x W + b, or the block of this product that one rank computes.

    x: (n, inputs), y: (n, outputs). W is stored as (inputs, outputs), because BLAS is fastest for `x @ W` and `x.T @ dy`;
    `state_dict` transposes it to PyTorch's (outputs, inputs). Initial weights and biases are uniform in
    [-1/sqrt(inputs), 1/sqrt(inputs)), as in PyTorch. Raises ValueError if inputs or outputs is not a whole number above 0.

    bias: whether there is one. rows, columns: the block of W that this process holds, as slices or index arrays of the global
    inputs and outputs. bias_block: that of the bias, see `WeightedLayer`.
    """

    kind = "linear"

    def __init__(self, inputs, outputs, bias=True, rows=None, columns=None, bias_block=None):
        inputs, outputs = whole_number(inputs, "Linear: inputs"), whole_number(outputs, "Linear: outputs")
        self.inputs, self.outputs = inputs, outputs
        rows = slice(0, inputs) if rows is None else rows
        columns = slice(0, outputs) if columns is None else columns
        bound = 1 / math.sqrt(inputs)
        super().__init__(Parameter("weight", (inputs, outputs), bound, (rows, columns), torch_axes=(1, 0)), bias, bias_block)

    def block(self, rows, columns, bias_block):
        """A new layer that holds a block of this one. rows, columns, bias_block: as for the class."""
        return Linear(self.inputs, self.outputs, self.has_bias, rows, columns, bias_block)

    def forward(self, x, context):
        kept = context[self]
        kept.x = x
        w, b = self.weight.value, self.bias_value
        y = kept.workspace("y", (len(x), w.shape[1]), w.dtype)
        matmul(x, w, y, context.progress)
        if b.size:
            xp.add(y, b, out=y)
        return y

    def gradients(self, dy, context):
        matmul(context[self].x.T, dy, self.weight.grad, context.progress)
        if self.bias_gradient.size:
            column_sums(dy, self.bias_gradient)

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
        bias = "" if self.has_bias else ", bias=False"
        block = "" if held == self.weight.shape else f", block {held[0]}x{held[1]}"
        return f"Linear({self.inputs}, {self.outputs}{bias}{block})"
