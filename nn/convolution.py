"""Convolution of channels-last images: two algorithms based on matrix products, and the rule that chooses between them.

    y[n, p, q, f] = b[f] + sum_(i, j, c) x[n, p s + i - top, q s + j - left, c] w[i, j, c, f]

x: (n, H, W, C); w: (kh, kw, C, F); b: (F,); y: (n, P, Q, F); s: the stride. Pixels outside the image are zero.

| algorithm              | used for                                       | idea                                           |
|------------------------|------------------------------------------------|------------------------------------------------|
| `Patches`, `RowPatches` | any shape                                     | im2col: the pixels under each window, times w  |
| `Winograd`             | 3x3 and 5x5 kernels, stride 1, above 4 channels | fewer products, between transforms            |

Both work on blocks of images and rows, so that temporary arrays stay in the cache and their size is bounded, however large
the batch is. All layers share this memory: blocks of about 1 MiB each, and for `Winograd` up to three transformed kernels,
which are up to four times as large as the kernel. Winograd's algorithm needs fewer operations, which is the only way to be
faster than PyTorch's direct kernels on large layers: those run near the peak speed of the processor. Its largest errors
relative to the largest element are 3e-6 in float32, and 1e-6 with `Patches`; float64 always uses `Patches`.

Both classes have the same methods, but only `Patches`, which `goes_block_by_block`, lets others work in its `blocks`. Their
argument `progress` is a function that is called after each block, or None.
"""

from functools import lru_cache
from math import inf, prod

import numpy as np

from nn import device
from nn.patches import FEW_CHANNELS, unrolling
from nn.winograd import Winograd

# The sizes of tiles for a kernel of so many rows and columns. Larger tiles have larger rounding errors.
TILES = {3: ((4, 4), (4, 2), (2, 4), (2, 2)), 5: ((3, 2), (2, 3), (2, 2))}

# What the steps around the matrix products cost, in operations of a large matrix product.
UNROLLING_COST = 25  # of one element of an unrolled patch
TRANSFORM_COST = 80  # of one channel of one point of a transformed tile
POINT_COST = 1500  # of a point of a transformed tile besides, which matters where channels are few
KERNEL_COST = 50  # of one element of a kernel that is read for a product, which matters where pixels are few
TRANSFORMED_KERNEL_COST = 100  # of one element of a kernel that is transformed and read
NARROW = 10  # a product with n columns takes 1 + NARROW / n times as long as its operations in a large one


def algorithm(window, channels, filters, rows, columns, dtype, images):
    """The algorithm for a layer: a Patches or Winograd object. This is the only place where it is chosen.

    window: the Window of the layer. channels, filters: C and F. rows, columns: P and Q. dtype: that of the arrays. images: how
    many there are. The choice depends on these and on the kind of device only, never on a measurement, so results are bitwise
    reproducible. A GPU always uses `Patches`, in large blocks, because its library is best at large products.
    """
    few = min(channels, filters) <= FEW_CHANNELS  # mostly a first layer, whose input needs no gradient
    if dtype != np.float32 or not device.is_cpu() or window.stride != (1, 1) or few:
        return unrolling(window, channels)
    return _cheapest(window, channels, filters, rows, columns, images)


@lru_cache(maxsize=1024)
def _cheapest(window, channels, filters, rows, columns, images):
    """The algorithm with the least costs of a training step. The arguments are those of `algorithm`."""
    kh, kw = window.kernel
    candidates = [Winograd(window, m) for m in TILES.get(kh, ()) if kh == kw]
    costs = [winograd_cost(one, channels, filters, rows, columns, images) for one in candidates]
    if min(costs, default=inf) < direct_cost(window, channels, filters, rows, columns, images):
        return candidates[costs.index(min(costs))]
    return unrolling(window, channels)


def direct_cost(window, channels, filters, rows, columns, images):
    """The cost of the forward pass and both halves of the backward pass with `Patches`."""
    taps, products = prod(window.kernel), 2 * channels * filters
    to_filters, to_channels = 1 + NARROW / max(1, filters), 1 + NARROW / max(1, channels)
    pixel = products * (2 * to_filters + to_channels) + UNROLLING_COST * (2 * channels + filters)
    return taps * (images * rows * columns * pixel + 3 * KERNEL_COST * channels * filters)


def winograd_cost(one, channels, filters, rows, columns, images):
    """The same for a Winograd object."""
    products = 2 * channels * filters
    to_filters, to_channels = 1 + NARROW / max(1, filters), 1 + NARROW / max(1, channels)
    transforms = TRANSFORM_COST * (3 * channels + 2 * filters) + 5 * POINT_COST
    tile = products * (2 * to_filters + to_channels) + transforms
    return images * one.products(rows, columns) * tile + 3 * TRANSFORMED_KERNEL_COST * one.points * channels * filters
