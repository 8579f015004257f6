"""Convolution of channels-last images: three algorithms based on matrix products, and the rule that chooses between them.

    y[n, p, q, f] = b[f] + sum_(i, j, c) x[n, p s + i - top, q s + j - left, c] w[i, j, c, f]

x: (n, H, W, C); w: (kh, kw, C, F); b: (F,); y: (n, P, Q, F); s: the stride. Pixels outside the image are zero.

| algorithm               | used for                                      | idea                                          |
|-------------------------|-----------------------------------------------|-----------------------------------------------|
| `Patches`, `RowPatches` | any shape                                     | im2col: the pixels under each window, times w |
| `RowWinograd`           | kernels of 3 or 5 rows, stride 1              | fewer products of rows, and nothing unrolled  |
| `Winograd`              | 3x3 and 5x5 kernels, stride 1, many channels  | fewest products, between transforms           |

All work on blocks of images and rows, so that temporary arrays stay in the cache and their size is bounded, however large
the batch is. All layers share this memory: blocks of about 1 MiB each, and for `Winograd` up to two transformed kernels,
which are up to four times as large as the kernel. Winograd's algorithm needs fewer operations, which is the only way to be
faster than PyTorch's direct kernels on large layers: those run near the peak speed of the processor. Its largest errors
relative to the largest element are 2.5e-6 in float32, and 1e-6 with `Patches`; float64 always unrolls.

All classes have the same methods, but only those with `goes_block_by_block` let others work in their `blocks`. Their
argument `progress` is a function that is called after each block, or None.
"""

from functools import lru_cache
from math import prod

import numpy as np

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.patches import unrolling
from gridgrad.nn.kernels.row_winograd import MOST_CHANNELS, ROW_TILES, RowWinograd
from gridgrad.nn.kernels.winograd import TILES, Winograd


def algorithm(window, channels, filters, rows, columns, dtype, images):
    """The algorithm for a layer, chosen here only: by the Window, C and F, P and Q, the dtype, the number of images, the kind
    of device and the table in use. So results are bitwise reproducible. A GPU always uses `Patches`, in large blocks, because
    its library is best at large products."""
    if dtype == np.float32 and xp.is_cpu and window.stride == (1, 1):
        return _cheapest(kernels(), window, channels, filters, rows, columns, images)
    return unrolling(window, channels)


@lru_cache(maxsize=1024)
def _cheapest(table, window, channels, filters, rows, columns, images):
    """The algorithm with the least costs of a training step, for the arguments of `algorithm`."""
    shape, direct = (channels, filters, rows, columns, images), unrolling(window, channels)
    choices = [(row_winograd_cost(table, one, *shape), one) for one in row_winograds(table, window, channels, filters)]
    choices += [(winograd_cost(table, one, *shape), one) for one in winograds(table, window, channels, filters)]
    if not choices:
        return direct
    cost, best = min(choices, key=lambda choice: choice[0])
    return best if cost < direct_cost(table, window, *shape) else direct


def winograds(table, window, channels, filters):
    """The Winograd objects to consider, one for each size of tiles."""
    kh, kw = window.kernel
    fewest = {3: table.winograd_3x3, 5: table.winograd_5x5}.get(kh, 0) if kh == kw else 0
    return [Winograd(window, m) for m in TILES[kh]] if 0 < fewest <= min(channels, filters) else []


def row_winograds(table, window, channels, filters):
    """The RowWinograd objects to consider. More points in the transforms and longer sums make larger rounding errors."""
    if not 0 < table.row_winograd <= min(channels, filters):
        return []
    considered = [RowWinograd(window, m) for m in ROW_TILES.get(window.kernel[0], ())]
    return [one for one in considered if max(channels, filters) <= MOST_CHANNELS[one.n]]


def products_cost(table, channels, filters):
    """The cost of the products of one element of a kernel in a training step: forward, gradients, gradient of the input."""
    to_filters, to_channels = (1 + table.narrow / columns for columns in (filters, channels))
    return 2 * channels * filters * (2 * to_filters + to_channels)


def direct_cost(table, window, channels, filters, rows, columns, images):
    """The cost of a training step with `Patches`, in operations of a large matrix product."""
    pixel = products_cost(table, channels, filters) + table.unroll * (2 * channels + filters)
    return prod(window.kernel) * (images * rows * columns * pixel + 3 * table.read_kernel * channels * filters)


def winograd_cost(table, one, channels, filters, rows, columns, images):
    """The same with `one`, a Winograd object. It makes five transforms: of x in both passes and of the gradient of x, which
    have C channels, of y and of its gradient."""
    transforms = table.transform_channel * (3 * channels + 2 * filters) + 5 * table.transform_point
    points = images * one.products(rows, columns) * (products_cost(table, channels, filters) + transforms)
    return points + 3 * table.transform_kernel * one.points * channels * filters


def row_winograd_cost(table, one, channels, filters, rows, columns, images):
    """The same with `one`, a RowWinograd object. The gradient of the input is a convolution, too; that of the kernel costs as
    much as the outputs."""
    (kh, kw), (vertical, horizontal) = one.window.kernel, one.window.padding
    height, width = rows + kh - 1 - sum(vertical), columns + kw - 1 - sum(horizontal)
    forward = row_winograd_pass(table, one, channels, filters, rows, columns, images)
    return 2 * forward + row_winograd_pass(table, one, filters, channels, height, width, images)


def row_winograd_pass(table, one, channels, filters, rows, columns, images):
    """The cost of one pass: products, two transforms, and a kernel that each block reads once for each column."""
    kw = one.window.kernel[1]
    products = images * one.products(rows, columns) * kw * 2 * channels * filters * (1 + table.narrow / filters)
    transforms = table.transform_row * images * rows * ((columns + kw - 1) * channels + columns * filters)
    blocks = sum(1 for _ in one.blocks_of((images, rows, columns, filters), channels, 4))
    return products + transforms + table.row_kernel * blocks * one.n * columns * kw * channels * filters
