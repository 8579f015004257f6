"""Layers of images: poolings window by window, a convolution and a pooling that run as one, and where windows lie."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gridgrad.nn import AvgPool2d, Context, MaxPool2d
from gridgrad.nn.device import to_device, to_host
from gridgrad.nn.kernels.kernel_table import kernels, use
from gridgrad.nn.kernels.window import ROWS, Window

POOLINGS = [  # (images, height, width, channels, kernel, stride, padding)
    (3, 8, 8, 3, 2, 2, 0), (2, 9, 8, 3, 3, 2, 1), (2, 7, 7, 1, 3, 1, 1), (2, 6, 7, 2, 2, 3, 1),
    (2, 9, 9, 2, (3, 2), (1, 3), (1, 0)), (3, 5, 6, 4, (5, 6), 1, 0), (2, 8, 7, 2, 5, 1, ((2, 0), (1, 2))),
    (0, 6, 6, 2, 3, 2, 1),
]  # fmt: skip


def windows(shape, window):
    """For each output pixel the slices of rows and columns of the image in its window. shape: (n, H, W, C)."""
    p, q = window.output(*shape[1:3])
    part = lambda dim, i: window.input_part(dim, slice(i, i + 1), shape[dim])  # noqa: E731
    return [((slice(None), i, j), (slice(None), part(1, i), part(2, j))) for i in range(p) for j in range(q)]


def first_maxima(seen):
    """1 where a window (n, rows, columns, C) has its maximum, else 0: in the first column that has it the first row."""
    turned = seen.transpose(0, 3, 2, 1).reshape(len(seen) * seen.shape[3], seen.shape[1] * seen.shape[2])
    first = np.zeros_like(turned)
    first[np.arange(len(turned)), turned.argmax(1) if len(turned) else []] = 1
    return first.reshape(len(seen), seen.shape[3], *seen.shape[2:0:-1]).transpose(0, 3, 2, 1)


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
@pytest.mark.parametrize("shape", POOLINGS)
def test_poolings_reduce_their_windows(shape, block_bytes):
    """The gradient of a maximum goes to one pixel, also where several have it."""
    use(replace(kernels(), block_bytes=block_bytes))
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 3, shape[:4]).astype(float)
    for layer in (MaxPool2d(*shape[4:]), AvgPool2d(*shape[4:])):
        scale = 1 / np.prod(layer.window.kernel)
        expected, dx_expected, context = np.zeros((len(x), *layer.window.output(*x.shape[1:3]), x.shape[3])), 0 * x, Context()
        dy = rng.standard_normal(expected.shape)
        for output, pixels in windows(x.shape, layer.window):
            seen = x[pixels]
            expected[output] = seen.max((1, 2)) if layer.is_max_pooling else seen.sum((1, 2)) * scale
            share = first_maxima(seen) if layer.is_max_pooling else np.full_like(seen, scale)
            dx_expected[pixels] += share * dy[output][:, None, None]
        y = to_host(layer.forward(to_device(x), context)).copy()
        dx = to_host(layer.input_gradient(to_device(dy), context))
        np.testing.assert_allclose(y, expected, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(dx, dx_expected, rtol=1e-12, atol=1e-13)
        assert np.array_equal(to_host(layer.forward(to_device(x), Context(training=False))), y)


# ----- windows


def test_a_part_of_the_outputs_sees_the_rows_and_the_padding_of_its_own_windows():
    for kernel, stride, before, after, length in product((1, 2, 3), (1, 2), range(3), range(2), (1, 4, 7)):
        window = Window((kernel, 1), (stride, 1), ((before, after), (0, 0)))
        outputs = window.outputs(ROWS, length)
        for first, last in product(range(outputs), range(outputs + 1)):
            part = window.input_part(ROWS, slice(first, last), length)
            own = window.of_part(ROWS, slice(first, last), length)
            if last <= first:
                assert part == slice(0, 0)
                continue
            span = range(first * stride - before, (last - 1) * stride - before + kernel)
            assert [*range(length)[part]] == [row for row in span if 0 <= row < length]
            if part.stop > part.start:
                assert own.padding[0] == (part.start - span.start, span.stop - part.stop)
                assert own.outputs(ROWS, part.stop - part.start) == last - first
