"""The layers of Hegde and Usmani 2016, section 3, and the times of their forward passes in this process."""

import numpy as np

from gridgrad.experiments.papers.cited import published
from gridgrad.nn import Context, Conv2d, Linear, Sequential, device
from gridgrad.parallel.calibration.timing import times_in_turns

KERNELS, KERNEL, STRIDE, SIZE = (published("hegde2016").values[name].value for name in ("kernels", "kernel", "stride", "image"))
OUTPUTS = (SIZE - KERNEL) // STRIDE + 1  # 54 rows and columns
REPEATS = 2  # timings of each layer in a process


def flops_of_image(channels):
    """The operations of the convolution of an image."""
    return 2 * KERNEL**2 * channels * KERNELS * OUTPUTS**2


def convolution(channels, batch_size):
    """The seconds of the convolution of so many images, a list of REPEATS."""
    return seconds(Conv2d(channels, KERNELS, KERNEL, STRIDE), (SIZE, SIZE, channels), batch_size)


def dense(batch_size, n):
    """The seconds of a fully connected layer of n inputs and n outputs, a list of REPEATS."""
    return seconds(Linear(n, n), (n,), batch_size)


def seconds(layer, shape, batch_size):
    """The seconds of REPEATS forward passes of a layer on made-up samples."""
    net = Sequential([layer], input_shape=shape)
    net.allocate()
    return times_in_turns({"forward": pass_of(layer, shape, batch_size)}, REPEATS)["forward"]


def pass_of(layer, shape, batch_size):
    """A function that passes made-up samples through a layer, whose parameters are allocated, until the device has finished."""
    x = device.to_device(np.random.default_rng(0).standard_normal((batch_size, *shape), np.float32))
    context = Context(training=False, batch_size=batch_size)

    def forward():
        layer.forward(x, context)
        device.synchronise()

    return forward
