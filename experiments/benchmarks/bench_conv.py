"""Single convolutions against PyTorch's, one thread each, interleaved: prints JSON, for `bench`.

Forward and backward of one layer. PyTorch has images with channels first and with channels last: the faster one counts.
"""

from dataclasses import dataclass

import numpy as np

from gridgrad.experiments.benchmarks.rounds import add_comparison, compared
from gridgrad.experiments.common.options import Parser
from gridgrad.nn import Context, Conv2d, Sequential
from gridgrad.parallel.job.run import UserError, run_launcher

ROUND_SECONDS = 0.15  # of each side in a round
FIRST_LAYER = 3  # up to so many input channels the layer is a network's first, which needs no gradient of its input
TOLERANCE = 1e-4  # of the largest element


@dataclass(frozen=True)
class Shape:
    """A convolution of square images."""

    inputs: int
    outputs: int
    kernel: int
    size: int
    batch_size: int
    stride: int = 1
    padding: int = 0

    @property
    def name(self):
        stride = f", stride {self.stride}" if self.stride > 1 else ""
        padding = f", padding {self.padding}" if self.padding else ""
        window = f"{self.kernel}x{self.kernel} on {self.size}x{self.size}"
        return f"{self.inputs}-{self.outputs} {window}, batch {self.batch_size}{stride}{padding}"

    @property
    def large(self):
        """Whether its images have many pixels, and so are no part of a quick run."""
        return self.size > 32


SHAPES = [
    Shape(1, 32, 5, 28, 64),
    Shape(3, 64, 5, 32, 64),
    Shape(3, 50, 5, 32, 64),
    Shape(32, 64, 5, 8, 64),
    Shape(32, 64, 5, 12, 64),
    Shape(64, 64, 5, 10, 64),
    Shape(64, 64, 5, 32, 32, 1, 2),
    Shape(50, 500, 5, 14, 64),
    Shape(3, 64, 3, 224, 2, 1, 1),
    Shape(64, 64, 3, 224, 4, 1, 1),
    Shape(128, 128, 3, 112, 4, 1, 1),
    Shape(256, 256, 3, 56, 4, 1, 1),
    Shape(512, 512, 3, 28, 4, 1, 1),
    Shape(512, 512, 3, 14, 8, 1, 1),
    Shape(3, 64, 11, 224, 8, 4, 2),
    Shape(64, 128, 3, 56, 8, 2, 1),
    Shape(64, 64, 3, 32, 32, 1, 1),
]


def conv_steps(shape):
    """(ours, theirs, theirs): functions that go forward and backward through the same layer, on the same images.

    Each returns its output, the gradients of weight and bias and, but for a first layer, that of the input.
    """
    import torch

    from gridgrad.experiments.benchmarks import torch_peer  # here, so that naming the shapes needs no PyTorch

    layer = Conv2d(shape.inputs, shape.outputs, shape.kernel, shape.stride, shape.padding)
    net = Sequential([layer], input_shape=(shape.size, shape.size, shape.inputs))
    is_first, context = shape.inputs <= FIRST_LAYER, Context()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((shape.batch_size, *net.input_shape), np.float32)
    dy = rng.standard_normal((shape.batch_size, *net.output_shape(net.input_shape)), np.float32)

    def ours():
        y = net.forward(x, context)
        dx = net.backward(dy, context, input_gradient=not is_first)  # a convolution leaves dy as it is
        return y, layer.weight.grad, layer.bias.grad, *([] if is_first else [dx])

    def peer(memory_format):
        model = torch_peer.network(net).to(memory_format=memory_format)
        images, gradient = (torch_peer.layout(array, memory_format) for array in (x, dy))
        wanted = [*model.parameters(), *([] if is_first else [images.requires_grad_()])]

        def theirs():
            y = model(images)
            return y, *torch.autograd.grad(y, wanted, gradient)

        return theirs

    theirs = [peer(torch.contiguous_format), peer(torch.channels_last)]
    y, dw, db, *dx = ours()
    weight = torch.from_numpy(dw.transpose(layer.weight.torch_axes))
    for step in theirs:
        check(shape.name, [torch_peer.layout(y), weight, torch.from_numpy(db), *map(torch_peer.layout, dx)], step())
    return ours, *theirs


def check(name, ours, theirs):
    """Raise UserError unless all arrays of both sides agree."""
    for what, a, b in zip(("output", "gradient of the weight", "gradient of the bias", "gradient of the input"), ours, theirs):
        error = ((a - b).abs().max() / b.abs().max()).item()
        if not error <= TOLERANCE:
            raise UserError(f"{name}: the {what} is not PyTorch's: they differ by {error:.1e} of the largest element")


def main():
    parser = Parser(prog="bench_conv", description="Compare single convolutions with PyTorch's.")
    add_comparison(parser)
    compared(SHAPES, conv_steps, ROUND_SECONDS, parser.parse_args(), "shapes")


if __name__ == "__main__":
    run_launcher(main)
