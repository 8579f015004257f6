"""Matrix products: one call of the library or, on a CPU where that is faster, many products of small tiles.

OpenBLAS has kernels for small products (m n k <= 10^6, float32, AVX-512) that read the operands in place instead of packing
them first. `np.matmul` on 4-D strided views computes a large product as many such small ones in one call. Where that is
faster depends on the processor and on the shape: `nn/kernels/kernel_table.py` has the table.

The tile depends on the table and the shapes only, so results are bitwise reproducible.
"""

from functools import lru_cache

import numpy as np

from gridgrad.nn.device import xp
from gridgrad.nn.kernels.kernel_table import FEW_ROWS, ORIENTATIONS, kernels
from gridgrad.nn.kernels.workspace import column_sums, scratch

SMALL_PRODUCT = 10**6  # the largest m n k for which OpenBLAS does not pack the operands
SMALLEST_PRODUCT = 1 << 14  # the smallest m n k that is worth a call of the library
FEWEST_ROWS, MOST_ROWS = 16, 128  # of a tile with all columns
LARGE_OPERAND = 1 << 20  # the elements of a matrix that is much larger than the caches
LONG_ROW = 64  # columns from which on NumPy writes the rows of an outer product at full speed
PARTS = 1 << 20  # the elements of the partial sums that are computed at a time
LONG_PRODUCT = 1 << 27  # the m n k between two progress points: one or two milliseconds of work


