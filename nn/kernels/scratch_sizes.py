"""How much scratch memory (`nn/kernels/workspace.py`) layers work in, from shapes alone: what a prediction of memory counts.

All layers share it: of each name the process holds the most that any of them asks for. Each function returns {name: elements}
of a training step of one layer, by the names in the code that asks for them, on a CPU with the table in use, without arrays of
a few kilobytes, such as the sums of a bias.
"""

from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from gridgrad.nn.kernels import winograd
from gridgrad.nn.kernels.convolution import algorithm
from gridgrad.nn.kernels.gemm import LARGE_OPERAND, PARTS, group_of
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.patches import FEW_CHANNELS, Patches, RowPatches
from gridgrad.nn.kernels.shifted import Shifted
from gridgrad.nn.kernels.window import COLUMNS, ROWS, phases_of, runs
from gridgrad.nn.kernels.winograd import RowWinograd, Winograd
from gridgrad.nn.kernels.workspace import blocks, piece_length


def largest(*found):
    """For each name the most elements that any of some dicts has."""
    return {name: max(one.get(name, 0) for one in found) for name in set().union(*found)}


def of_convolution(window, x, filters, dtype, needs_gradient, pooled=None):
    """Those of a convolution. x: the shape of its input. needs_gradient: whether that of the input is computed. pooled: the
    Window of the MaxPool2d behind it, where they work together, block by block."""
    return _of_convolution(kernels(), window, tuple(x), filters, np.dtype(dtype), needs_gradient, pooled)


@lru_cache(maxsize=4096)
def _of_convolution(table, window, x, filters, dtype, needs_gradient, pooled):
    (images, *_, channels), (rows, columns) = x, window.output(*x[1:3])
    x, y = _like(x, dtype), _like((images, rows, columns, filters), dtype)
    if not x.size * y.size:
        return {}
    chosen = algorithm(window, channels, filters, rows, columns, dtype, images)
    count, length = _extents(chosen.blocks(x, y.shape))
    found = PASSES[type(chosen)](chosen, x, y, count, length, True) | {"channels 0": piece_length(y)}  # the last for the bias
    if pooled:
        found |= {"convolved": count * prod(y.shape[1:]), "partial gradient": prod(window.kernel) * channels * filters}
        found = largest(found, of_pooling(pooled, (count, *y.shape[1:]), dtype, True))
    if not needs_gradient or isinstance(chosen, Winograd):
        return found
    if isinstance(chosen, Patches) and chosen._scattering_pays(*x.shape, filters):
        return largest(found, {"unrolled": count * length * columns * prod(window.kernel) * channels})
    for _, phase, gradients, part in phases_of(window, y, x):  # the convolutions that compute the gradient of the input
        if phase and part.size:
            one = RowWinograd(phase, chosen.m) if isinstance(chosen, RowWinograd) else chosen.of(phase, filters)
            count, length = _extents(one.blocks(gradients, part.shape))
            some = PASSES[type(one)](one, gradients, part, count, length, False)
            some["turned"] = prod(phase.kernel) * filters * channels
            if window.stride != (1, 1):  # the pixels do not lie side by side, so that each block is copied to its place
                some["product"] = count * length * prod(part.shape[2:])
            found = largest(found, some)
    return found


def of_pooling(window, x, dtype, is_max):
    """Those of a pooling of the maximum or, if `is_max` is false, of the mean. x: the shape of its input."""
    (images, height, width, channels), (rows, columns) = x, window.output(*x[1:3])
    if not prod(x) * rows * columns:
        return {}
    (_, stride, _), (kw, column_stride, _) = window.along(ROWS), window.along(COLUMNS)
    row_bytes, shift = stride * width * channels * np.dtype(dtype).itemsize, (kw - 1) // column_stride
    lengths = {run.stop - run.start for run, _ in runs(*window.along(ROWS), rows, height)}
    count, length = max((_extents(blocks(images, most, row_bytes)) for most in lengths), key=prod)
    halfway, wide = count * length * width * channels, count * length * (columns + shift) * channels
    apart = {f"columns {i}": wide + shift * channels for i in range(min(kw, column_stride))}
    found = apart | {"halfway": halfway, "wide": wide if shift else 0}
    return found | (dict.fromkeys(("mask", "rest"), max(halfway, wide)) if is_max else {"scaled": wide})


def of_linear(samples, inputs, outputs, dtype):
    """Those of a Linear: with few samples, sums of a product with a large weight are computed in parts."""
    few = np.dtype(dtype) == np.float32 and samples <= kernels().small_batch and inputs * outputs >= LARGE_OPERAND
    parts = inputs // (64 if samples <= 8 else 128)
    return {"products of parts": min(parts * samples * outputs, PARTS), "sum": samples * outputs} if few else {}


