import numpy as np
import pytest

from nn import gemm
from nn.device import to_device, to_host, xp

SHAPES = [
    (128, 784, 512),
    (100, 512, 1000),
    (96, 1024, 320),
    (1000, 300, 64),
    (7, 11, 31),
    (0, 5, 3),
    (64, 2000, 640),
    (257, 513, 127),
]


@pytest.mark.parametrize("tiles", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_three_products_equal_float64(shape, tiles, monkeypatch):
    monkeypatch.setattr(gemm, "TILES", tiles)  # tiles are right everywhere, if not fast everywhere
    m, k, n = shape
    rng = np.random.default_rng(0)
    x, w, dy = (to_device(rng.standard_normal(s).astype(np.float32)) for s in ((m, k), (k, n), (m, n)))
    for a, b in ((x, w), (x.T, dy), (dy, w.T)):
        out = xp.empty((a.shape[0], b.shape[1]), np.float32)
        assert gemm.matmul(a, b, out) is out
        expected = to_host(a).astype(np.float64) @ to_host(b).astype(np.float64)
        assert np.allclose(to_host(out), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("rows", "m", "n"), [(9600, 28, 32), (9600, 33, 24), (9601, 28, 32), (7, 11, 31)])
def test_products_over_many_rows_equal_float64(rows, m, n, order, monkeypatch):
    monkeypatch.setattr(gemm, "TILES", True)
    rng = np.random.default_rng(0)
    a = to_device(np.asarray(rng.standard_normal((rows, m)), np.float32, order=order))
    b, out = to_device(rng.standard_normal((rows, n)).astype(np.float32)), xp.empty((m, n), np.float32)
    assert gemm.product_over_rows(a, b, out) is out
    assert np.allclose(to_host(out), to_host(a).astype(np.float64).T @ to_host(b), rtol=1e-4, atol=1e-3)


def test_operands_that_are_neither_order_take_the_plain_call(monkeypatch):
    monkeypatch.setattr(gemm, "TILES", True)
    wide = xp.ones((128, 1600), np.float32)
    out = xp.empty((128, 512), np.float32)
    gemm.matmul(wide[:, ::2], xp.ones((800, 512), np.float32), out)
    assert (out == 800).all()


def test_tiles_fit_and_follow_the_shape_alone():
    for m, k, n in SHAPES:
        for transposed in ((False, False), (True, False), (False, True)):
            tile = gemm.tile(m, k, n, *transposed)
            if tile:
                assert m % tile[0] == 0 and n % tile[1] == 0 and tile[0] * tile[1] * k <= gemm.SMALL_PRODUCT
    assert gemm.tile(128, 784, 512, False, False) == (16, 64)
