"""Matrix products: one call of the library or, on a CPU where that is faster, many products of small tiles.

With AVX-512, OpenBLAS has kernels for small products (m n k <= 10^6, float32) that read the operands in place instead of
packing them first. `np.matmul` on 4-D strided views computes a large product as many such small ones in one call. Measured
on one Zen 4 core, this is 1.05 to 1.4 times as fast as the plain call for batches of some hundred samples, and not slower
for larger ones. With other instruction sets tiles are slower, and are not used.

The tile depends on the shapes only, never on a measurement, so results are bitwise reproducible. GRIDGRAD_TILES=0 turns
tiles off, so that machines with and without AVX-512 sum in the same order.
"""

import os
from functools import lru_cache

import numpy as np
from threadpoolctl import threadpool_info

from nn import device
from nn.device import xp
from nn.workspace import scratch

SMALL_PRODUCT = 10**6  # the largest m n k for which OpenBLAS does not pack the operands
LONG_PRODUCT = 1 << 27  # the m n k between two progress points: one or two milliseconds of work


def _tiles_pay():
    """Whether NumPy uses OpenBLAS with AVX-512 kernels and one thread, and the user has not turned tiles off."""
    blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas" and "numpy" in pool["filepath"]]
    return (
        os.environ.get("GRIDGRAD_TILES", "1") != "0"
        and len(blas) == 1
        and blas[0]["internal_api"] == "openblas"
        and blas[0]["num_threads"] == 1
        and blas[0].get("architecture") in ("SkylakeX", "Cooperlake", "SapphireRapids")
    )


TILES = _tiles_pay()


@lru_cache(maxsize=4096)
def tile(m, k, n, a_transposed, b_transposed):
    """The tile (rows, columns) for an (m, k) x (k, n) product, or None if the plain call is better.

    a_transposed, b_transposed: whether the operand is the transpose of a row-major array. These cases are the three products
    of a layer (forward and the two halves of backward); the fastest tiles of each were found by measurement.
    """
    if n <= 64 and n % 16 == 0:  # few columns: the tile has all of them, and as many rows as fit
        rows = divisor(m, SMALL_PRODUCT // (k * n))
        if rows >= 16:
            return rows, n
    if a_transposed:  # weight gradient: x.T @ dy, k is the batch
        candidates = [(64, 32), (32, 32), (16, 32)] if k <= 256 and not b_transposed else []
    elif b_transposed:  # input gradient: dy @ W.T
        if m > 256 and k > 800:
            return None
        candidates = [(rows, 16) for rows in (64, 50, 48, 40, 32, 25, 20, 16)]
    else:  # forward: x @ W
        candidates = [(rows, 64) for rows in (16, 32, 20, 24)] + [(rows, 32) for rows in (50, 48, 32)]
    for rows, columns in candidates:
        if m % rows == 0 and n % columns == 0 and rows * columns * k <= SMALL_PRODUCT:
            return rows, columns
    return None


@lru_cache(maxsize=4096)
def divisor(n, most):
    """The largest divisor of n that is at most `most`; 0 if there is none."""
    return next((d for d in range(min(n, most), 0, -1) if n % d == 0), 0)


def column_sums(a, out):
    """Write the sums of the columns of a, (rows, columns), to `out`, (columns,), and return it."""
    return xp.dot(ones(len(a), a.dtype), a, out=out)  # three times as fast as sum(axis=0)


@lru_cache(maxsize=64)
def ones(count, dtype):
    """`count` ones, on the device. They must not be written to."""
    return xp.ones(count, dtype)


def product_over_rows(a, b, out, progress=None):
    """Write a.T @ b to `out` and return it, for matrices with many rows. a: (rows, m), b: (rows, n), out: (m, n).

    The rows are divided into groups that are small enough for OpenBLAS not to pack, and the groups' products are summed.
    progress: as for `matmul`.
    """
    (rows, m), n = a.shape, b.shape[1]
    group = divisor(rows, SMALL_PRODUCT // (m * n)) if TILES and device.is_cpu() and a.dtype == np.float32 else 0
    # Summing costs m n operations per group, the product 2 m n per row: with few rows per group the sum costs too much.
    if group < 48 or group == rows:
        return matmul(a.T, b, out, progress)
    groups = rows // group
    if a.flags.c_contiguous:
        left = a.reshape(groups, group, m).transpose(0, 2, 1)
    else:
        left = a.T.reshape(m, groups, group).transpose(1, 0, 2)
    products = scratch("products of groups", (groups, m, n), a.dtype)
    xp.matmul(left, b.reshape(groups, group, n), out=products)
    column_sums(products.reshape(groups, m * n), out.reshape(m * n))
    return out


def matmul(a, b, out, progress=None):
    """Write a @ b to `out` and return it. a: (m, k), b: (k, n), out: (m, n), row-major.

    progress: a function to call at progress points: a long product is computed in several pieces, with a call after each.
    """
    (m, k), n = a.shape, b.shape[1]
    if progress and m * n * k > LONG_PRODUCT:
        rows = -(-LONG_PRODUCT // (n * k)) if n * k < LONG_PRODUCT else 1
        rows = -(-rows // 64) * 64  # a multiple of the tiles' rows
        for start in range(0, m, rows):
            _matmul(a[start : start + rows], b, out[start : start + rows])
            progress()
        return out
    return _matmul(a, b, out)


def _matmul(a, b, out):
    """Write a @ b to `out` and return it, in tiles if that is faster."""
    (m, k), n = a.shape, b.shape[1]
    if not TILES or m * n * k <= SMALL_PRODUCT or a.dtype != np.float32 or not out.flags.c_contiguous or not device.is_cpu():
        return xp.matmul(a, b, out=out)
    a_transposed, b_transposed = not a.flags.c_contiguous, not b.flags.c_contiguous
    if (a_transposed and not a.flags.f_contiguous) or (b_transposed and not b.flags.f_contiguous):
        return xp.matmul(a, b, out=out)
    shape = tile(m, k, n, a_transposed, b_transposed)
    if shape is None:
        return xp.matmul(a, b, out=out)
    rows, columns = shape
    # The lines below only make views: (m / rows) x (n / columns) tiles of `out`, and the rows and columns for each.
    if a_transposed:
        a = a.T.reshape(k, m // rows, rows).transpose(1, 2, 0)
    else:
        a = a.reshape(m // rows, rows, k)
    if b_transposed:
        b = b.T.reshape(n // columns, columns, k).transpose(0, 2, 1)
    else:
        b = b.reshape(k, n // columns, columns).transpose(1, 0, 2)
    tiles = out.reshape(m // rows, rows, n // columns, columns).transpose(0, 2, 1, 3)
    xp.matmul(a[:, None], b[None], out=tiles)
    return out