def of_activation(elements):
    """Those of an elementwise layer."""
    piece = min(elements, kernels().chunk)
    return {"slope": piece, "zeros": piece, "positive": -(-piece // 4)}


def of_batch_norm(x):
    """Those of a BatchNorm. x: the shape of its input."""
    if not prod(x):
        return {}
    piece = piece_length(_like(x, np.dtype(np.float32)))
    names = [*(f"channels {i}" for i in range(3)), "product", "sign"]
    return dict.fromkeys(names, piece) | {"sums of pieces": 2 * -(-prod(x) // piece) * x[-1]}


# ----- forward and, if `backward`, the gradient of the kernel, by the algorithms of `nn/kernels/convolution.py`, in blocks of
# `count` images and `length` rows. x, y: of `_like`.


def _of_row_winograd(one, x, y, count, length, backward):
    kw, channels, (_, _, columns, filters) = one.window.kernel[1], x.shape[3], y.shape
    tiles, kernel = count * -(-length // one.m), kw * channels * filters
    row = lambda pixels, of: (pixels + (pixels * of * x.itemsize % winograd.CONFLICTING_BYTES == 0)) * of  # noqa: E731
    points, products = (one.n * tiles * row(*size) for size in ((columns + kw - 1, channels), (columns, filters)))
    found = {"kernel": one.n * kernel, "points": points, "products": products}
    if backward:
        at_once = min(columns, max(1, kernels().winograd_bytes // (kernel * x.itemsize)))
        found |= {"kernel gradient": one.n * kernel, "products of columns": at_once * kernel, "sums of products": kernel}
    return found


def _of_winograd(one, x, y, count, length, backward):
    (_, height, width, filters), channels, (n, n_columns), (m, m_columns) = y.shape, x.shape[3], one.n, one.m
    (kh, kw), (down, across) = one.window.kernel, one._tile_grid(slice(0, length), width)
    kernel, tiles, reach = one.points * channels * filters, count * down * across, -(-n_columns // m_columns) - 1
    rows, columns = count * down, across + reach
    wide = across * m_columns + kw - 1
    found = {
        "kernel": kernel,
        "kernels halfway": max(kh * n_columns, n * kw) * min(winograd.KERNELS_AT_ONCE, channels * filters),
        "padded": count * (down * m + kh - 1) * wide * channels,
        "padded gradient": count * down * m * across * m_columns * filters,
        "halfway": rows * max(n * wide * channels, m * n_columns * across * filters),
        "points": one.points * tiles * channels,
        "products": one.points * tiles * filters,
        "columns": n * rows * columns * n_columns * channels,
        "pixels": n * rows * columns * m_columns * channels,
    }
    if (down * m, across * m_columns) == (height, width):
        del found["padded gradient"]
    else:
        found["whole tiles"] = count * down * m * across * m_columns * filters
    at_once = winograd.CHANNELS_AT_ONCE[max(one.n)]
    found["sum over some channels"] = tiles * max(filters * (channels > at_once), channels * (filters > at_once))
    if kernel <= winograd.GRADIENTS_AT_ONCE:
        return found | {"kernel gradient": kernel, "products of some points": n_columns * channels * filters}
    at_once = min(channels, max(1, winograd.GRADIENTS_AT_ONCE // (one.points * filters) // 16 * 16))
    share = at_once * filters
    return found | {"products of some channels": one.points * share, "share of the gradient": kh * kw * share}


def _of_patches(one, x, y, count, length, backward):
    (kh, kw), (sh, sw), padding = one.window.kernel, one.window.stride, one.window.padding
    channels, filters = x.shape[3], y.shape[3]
    pixels, patches = kh * kw * channels, count * length * y.shape[2]
    block = count * ((length - 1) * sh + kh) * (x.shape[2] + sum(padding[1])) * channels
    found = {"padded": block if any(map(any, padding)) else 0}
    if (kh, kw, sh, sw) != (1, 1, 1, 1):
        found |= {"unrolled": patches * pixels, "planes": block if channels <= FEW_CHANNELS and sw <= 2 else 0}
    if backward:
        group = group_of(kernels().group_rows, patches, pixels, filters) if x.dtype == np.float32 else 0
        groups = patches // group if group else 0
        found |= {"partial kernel gradient": pixels * filters, "products of groups": groups * pixels * filters}
    return found


def _of_row_patches(one, x, y, count, length, backward):
    (kh, kw), padding, channels, filters = one.window.kernel, one.window.padding, x.shape[3], y.shape[3]
    rows, row, patches = count * (length + kh - 1), kw * channels, count * length * y.shape[2]
    groups = count * -(-length * y.shape[2] // one.ROWS_OF_PRODUCT)
    return {
        "padded": rows * (x.shape[2] + sum(padding[1])) * channels if any(map(any, padding)) else 0,
        "unrolled": rows * y.shape[2] * row,
        "product of rows": kh * filters * max(patches, groups * row if backward else 0),
        "partial kernel gradient": kh * row * filters if backward else 0,
    }


def _of_shifted(one, x, y, count, length, backward):
    (kh, kw), strides, (down, across) = one.window.kernel, one.window.stride, one.reach
    pixels, phases = count * (length + down) * (y.shape[2] + across), product(*map(range, map(min, one.window.kernel, strides)))
    found = {f"every row and column from {i} and {j} on": pixels * x.shape[3] for i, j in phases}
    kernel = kh * kw * x.shape[3] * y.shape[3] if backward else 0
    return found | {"shifted products": pixels * y.shape[3], "partial kernel gradient": kernel}


PASSES = {
    Patches: _of_patches, RowPatches: _of_row_patches, RowWinograd: _of_row_winograd,
    Shifted: _of_shifted, Winograd: _of_winograd,
}  # fmt: skip


def _extents(some):
    """(images, rows) of the first of some blocks, which is the largest."""
    images, rows = next(some)
    return images.stop - images.start, rows.stop - rows.start


def _like(shape, dtype):
    """An array of a shape that takes no memory, for what only asks for shapes."""
    return np.broadcast_to(np.zeros((), dtype), shape)
