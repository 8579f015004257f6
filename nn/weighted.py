"""What the layers with a weight and, if wanted, a bias have in common: `Linear` and `Conv2d`."""

from gridgrad.nn.layer import Layer, Parameter


class WeightedLayer(Layer):
    """The base class of Linear and Conv2d.

    weight: the Parameter of the weight, whose last dimension are the outputs. bias: whether there is one. bias_block: the part
    of the global bias that this process holds and adds, as a slice or an index array, by default that of the weight's outputs.
    If several ranks hold different inputs of the same outputs, they compute partial sums: then one rank holds that part of the
    bias, and the others an empty slice.
    """

    output_may_be_overwritten = True
    overwrites_gradient = False

    def __init__(self, weight, bias, bias_block):
        self.weight, self.has_bias = weight, bool(bias)
        self.bias = Parameter(
            "bias", weight.shape[-1:], weight.bound, (weight.index[-1] if bias_block is None else bias_block,)
        )
        self.parameters = (self.weight, self.bias) if bias else (self.weight,)

    @property
    def bias_value(self):
        """The bias; an empty array if there is none."""
        return self.bias.value if self.has_bias else self.weight.value.reshape(-1)[:0]

    @property
    def bias_gradient(self):
        """The array for the gradient of the bias; an empty one if there is no bias."""
        return self.bias.grad if self.has_bias else self.weight.grad.reshape(-1)[:0]
