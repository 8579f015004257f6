"""Products by cuBLAS, by a library that reads its arguments as the manual says: matrices by columns, in this order."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from gridgrad.nn.kernels.cublas import CuBlas


class OnDevice(np.ndarray):
    data = property(lambda self: SimpleNamespace(ptr=self.ctypes.data))


def by_columns(at, rows, columns, step, number):
    """The matrix at an address, as cuBLAS stores it."""
    flat = np.ctypeslib.as_array(ctypes.cast(at, ctypes.POINTER(number)), (step * (columns - 1) + rows,))
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (flat.itemsize, flat.itemsize * step))


class Library:
    def __init__(self):
        self.calls = 0

    def __getattr__(self, name):
        number = {"S": ctypes.c_float, "D": ctypes.c_double}[name[6]]
        return {"gemm_v2": self.gemm, "gemmStridedBatched": self.batch}[name[7:]](number)

    def gemm(self, number):
        def call(_, a_turned, b_turned, m, n, k, alpha, a, a_step, b, b_step, beta, c, c_step):
            assert a_step >= (k if a_turned else m) and b_step >= (n if b_turned else k) and c_step >= m
            first = by_columns(a, *((k, m) if a_turned else (m, k)), a_step, number)
            second = by_columns(b, *((n, k) if b_turned else (k, n)), b_step, number)
            out, old = by_columns(c, m, n, c_step, number), beta._obj.value
            product = alpha._obj.value * ((first.T if a_turned else first) @ (second.T if b_turned else second))
            out[...] = product + old * out if old else product
            self.calls += 1

        return call

    def batch(self, number):
        def call(*arguments):
            *head, a, a_step, a_next, b, b_step, b_next, beta, c, c_step, c_next, count = arguments
            for i in range(count):
                at = [
                    where.value + i * step.value * ctypes.sizeof(number)
                    for where, step in ((a, a_next), (b, b_next), (c, c_next))
                ]
                self.gemm(number)(*head, at[0], a_step, at[1], b_step, beta, at[2], c_step)

        return call


@pytest.fixture
def products():
    made = object.__new__(CuBlas)
    made.cupy, made.library, made.handle = np, Library(), None
    return made


def drawn(*shape, dtype=np.float64):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype).view(OnDevice)


CASES = {  # of a and b, and whether cuBLAS can do it
    "rows": (drawn(3, 4), drawn(4, 5), True),
    "float32": (drawn(3, 4, dtype=np.float32), drawn(4, 5, dtype=np.float32), True),
    "columns": (drawn(4, 3).T, drawn(5, 4).T, True),
    "parts": (drawn(3, 9)[:, 2:6], drawn(8, 5)[::2], True),
    "vectors": (drawn(3, 1), drawn(1, 5), True),
    "several": (drawn(2, 3, 4), drawn(2, 5, 4).swapaxes(1, 2), True),
    "one for several": (drawn(3, 4), drawn(2, 4, 5), True),
    "every second column": (drawn(3, 8)[:, ::2], drawn(4, 5), False),
    "backwards": (drawn(3, 4)[::-1], drawn(4, 5), False),
    "nothing": (drawn(3, 0), drawn(0, 5), False),
}


@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_numpy(products, name):
    a, b, possible = CASES[name]
    expected = np.asarray(a) @ np.asarray(b)
    turned = np.zeros(expected.swapaxes(-1, -2).shape, a.dtype).view(OnDevice).swapaxes(-1, -2)
    for out in np.zeros(expected.shape, a.dtype).view(OnDevice), turned:
        assert products.matmul(a, b, out=out) is out and np.allclose(out, expected, rtol=1e-5)
        if a.ndim == b.ndim == 2:
            products.add_product(a, b, out)
            assert np.allclose(out, 2 * expected, rtol=1e-5)
    assert bool(products.library.calls) == possible


@pytest.mark.parametrize("b", [drawn(4, 5), drawn(4), drawn(4, 2, 3)[:, 0], drawn(0, 5)])
def test_sums_of_columns_are_products_with_a_vector(products, b):
    a, out = drawn(len(b)), np.ones(b.shape[1:]).view(OnDevice)
    assert products.dot(a, b, out=out) is out and np.allclose(out, np.dot(np.asarray(a), np.asarray(b)))
