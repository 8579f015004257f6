"""Convolution of channels-last images: two algorithms based on matrix products, and the rule that chooses between them.

    y[n, p, q, f] = b[f] + sum_(i, j, c) x[n, p s + i - top, q s + j - left, c] w[i, j, c, f]

x: (n, H, W, C); w: (kh, kw, C, F); b: (F,); y: (n, P, Q, F); s: the stride. Pixels outside the image are zero.

| algorithm  | used for                                     | idea                                                        |
|------------|----------------------------------------------|-------------------------------------------------------------|
| `Patches`  | any shape                                    | im2col: a matrix of the pixels under each window, times w   |
| `Winograd` | 3x3 and 5x5 kernels, stride 1, many channels | F(m x m, r x r): m^2 outputs of (m+r-1)^2 products, not m^2 r^2 |

Both work on blocks of images and rows, so that temporary arrays stay in the cache and their size is bounded, however large
the batch is. `Patches` needs 1 MiB for the unrolled patches (or one row of them, if that is more) and the block of pixels.
`Winograd` needs four buffers of 2 MiB (or 112 tiles, if that is more: 8 MiB at 512 channels) and, in the backward pass,
three transformed kernels, each (m+r-1)^2 / r^2 times as large as the kernel. All layers share this memory. Winograd's
algorithm needs fewer operations, which is the only way to be faster than PyTorch's direct kernels on large layers: those
run near the peak speed of the processor.

Winograd's algorithm: Lavin and Gray 2016, section 4. The 2-D transforms are products with Kronecker products of the 1-D
matrices. The backward pass is the adjoint of each step. The largest relative errors in float32 are 1e-5, and 1e-6 with
`Patches`; float64 always uses `Patches`.

Both classes have the same methods, but only `Patches`, which `goes_block_by_block`, lets others work in its `blocks`. Their
argument `progress` is a function that is called after each block, or None.
"""

import numpy as np

from nn import device
from nn.kernels import kernels
from nn.patches import Patches
from nn.winograd import Winograd


def algorithm(window, channels, filters, rows, columns, dtype):
    """The algorithm for a layer: a Patches or Winograd object. This is the only place where it is chosen.

    window: the Window of the layer. channels, filters: C and F. rows, columns: P and Q. dtype: that of the arrays.
    The choice depends on these, on the kind of device and on the table of kernels only, never on the batch size, so results are
    bitwise reproducible. A GPU always uses `Patches`, in large blocks, because its library is best at large products.
    """
    kh, kw = window.kernel
    winograd_applies = kh == kw and kh in TILES and window.stride == (1, 1) and dtype == np.float32
    fewest = {3: kernels().winograd_3x3, 5: kernels().winograd_5x5}[kh] if winograd_applies and device.is_cpu() else 0
    if fewest and min(channels, filters) >= fewest:
        # Outputs are computed in whole tiles: take the tile size that needs the fewest products, as parts beyond the image
        # are wasted. Winograd's algorithm must at least halve the products, or the transforms cost more than it saves.
        best = min((Winograd(window, m) for m in TILES[kh]), key=lambda one: one.products(rows, columns))
        if 2 * best.products(rows, columns) <= rows * columns * kh * kw:
            return best
    return Patches(window)


# The sizes of tiles for a kernel of so many rows and columns. Larger tiles have larger rounding errors.
TILES = {3: ((4, 4), (4, 2), (2, 4), (2, 2)), 5: ((3, 2), (2, 3), (2, 2))}
