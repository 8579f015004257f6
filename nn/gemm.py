"""Matrix products: one call of the library, on a CPU cut into tiles where that is faster.

OpenBLAS on AVX-512 has kernels for small products (m n k <= 10^6, float32) that read the operands where they
lie, instead of packing them first. `np.matmul` on 4-D strided views runs a large product as many such small
ones in one call. Measured on one Zen 4 core against the plain call: 1.05 to 1.4 times the speed while the
batch is in the hundreds, nothing lost beyond. On other instruction sets the tiles are slower, and not used.

The tile is a function of the shapes alone, never of a measurement, so results repeat bit by bit.
GRIDGRAD_TILES=0 turns tiles off, so that machines with and without AVX-512 sum in the same order.
"""

import os
from functools import lru_cache

import numpy as np
from threadpoolctl import threadpool_info

from nn import device
from nn.device import xp
from nn.workspace import scratch

SMALL_PRODUCT = 10**6  # m n k up to which OpenBLAS does not pack
LONG_PRODUCT = 1 << 27  # m n k of a piece of work, a millisecond or two, where there is something to do in between


def _tiles_pay():
    """Whether NumPy's BLAS is an OpenBLAS of one thread with the AVX-512 kernels."""
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
    """The tile (rows, columns) of an (m, k) x (k, n) product, or None for the plain call.

    a_transposed, b_transposed: whether the operand is the transpose of a row-major array. The three cases are
    the three products of a layer, and each has the widths that suit it: measured, see the module's text.
    """
    if n <= 64 and n % 16 == 0:  # few columns: all of them, and as many rows as fit
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
    """The sums over the rows of a (rows, columns) into `out`, which is returned."""
    ones = scratch("ones", (len(a),), a.dtype)
    ones.fill(1)
    return xp.dot(ones, a, out=out)  # three times as fast as sum(axis=0)


def product_over_rows(a, b, out, progress=None):
    """a.T @ b into `out`, which is returned, for matrices of many rows: a (rows, m), b (rows, n), out (m, n).

    Cut into groups of rows for which OpenBLAS need not pack, whose products are summed.
    """
    (rows, m), n = a.shape, b.shape[1]
    group = divisor(rows, SMALL_PRODUCT // (m * n)) if TILES and device.is_cpu() and a.dtype == np.float32 else 0
    # The sum goes over m n elements a group, a product over 2 m n times its rows.
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
    """a @ b into `out`, which is returned. a: (m, k), b: (k, n), out: (m, n) row-major.

    progress: where it is given, a long product is cut into pieces, behind each of which it is called.
    """
    (m, k), n = a.shape, b.shape[1]
    if progress and m * n * k > LONG_PRODUCT:
        rows = -(-LONG_PRODUCT // (n * k)) if n * k < LONG_PRODUCT else 1
        rows = -(-rows // 64) * 64  # which the tiles divide
        for start in range(0, m, rows):
            _matmul(a[start : start + rows], b, out[start : start + rows])
            progress()
        return out
    return _matmul(a, b, out)


def _matmul(a, b, out):
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
    # Every line below makes a view; the products run over (m / rows) x (n / columns) tiles of `out`.
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
