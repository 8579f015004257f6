"""The sizes of scratch memory are those that a training step of a layer asks for, name by name."""

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
GROUPS = Kernels("groups", group_rows=16, small_batch=16)


@pytest.fixture(params=[PRESET, GROUPS], ids=["with Winograd", "unrolled"])
def _table(request):
    use(request.param)
    yield
    use(None)


def asked_for(layers, x):
    """{name: elements} of scratch memory after a training step."""
    net, context = Sequential(layers), Context()
    net.allocate()
    scratch._spaces.clear()
    space_for.cache_clear()
    net.backward(np.ones_like(net.forward(x, context)), context, input_gradient=True)
    return {name: flat.size for name, (_, flat) in scratch._spaces.items()}


def assert_same(found, expected):
    apart = {name: (found.get(name, 0), expected.get(name, 0)) for name in found.keys() | expected.keys()}
    apart = {name: pair for name, pair in apart.items() if abs(pair[0] - pair[1]) > max(NOISE, 0.05 * pair[0])}
    assert not apart, apart


CONVOLUTIONS = [  # samples, size of the image, channels, filters, kernel, stride, padding
    (32, 28, 1, 6, 5, 1, 2), (32, 14, 6, 16, 5, 1, 0), (32, 32, 3, 32, 3, 1, 1), (16, 16, 32, 64, 3, 1, 1),
    (16, 32, 16, 16, 3, 1, 1), (16, 32, 16, 32, 3, 2, 1), (32, 32, 16, 32, 1, 2, 0), (32, 2, 256, 256, 3, 1, 1),
    (4, 16, 64, 128, 3, 1, 1), (4, 8, 300, 32, 3, 1, 1), (1, 7, 8, 8, 3, 1, 0),
]  # fmt: skip


@pytest.mark.usefixtures("_table")
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_a_convolution(case):
    samples, side, channels, filters, kernel, stride, padding = case
    layer = Conv2d(channels, filters, kernel, stride, padding)
    x = np.random.default_rng(0).random((samples, side, side, channels), np.float32)
    assert_same(asked_for([layer], x), scratch_sizes.of_convolution(layer.window, x.shape, filters, x.dtype, True))


@pytest.mark.usefixtures("_table")
def test_a_convolution_with_its_pooling():
    conv, pool, x = Conv2d(3, 32, 5, padding=2), MaxPool2d(2), np.ones((64, 32, 32, 3), np.float32)
    assert_same(asked_for([conv, pool], x), scratch_sizes.of_convolution(conv.window, x.shape, 32, x.dtype, True, pool.window))


@pytest.mark.parametrize(
    "layer", [MaxPool2d(2), MaxPool2d(3, 2, 1), MaxPool2d(3, 1, 1), AvgPool2d(2), AvgPool2d(3, 2)], ids=str
)
def test_a_pooling(layer):
    x = np.random.default_rng(0).random((32, 32, 32, 16), np.float32)
    expected = scratch_sizes.of_pooling(layer.window, x.shape, x.dtype, layer.is_max_pooling)
    assert_same(asked_for([layer], x), expected)


def test_a_batch_norm():
    x = np.random.default_rng(0).random((32, 32, 32, 16), np.float32)
    assert_same(asked_for([BatchNorm(16), ReLU()], x), scratch_sizes.of_batch_norm(x.shape))


def test_an_activation():
    found = asked_for([ReLU()], np.ones((40, 5000), np.float32))
    expected = scratch_sizes.of_activation(200_000)
    assert found["slope"] == expected["slope"] == 4 * expected["positive"]  # where it is positive is a byte each


@pytest.mark.usefixtures("_table")
def test_a_linear_layer_of_few_samples():
    x = np.ones((8, 1024), np.float32)
    assert_same(asked_for([Linear(1024, 2048)], x), scratch_sizes.of_linear(8, 1024, 2048, x.dtype))


def test_what_is_empty_takes_nothing():
    window = Conv2d(3, 4, 3).window
    assert scratch_sizes.of_convolution(window, (0, 8, 8, 3), 4, np.float32, True) == {}
    assert scratch_sizes.of_pooling(window, (0, 8, 8, 3), np.float32, True) == scratch_sizes.of_batch_norm((0, 3)) == {}
