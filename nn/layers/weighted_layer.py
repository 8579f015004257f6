"""What the layers with a weight and, if wanted, a bias have in common: `Linear` and `Conv2d`."""

from gridgrad.nn.device import Array
from gridgrad.nn.layer import Layer, Parameter


class WeightedLayer(Layer):
    """The base class of Linear and Conv2d.

    weight: the Parameter of the weight, whose last dimensions are the inputs and the outputs. bias: whether there is one.

    The bias of a block need not be that of the outputs of its weight. If several ranks hold different inputs of the same
    outputs, they compute partial sums: then one rank holds and adds that part of the bias, and the others an empty slice.
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
        """The array for the gradient of the bias; an empty one if there is no bias."""
        return self.bias.grad if self.has_bias else self.weight.grad.reshape(-1)[:0]
