"""Products equal float64 with every table of kernels, whatever it cuts, and choose the tiles that were measured."""

from dataclasses import replace

import numpy as np
import pytest

from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.kernels import gemm
from gridgrad.nn.kernels.kernel_table import NO_LIMIT, ORIENTATIONS, PLAIN, PRESET, SHIPPED, Kernels, Tiles, use

SHAPES = [
    (128, 784, 512),
    (1000, 300, 64),
    (2400, 28, 48),
    (7, 11, 31),
    (0, 5, 3),
    (1061, 27, 64),  # rows that tiles with all columns leave over
    (257, 513, 127),
    (11, 1100, 1024),  # few rows and a large matrix: a sum of products, and what they leave over
]
# Cuts whatever can be cut, whether that is fast or not.
CUT = Tiles((NO_LIMIT,) * 3, tuple((rows, columns) for rows in (32, 25, 1) for columns in (64, 10, 1)), NO_LIMIT, NO_LIMIT)
CUTTING = Kernels("cutting", **dict.fromkeys(ORIENTATIONS, CUT), group_rows=1, small_batch=16)
TABLES = {**SHIPPED, "plain": PLAIN, "preset": PRESET, "cutting": CUTTING}


def products(shape):
    """The three products of a layer: forward, and both halves of backward."""
    m, k, n = shape
    rng = np.random.default_rng(0)
    x, w, dy = (to_device(rng.standard_normal(s).astype(np.float32)) for s in ((m, k), (k, n), (m, n)))
    column_by_column, of_neither_order = (
        to_device(np.asfortranarray(to_host(x))),
        to_device(np.repeat(to_host(x), 2, 1))[:, ::2],
    )
    for a, b in ((x, w), (x.T, dy), (dy, w.T), (column_by_column, w), (of_neither_order, w)):
        out = xp.full((a.shape[0], b.shape[1]), np.nan, np.float32)  # whatever is not written shows
        assert gemm.matmul(a, b, out) is out
        yield a, b, to_host(out)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("shape", SHAPES)
def test_all_products_equal_float64_with_every_table_and_repeat_bit_by_bit(shape, table):
    use(TABLES[table])
    first = [out for *_, out in products(shape)]
    use(PLAIN if table != "plain" else CUTTING)
    list(products(shape))
    use(replace(TABLES[table]))
    for (a, b, out), before in zip(products(shape), first, strict=True):
        expected = to_host(a).astype(np.float64) @ to_host(b).astype(np.float64)
        assert np.allclose(out, expected, rtol=1e-4, atol=1e-3) and np.array_equal(out, before)


@pytest.mark.parametrize("table", ["Zen 4", "plain", "cutting"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("rows", "m", "n"), [(9600, 28, 32), (9601, 33, 24), (7, 11, 31)])
def test_products_over_many_rows_equal_float64(rows, m, n, order, table):
    use(TABLES[table])
    rng = np.random.default_rng(0)
    a = to_device(np.asarray(rng.standard_normal((rows, m)), np.float32, order=order))
    b, out = to_device(rng.standard_normal((rows, n)).astype(np.float32)), xp.empty((m, n), np.float32)
    assert gemm.product_over_rows(a, b, out) is out
    assert np.allclose(to_host(out), to_host(a).astype(np.float64).T @ to_host(b), rtol=1e-4, atol=1e-3)
