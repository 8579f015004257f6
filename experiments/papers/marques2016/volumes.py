"""What a master and its slaves send each other for the convolutions of a minibatch: equation 5.1 of the thesis, in elements.

    upload = sum_i (in_i^2 inCh_i batch + k_i^2 numK_i inCh_i + out_i^2 numK_i batch)

This is what one slave receives and sends in the forward pass, where numK_i is the number of *its* kernels. With several slaves
the first term counts once for each slave that has kernels. A training step sends it twice, because the backward pass is the
adjoint of the forward pass, without the gradient of the first layer's input, which nobody needs.
"""

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class MarquesConvolution:
    """A convolution in the plan "marques". before, after: the shapes of an input and of an output sample, (rows, columns,
    channels). window: the rows and columns of a kernel. kernels: how many each rank has, the master's first."""

    before: tuple
    after: tuple
    window: tuple
    kernels: tuple

    def inputs(self, batch_size):
        """Elements of the input that the master sends."""
        return sum(n > 0 for n in self.kernels[1:]) * batch_size * prod(self.before)

    def upload(self, batch_size, masters=1):
        """Equation 5.1 for this layer, the sum over the slaves. masters: how many share the minibatch, each with its slaves."""
        kernels, pixels = prod(self.window) * self.before[-1], prod(self.after[:-1])
        return self.inputs(batch_size) + sum(self.kernels[1:]) * (masters * kernels + batch_size * pixels)


def marques_forward(batch_size, convolutions, masters=1, itemsize=4):
    """Bytes that all ranks together send in a forward pass for the MarquesConvolutions of a network: equation 5.1."""
    return itemsize * sum(layer.upload(batch_size, masters) for layer in convolutions)


def marques_step(batch_size, convolutions, masters=1, itemsize=4):
    """The same in a training step, if the first convolution is the first layer with parameters."""
    unneeded = itemsize * convolutions[0].inputs(batch_size)
    return 2 * marques_forward(batch_size, convolutions, masters, itemsize) - unneeded
