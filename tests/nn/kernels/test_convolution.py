"""The algorithms of convolution, each by itself, whether or not a layer would choose it."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from gridgrad.nn.device import xp
from gridgrad.nn.kernels import winograd
from gridgrad.nn.kernels.kernel_table import kernels, use
from gridgrad.nn.kernels.patches import Patches, RowPatches, scattering_cost
from gridgrad.nn.kernels.shifted import Shifted
from gridgrad.nn.kernels.window import Window
from gridgrad.nn.kernels.winograd import POINTS, ROW_TILES, TILES, RowWinograd, Winograd

pytestmark = pytest.mark.skipif(not xp.is_cpu, reason="arrays are those of the host")

NO_PADDING = (0, 0), (0, 0)
SHAPES = [  # (images, height, width, inputs, outputs, padding)
    (2, 13, 17, 3, 5, NO_PADDING),
    (3, 9, 8, 4, 4, ((2, 1), (0, 2))),
    (70, 6, 5, 2, 3, ((1, 1), (2, 2))),
    (2, 3, 4, 8, 128, ((2, 2), (2, 2))),  # rows of the output take a multiple of 1 KiB
    (2, 4, 3, 2, 2, ((6, 5), (5, 6))),  # some outputs see nothing but padding
]
LARGEST_ERROR = 2.5e-6  # of the largest element: five times PyTorch's for such shapes

WINOGRADS = [
    *((3, f"RowWinograd {m}", partial(RowWinograd, m=m)) for m in ROW_TILES[3]),
    *((5, f"RowWinograd {m}", partial(RowWinograd, m=m)) for m in ROW_TILES[5]),
    *((3, f"Winograd {m}", partial(Winograd, m=m)) for m in TILES[3]),
    *((5, f"Winograd {m}", partial(Winograd, m=m)) for m in TILES[5]),
]
STRIDE_1 = [*WINOGRADS, (3, "RowPatches", RowPatches), (5, "RowPatches", RowPatches)]
STRIDES = {  # of each algorithm that has any
    Patches: ((1, 1), (2, 2), (3, 2), (1, 3), (2, 1), (5, 4)),
    RowPatches: ((1, 2), (1, 3)),
    Shifted: ((1, 1), (2, 2), (3, 2), (5, 4)),
}
STRIDED = [(make.__name__, stride, make) for make, strides in STRIDES.items() for stride in strides]


def named(parameters):
    return {"argvalues": parameters, "ids": [" ".join(map(str, p[:-1])) for p in parameters]}


def within_a_larger_one(array):
    """The array as a view, as halo exchanges and redistributions hand them on."""
    part = np.full([length + 3 for length in array.shape], 7, array.dtype)[tuple(slice(1, 1 + n) for n in array.shape)]
    part[...] = array
    return part


def passes(convolution, x, w, b, dy, placed=np.copy):
    """(output, gradient of the kernel, of the bias, of the input) of one convolution. placed: a copy of an array of images."""
    x, dy, y, dx, again = map(placed, (x, dy, np.full_like(dy, 7), np.full_like(x, 7), np.full_like(x, 7)))
    dw, db = np.empty_like(w), np.empty_like(b)
    convolution.forward(x, w, b, y)
    convolution.backward(x, w, dy, dw, db, dx)
    convolution.input_gradient(dy, w, again)
    assert np.array_equal(dx, again)
    for array in (y, dx) if placed is within_a_larger_one else ():
        whole = array.base
        assert np.isclose(whole.sum() - array.sum(), 7 * (whole.size - array.size)), "what lies around is left alone"
    return y, dw, db, dx


def by_definition(window, x, w, b, dy):
    """The same, from the formula in `nn/kernels/convolution.py`: one place in the kernel after another."""
    (kh, kw), (sh, sw), ((top, _), (left, _)) = window.kernel, window.stride, window.padding
    p, q = dy.shape[1:3]
    whole = np.pad(x, ((0, 0), *window.padding, (0, 0)))
    y, dw, d_whole = np.broadcast_to(b, dy.shape).copy(), np.empty_like(w), np.zeros_like(whole)
    for i, j in product(range(kh), range(kw)):
        pixels = np.s_[:, i : i + sh * (p - 1) + 1 : sh, j : j + sw * (q - 1) + 1 : sw]
        y += whole[pixels] @ w[i, j]
        dw[i, j] = np.einsum("npqc,npqf->cf", whole[pixels], dy)
        d_whole[pixels] += dy @ w[i, j].T
    return y, dw, dy.sum((0, 1, 2)), d_whole[:, top : top + x.shape[1], left : left + x.shape[2]]


def arrays(shape, window, dtype):
    n, height, width, inputs, outputs, _ = shape
    rng = np.random.default_rng(0)
    sizes = (
        (n, height, width, inputs),
        (*window.kernel, inputs, outputs),
        (outputs,),
        (n, *window.output(height, width), outputs),
    )
    return [rng.standard_normal(size).astype(dtype) for size in sizes]


def check(make, kernel, stride, shapes=SHAPES):
    for shape, placed in product(shapes, (np.copy, within_a_larger_one)):
        window = Window(kernel, stride, shape[-1])
        values = arrays(shape, window, np.float64)
        if values[-1].size and (placed is np.copy or shape[0] < 70):
            for ours, expected in zip(passes(make(window), *values, placed), by_definition(window, *values), strict=True):
                assert np.abs(ours - expected).max(initial=0) <= 1e-11 * max(1, np.abs(expected).max(initial=0)), shape


@pytest.fixture(params=[False, True], ids=["whole", "small blocks"])
def small_blocks(request, monkeypatch):
    """Blocks of the usual size, and small ones: images are cut into rows, and kernels and channels into several parts."""
    if request.param:
        use(replace(kernels(), winograd_bytes=1, winograd_tiles=1, block_bytes=1))
        monkeypatch.setattr(winograd, "KERNELS_AT_ONCE", 2)
        monkeypatch.setattr(winograd, "GRADIENTS_AT_ONCE", 100)
        monkeypatch.setattr(winograd, "CHANNELS_AT_ONCE", dict.fromkeys(POINTS, 2))
        monkeypatch.setattr("gridgrad.nn.kernels.winograd.FEWEST_TILES", 1)
        monkeypatch.setattr("gridgrad.nn.kernels.patches.FEWEST_WINDOWS", 1)


@pytest.mark.parametrize(("kernel", "name", "make"), **named(STRIDE_1))
def test_kernels_that_move_by_single_pixels(kernel, name, make, small_blocks):
    check(make, (kernel, kernel), (1, 1))


@pytest.mark.parametrize(("name", "stride", "make"), **named(STRIDED))
def test_kernels_of_any_shape_and_stride(name, stride, make, small_blocks):
    for kernel in (3, 3), (5, 2), (2, 5):
        check(make, kernel, stride)


def test_the_gradient_of_few_pixels_is_scattered_to_many():
    window = Window((5, 5), (1, 1), NO_PADDING)
    for height, channels, scatters in ((5, 16, True), (5, 1, False), (20, 16, False)):
        shape = 2, height, 9, channels, 20
        assert (Patches(window).input_gradient_cost(*shape) == scattering_cost(channels, 20)) == scatters
        check(Patches, (5, 5), (1, 1), [(*shape, NO_PADDING)])


@pytest.mark.parametrize(("kernel", "name", "make"), **named(WINOGRADS))
def test_rounding_errors_are_small(kernel, name, make):
    shape = 2, 14, 14, 64, 64, ((1, 1), (1, 1))
    window = Window((kernel, kernel), (1, 1), shape[-1])
    chosen = make(window)
    values = arrays(shape, window, np.float32)
    exact = passes(Patches(window), *(value.astype(np.float64) for value in values))
    y, _, _, dx = passes(chosen, *values)
    for ours, expected in ((y, exact[0]), (dx, exact[3])):
        assert np.abs(ours - expected).max() <= LARGEST_ERROR * np.abs(expected).max()
