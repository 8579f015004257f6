"""Consecutive layers of a network, whose passes are called apart from those of its other layers."""

from gridgrad.nn.layers.fusion import fuse
from gridgrad.nn.sequence import (
    backward,
    backward_without_input,
    forward,
    input_gradients,
    input_gradients_without_input,
    leaves,
    mark_in_place,
    parameter_gradients,
)


class Chunk:
    """Some consecutive layers of a network. Its passes are those of a Sequential, see there.

    layers: in the order in which they run; they may have no memory yet. is_first: whether they are the first of the network, so
    that nobody needs the gradient of their input.
    """

    def __init__(self, layers, is_first=True):
        self.layers, self.is_first = mark_in_place(list(layers)), is_first
        self.executed = fuse(self.layers)

    def forward(self, x, context):
        """The output of the last layer."""
        return forward(self.executed, x, context)

    def backward(self, dy, context):
        """Both halves of the backward pass; returns the gradient of the input, or None for the first chunk."""
        if not self.is_first:
            return backward(self.executed, dy, context)
        backward_without_input(self.executed, dy, context)
        return None

    def input_gradients(self, dy, context):
        """One half: returns the gradient of the input, or None for the first chunk, and keeps what the other half needs."""
        if not self.is_first:
            return input_gradients(self.executed, dy, context)
        input_gradients_without_input(self.executed, dy, context)
        return None

    def parameter_gradients(self, context):
        """The other half: writes the gradients of the parameters."""
        parameter_gradients(self.executed, context)

    @property
    def parameters(self):
        """The Parameters of its layers, in the order of the flat buffers."""
        return [p for leaf in leaves(self.layers) for p in leaf.parameters]

    @property
    def size(self):
        """How many elements of the parameters this process holds."""
        return sum(p.size for p in self.parameters)
