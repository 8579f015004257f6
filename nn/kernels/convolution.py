"""Convolution of channels-last images: algorithms based on matrix products, and the rule that chooses between them.

    y[n, p, q, f] = b[f] + sum_(i, j, c) x[n, p s + i - top, q s + j - left, c] w[i, j, c, f]

x: (n, H, W, C); w: (kh, kw, C, F); b: (F,); y: (n, P, Q, F); s: the stride. Pixels outside the image are zero.

| algorithm               | used for                                      | idea                                          |
|-------------------------|-----------------------------------------------|-----------------------------------------------|
| `Patches`, `RowPatches` | any shape                                     | im2col: the pixels under each window, times w |
| `RowWinograd`           | kernels of 3 or 5 rows, stride 1              | fewer products of rows, and nothing unrolled  |
| `Winograd`              | 3x3 and 5x5 kernels, stride 1, many channels  | fewest products, between transforms           |
| `Shifted`               | large images, on a GPU                        | a product for each pixel of the kernel        |

All work on blocks of images and rows, in memory that all layers share: blocks of about 1 MiB, which stay in the cache, and
for `Winograd` up to two transformed kernels, up to four times as large as the kernel. Its largest errors relative to the
largest element are 2.5e-6 in float32, and 1e-6 with `Patches`; float64 always unrolls.

All classes have the methods of `Patches`, where they are described, but only those with `goes_block_by_block` let others work
in their `blocks`. Their argument `progress` is a function that is called after each block, or None.
"""

from functools import lru_cache

import numpy as np

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.nn.kernels.patches import Patches, unrolling
from gridgrad.nn.kernels.shifted import Shifted
from gridgrad.nn.kernels.winograd import MOST_CHANNELS, ROW_TILES, TILES, RowWinograd, Winograd


def algorithm(window, channels, filters, rows, columns, dtype, images):
    """The algorithm for a layer with C channels and F filters, and rows x columns outputs, by the kind of device and the table
    in use alone: so results are bitwise reproducible."""
    if not xp.is_cpu:
        way = Shifted if Shifted.pays(window, channels, filters, rows, columns) else Patches
        return way(window)
    if dtype == np.float32 and window.stride == (1, 1):
        return _cheapest(kernels(), window, channels, filters, rows, columns, images)
    return unrolling(window, channels)


@lru_cache(maxsize=1024)
def _cheapest(table, window, channels, filters, rows, columns, images):
    """The algorithm with the least costs of a training step, for the arguments of `algorithm`."""
    (fewest, most), (kh, kw), choices = sorted((channels, filters)), window.kernel, [unrolling(window, channels)]
    if not fewest:  # this process has no channels, or no filters
        return choices[0]
    if 0 < table.row_winograd <= fewest:
        considered = [RowWinograd(window, m) for m in ROW_TILES.get(kh, ())]
        # More points in the transforms and longer sums make larger rounding errors.
        choices += [one for one in considered if most <= MOST_CHANNELS[one.n]]
    if kh == kw and 0 < {3: table.winograd_3x3, 5: table.winograd_5x5}.get(kh, 0) <= fewest:
        choices += [Winograd(window, m) for m in TILES[kh]]
    return min(choices, key=lambda one: one.cost(table, channels, filters, rows, columns, images))
