"""The bias of a layer as a layer of its own, where the rank that adds it is not one that multiplies."""

from gridgrad.nn.kernels.gemm import column_sums
from gridgrad.nn.kernels.patches import add_bias
from gridgrad.nn.layer import Layer


class AddBias(Layer):
    """Adds the bias of a layer to its output, on the rank that has both; elsewhere there is neither. bias: its Parameter."""

    output_may_be_overwritten = True
    passes_buffer = False

    def __init__(self, bias):
        self.bias, self.parameters = bias, (bias,)

    def has_own_output(self, before):
        return False

    def forward(self, x, context):
        if self.bias.size:
            add_bias(x, self.bias.value)
        return x

    def gradients(self, dy, context):
        if self.bias.size:
            column_sums(dy.reshape(-1, self.bias.size), self.bias.grad)

    def input_gradient(self, dy, context):
        return dy
