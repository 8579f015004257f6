"""Winograd's algorithm by itself, with every size of tile, whether or not a layer would choose it."""

from dataclasses import replace

import numpy as np
import pytest

from nn import winograd
from nn.convolution import TILES
from nn.device import is_cpu
from nn.kernels import kernels, use
from nn.patches import Patches
from nn.window import Window
from nn.winograd import POINTS, Winograd, transforms

pytestmark = pytest.mark.skipif(not is_cpu(), reason="a GPU always unrolls")

SHAPES = [  # (images, height, width, inputs, outputs, padding)
    (2, 13, 17, 3, 5, ((0, 0), (0, 0))),
    (1, 18, 7, 5, 3, ((1, 1), (1, 1))),
    (3, 9, 8, 4, 4, ((2, 1), (0, 2))),
    (70, 6, 5, 2, 3, ((1, 1), (2, 2))),
    (1, 5, 5, 1, 1, ((0, 0), (0, 0))),
]
LARGEST_ERROR = 2.5e-6  # of the largest element: five times PyTorch's for such shapes


def passes(convolution, x, w, b, dy):
    """(output, gradient of the kernel, of the bias, of the input) of one convolution."""
    y, dw, db, dx = np.empty_like(dy), np.empty_like(w), np.empty_like(b), np.empty_like(x)
    convolution.forward(x, w, b, y)
    convolution.backward(x, w, dy, dw, db, dx)
    again = np.full_like(x, 7)
    convolution.input_gradient(dy, w, again)
    assert np.array_equal(dx, again)
    return y, dw, db, dx


def arrays(shape, kernel, dtype):
    n, height, width, inputs, outputs, padding = shape
    window = Window((kernel, kernel), (1, 1), padding)
    rng = np.random.default_rng(0)
    sizes = (
        (n, height, width, inputs),
        (kernel, kernel, inputs, outputs),
        (outputs,),
        (n, *window.output(height, width), outputs),
    )
    return window, [rng.standard_normal(size).astype(dtype) for size in sizes]


@pytest.mark.parametrize("small_blocks", [False, True])
@pytest.mark.parametrize(("kernel", "tile"), [(kernel, tile) for kernel, tiles in TILES.items() for tile in tiles])
def test_every_tile_equals_unrolling(kernel, tile, small_blocks, monkeypatch):
    if small_blocks:  # images are cut into rows of tiles, and kernels and channels into several parts
        use(replace(kernels(), winograd_bytes=1, winograd_tiles=1))
        monkeypatch.setattr(winograd, "KERNELS_AT_ONCE", 2)
        monkeypatch.setattr(winograd, "CHANNELS_AT_ONCE", dict.fromkeys(POINTS, 2))
    for shape in SHAPES:
        window, values = arrays(shape, kernel, np.float64)
        for ours, expected in zip(passes(Winograd(window, tile), *values), passes(Patches(window), *values), strict=True):
            assert np.abs(ours - expected).max(initial=0) <= 1e-11 * max(1, np.abs(expected).max(initial=0))


@pytest.mark.parametrize(("kernel", "tile"), [(kernel, tile) for kernel, tiles in TILES.items() for tile in tiles])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (256, 40)])
def test_rounding_errors_are_small(kernel, tile, inputs, outputs):
    shape = 2, 14, 14, inputs, outputs, ((1, 1), (1, 1))
    window, values = arrays(shape, kernel, np.float32)
    exact = passes(Patches(window), *(value.astype(np.float64) for value in values))
    y, _, _, dx = passes(Winograd(window, tile), *values)
    for ours, expected in ((y, exact[0]), (dx, exact[3])):
        assert np.abs(ours - expected).max() <= LARGEST_ERROR * np.abs(expected).max()


@pytest.mark.parametrize("r", [2, 3, 5])
def test_transforms_convolve(r):
    for n in POINTS:
        if n < r:
            continue
        a, g, b = transforms(n - r + 1, r)
        rng = np.random.default_rng(0)
        data, kernel = rng.standard_normal(n), rng.standard_normal(r)
        assert np.allclose(a @ ((g @ kernel) * (b @ data)), np.correlate(data, kernel), rtol=1e-12)