@lru_cache(maxsize=4096)
def tile(tiles, m, k, n):
    """The tile (rows, columns) for an (m, k) x (k, n) product, or None for one plain call. tiles: of the table, a Tiles.
    The columns divide n. If the rows do not divide m, what is left is one plain call."""
    if n <= 64 and k <= tiles.few_columns[0 if n <= 16 else 1 if n <= 32 else 2]:
        most = min(MOST_ROWS, SMALL_PRODUCT // (k * n), m)
        rows = divisor(m, most)
        if most >= FEWEST_ROWS:
            return (rows if 2 * rows > most else most), n
    if k > (tiles.most_k_few_rows if m <= FEW_ROWS else tiles.most_k):
        return None
    for rows, columns in tiles.shapes:
        if m % rows == 0 and n % columns == 0 and SMALLEST_PRODUCT <= rows * columns * k <= SMALL_PRODUCT:
            return rows, columns
    return None


@lru_cache(maxsize=4096)
def tile_of_large_operand(m, k, n, right_transposed):
    """The tile for a product of a small batch and a large array, neither of which is then packed; None if there is none.
    right_transposed: whether it is dy @ W.T, with m samples; else it is x.T @ dy, with k samples."""
    if right_transposed:
        columns = divisor(n, min(64, SMALL_PRODUCT // (m * k)))
        return (m, columns) if columns >= 8 else None
    rows = divisor(m, min(16, SMALL_PRODUCT // (k * n)))
    return (rows, n) if rows >= 4 else None


@lru_cache(maxsize=4096)
def divisor(n, most):
    """The largest divisor of n that is at most `most`; 0 if there is none."""
    return next((d for d in range(min(n, most), 0, -1) if n % d == 0), 0)


def group_of(fewest, rows, m, n):
    """How many rows `product_over_rows` takes in a group; 0 for no groups. fewest: the table's group_rows."""
    group = divisor(rows, SMALL_PRODUCT // (m * n)) if fewest and m and n else 0
    # Summing costs m n operations per group, the product 2 m n per row: with few rows per group the sum costs too much.
    return group if fewest <= group < rows else 0


def product_over_rows(a, b, out, progress=None):
    """Write a.T @ b to `out` and return it, for matrices with many rows. a: (rows, m), b: (rows, n), out: (m, n).
    The products of groups of rows, small enough for OpenBLAS not to pack, are summed. progress: as for `matmul`."""
    (rows, m), n = a.shape, b.shape[1]
    group = group_of(kernels().group_rows, rows, m, n) if xp.is_cpu and a.dtype == np.float32 else 0
    if not group:
        return matmul(a.T, b, out, progress)
    groups = rows // group
    products = scratch("products of groups", (groups, m, n), a.dtype)
    xp.matmul(a.reshape(groups, group, m).transpose(0, 2, 1), b.reshape(groups, group, n), out=products)
    column_sums(products.reshape(groups, m * n), out.reshape(m * n))
    return out


def matmul(a, b, out, progress=None):
    """Write a @ b to `out` and return it. a: (m, k), b: (k, n), out: (m, n), row-major.
    progress: a function to call at progress points: a long product is computed in several pieces, with a call after each."""
    (m, k), n = a.shape, b.shape[1]
    if progress and m * n * k > LONG_PRODUCT:
        rows = -(-LONG_PRODUCT // (n * k)) if n * k < LONG_PRODUCT else 1
        rows = -(-rows // 64) * 64  # a multiple of the tiles' rows
        for start in range(0, m, rows):
            matmul(a[start : start + rows], b, out[start : start + rows])
            progress()
        return out
    if k == 1 and n >= LONG_ROW:
        return xp.multiply(a, b, out=out)  # an outer product writes memory, which no kernel of BLAS is made for
    if m * n * k <= SMALL_PRODUCT:
        return xp.matmul(a, b, out=out)
    return _large_product(a, b, out)


def _large_product(a, b, out):
    """Write a @ b to `out` and return it, in tiles if that is faster."""
    (m, k), n = a.shape, b.shape[1]
    if a.dtype != np.float32 or not out.flags.c_contiguous or not xp.is_cpu:
        return xp.matmul(a, b, out=out)
    a_transposed, b_transposed = not a.flags.c_contiguous, not b.flags.c_contiguous
    orientation = a_transposed + 2 * b_transposed  # no layer transposes both
    readable = (a.flags.f_contiguous or not a_transposed) and (b.flags.f_contiguous or not b_transposed)
    if not readable or orientation == len(ORIENTATIONS):
        return xp.matmul(a, b, out=out)
    table, shape = kernels(), None
    if (k if a_transposed else m) <= table.small_batch and (m if a_transposed else k) * n >= LARGE_OPERAND:
        if not a_transposed and not b_transposed:
            return _sum_of_products(a, b, out)
        shape = tile_of_large_operand(m, k, n, b_transposed)
    shape = shape or tile(getattr(table, ORIENTATIONS[orientation]), m, k, n)
    if shape is None:
        return xp.matmul(a, b, out=out)
    rows, columns = shape
    whole = m - m % rows
    if whole < m:
        xp.matmul(a[whole:], b, out=out[whole:])
        a, m = a[:whole], whole
    # The lines below only make views: (m / rows) x (n / columns) tiles of `out`, and the rows and columns for each.
    a, b = a.reshape(m // rows, rows, k), b.reshape(k, n // columns, columns).transpose(1, 0, 2)
    tiles = out[:m].reshape(m // rows, rows, n // columns, columns).transpose(0, 2, 1, 3)
    xp.matmul(a[:, None], b[None], out=tiles)
    return out


def _sum_of_products(a, b, out):
    """Write a @ b to `out` and return it, for a small batch a, (m, k), and a large b, (k, n), both row-major.
    k is divided, so that b is read once, in place, by products that OpenBLAS does not pack. Their results are then added."""
    (m, k), n = a.shape, b.shape[1]
    depth = 64 if m <= 8 else 128
    parts, whole = k // depth, k - k % depth
    width = divisor(n, SMALL_PRODUCT // (m * depth))
    if width < 64 or not parts:
        return xp.matmul(a, b, out=out)
    at_once = max(1, PARTS // (m * n))
    products, sums = scratch("products of parts", (min(at_once, parts), m, n), a.dtype), scratch("sum", (m * n,), a.dtype)
    rows = a[:, :whole].reshape(m, parts, 1, depth).transpose(1, 2, 0, 3)
    columns = b[:whole].reshape(parts, depth, n // width, width).transpose(0, 2, 1, 3)
    for start in range(0, parts, at_once):
        some = products[: parts - start]
        tiles = some.reshape(len(some), m, n // width, width).transpose(0, 2, 1, 3)
        xp.matmul(rows[start : start + at_once], columns[start : start + at_once], out=tiles)
        total = column_sums(some.reshape(len(some), m * n), sums if start else out.reshape(m * n))
        if start:
            xp.add(out, total.reshape(m, n), out=out)
    if whole < k:
        xp.add(out, xp.matmul(a[:, whole:], b[whole:]), out=out)
    return out
