"""The sizes of scratch memory are those that a training step of a layer asks for, name by name."""

from dataclasses import replace

import numpy as np
import pytest

from gridgrad.nn import AvgPool2d, BatchNorm, Context, Conv2d, Linear, MaxPool2d, ReLU, Sequential
from gridgrad.nn.device import xp
from gridgrad.nn.kernels import scratch_sizes
from gridgrad.nn.kernels.kernel_table import PRESET, Kernels, use
from gridgrad.nn.kernels.workspace import scratch
from gridgrad.nn.layers.pool import space_for

pytestmark = pytest.mark.skipif(not xp.is_cpu, reason="what is counted are the kernels of CPUs")

NOISE = 8192  # elements of arrays that are left out or smaller in the last block
# PRESET itself would be replaced by what is measured here, as soon as there is a network.
TABLES = {"with Winograd": replace(PRESET, name="winograd"), "unrolled": Kernels("groups", group_rows=16, small_batch=16)}
SQUARES = 32, 32, 32, 16
CONVOLUTIONS = [  # samples, size of the image, channels, filters, kernel, stride, padding
    (32, 28, 1, 6, 5, 1, 2), (32, 14, 6, 16, 5, 1, 0), (16, 16, 32, 64, 3, 1, 1), (16, 32, 16, 32, 3, 2, 1),
    (32, 32, 16, 32, 1, 2, 0), (32, 2, 256, 256, 3, 1, 1), (4, 8, 300, 32, 3, 1, 1), (1, 7, 8, 8, 3, 1, 0),
]  # fmt: skip


def asked_for(layers, shape):
    """{name: elements} of scratch memory after a training step for an input of some shape."""
    net, context = Sequential(layers), Context()
    net.allocate()
    scratch._spaces.clear()
    space_for.cache_clear()
    x = np.random.default_rng(0).random(shape, np.float32)
    net.backward(np.ones_like(net.forward(x, context)), context, input_gradient=True)
    return {name: flat.size for name, (_, flat) in scratch._spaces.items()}


def convolution(samples, side, channels, filters, kernel, stride, padding):
    """(layers, shape of the input, the sizes that are expected)."""
    layer, shape = Conv2d(channels, filters, kernel, stride, padding), (samples, side, side, channels)
    return [layer], shape, scratch_sizes.of_convolution(layer.window, shape, filters, np.float32, True)


def pooled_convolution():
    layers, shape = [Conv2d(3, 32, 5, padding=2), MaxPool2d(2)], (64, 32, 32, 3)
    return layers, shape, scratch_sizes.of_convolution(layers[0].window, shape, 32, np.float32, True, layers[1].window)


def pooling(kind, *arguments):
    layer = kind(*arguments)
    return [layer], SQUARES, scratch_sizes.of_pooling(layer.window, SQUARES, np.float32, layer.is_max_pooling)


CASES = {  # functions, since sizes depend on the table
    **{f"Conv2d {case}": lambda case=case: convolution(*case) for case in CONVOLUTIONS},
    "Conv2d and MaxPool2d": pooled_convolution,
    "MaxPool2d": lambda: pooling(MaxPool2d, 2),
    "MaxPool2d with overlaps": lambda: pooling(MaxPool2d, 3, 2, 1),
    "AvgPool2d": lambda: pooling(AvgPool2d, 3, 2),
    "BatchNorm": lambda: ([BatchNorm(16), ReLU()], SQUARES, scratch_sizes.of_batch_norm(SQUARES)),
    "Linear": lambda: ([Linear(1024, 2048)], (8, 1024), scratch_sizes.of_linear(8, 1024, 2048, np.float32)),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", CASES)
def test_a_step_asks_for_the_sizes_that_are_said(name, table):
    use(TABLES[table])
    layers, shape, expected = CASES[name]()
    found = asked_for(layers, shape)
    apart = {name: (found.get(name, 0), expected.get(name, 0)) for name in found.keys() | expected.keys()}
    assert not {name: pair for name, pair in apart.items() if abs(pair[0] - pair[1]) > max(NOISE, 0.05 * pair[0])}
