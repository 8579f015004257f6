"""What a rank has in place of a layer with parameters that another rank runs."""

from gridgrad.nn.device import xp
from gridgrad.nn.layer import Layer


class Idle(Layer):
    """A layer that runs on the master alone, on another rank: it passes on empty arrays.

    layer: with an empty block of the parameters. before, after: the shapes of an input and of an output sample.
    """

    def __init__(self, layer, before, after):
        self.before, self.after = before, after
        self.parameters, self.buffers = layer.parameters, layer.buffers

    def forward(self, x, context):
        return xp.empty((0, *self.after), x.dtype)

    def input_gradient(self, dy, context):
        return xp.empty((0, *self.before), dy.dtype)
