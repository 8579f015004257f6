"""Another BLAS library for large products: here the one inside NumPy, called through its C interface."""

import os
import subprocess
import sys
from itertools import product as combinations

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from gridgrad.nn import Linear, Sequential
from gridgrad.nn.device import is_cpu
from gridgrad.nn.kernels import blas, gemm
from gridgrad.nn.kernels.processor import Blas
from gridgrad.nn.kernels.processor import blas as blas_in_use
from gridgrad.nn.kernels.table_in_use import PLAIN, use

PATHS = [pool["filepath"] for pool in threadpool_info() if pool["user_api"] == "blas" and "numpy" in pool["filepath"]]

pytestmark = pytest.mark.skipif(not is_cpu() or not PATHS, reason="needs NumPy on a CPU with a BLAS library of its own")


@pytest.fixture
def library(monkeypatch):
    """The Library in use, which counts the products that it computes."""
    monkeypatch.setenv("GRIDGRAD_BLAS", PATHS[0])
    chosen, done = blas.library(), []
    compute = chosen.product
    monkeypatch.setattr(chosen, "product", lambda *arrays: compute(*arrays) and (done.append(arrays) or True))
    chosen.done = done
    return chosen


def operand(rows, columns, transposed, dtype):
    values = np.random.default_rng(rows).standard_normal((columns, rows) if transposed else (rows, columns)).astype(dtype)
    return values.T if transposed else values


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "k", "n"), [(31, 200, 17), (1, 500, 70), (7, 1, 5), (5, 3, 1)])
def test_products_equal_those_of_numpy(library, m, k, n, dtype):
    for transposed in combinations((False, True), repeat=2):
        a, b = (operand(*shape, t, dtype) for shape, t in zip(((m, k), (k, n)), transposed, strict=True))
        for out in (np.full((m, n), np.nan, dtype), np.full((m, n + 3), np.nan, dtype)[:, 1:-2]):
            assert blas.product(a, b, out) is out
            np.testing.assert_allclose(out, a @ b, rtol=1e-5 if dtype == np.float32 else 1e-13, atol=1e-5)
    assert len(library.done) == 8


def test_what_it_can_not_compute_numpy_does(library):
    a, b = (operand(6, 6, False, np.float32) for _ in range(2))
    whole = np.empty((12, 12), np.float32)
    for left, right, out in (
        (a[::2, ::2], b[:3], np.empty((3, 6), np.float32)),
        (a, b, whole[:6, ::2]),
        (a[:, :0], b[:0], np.empty((6, 6), np.float32)),
        (a.astype(np.float64), b, np.empty((6, 6))),
        (a, b, np.empty((6, 6), np.float32).T),
    ):
        np.testing.assert_allclose(blas.product(left, right, out), left @ right, rtol=1e-6)
    assert not library.done


def test_large_products_of_layers_go_there_and_small_ones_do_not(library):
    use(PLAIN)
    net = Sequential([Linear(120, 110)], input_shape=(120,))
    net.forward(np.ones((100, 120), np.float32))
    assert [a.shape for a, _, _ in library.done] == [(100, 120)]
    net.forward(np.ones((10, 120), np.float32))
    assert len(library.done) == 1 and gemm.SMALL_PRODUCT >= 10 * 120 * 110


def test_it_is_named_in_reports(library):
    assert blas_in_use().name == "openblas" and blas_in_use().version
    library.path = "/somewhere/libother.so"
    assert blas_in_use() == Blas("libother.so")


def test_names_are_found_and_paths_left_alone(monkeypatch, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmkl_rt.so.3").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert blas.found("mkl") == tmp_path / "lib" / "libmkl_rt.so.3"
    assert blas.found("/a/b.so") == "/a/b.so" and blas.found("nothing") == "libnothing.so"


@pytest.mark.parametrize("name", ["/nowhere/libblas.so", "nothing", "m"])
def test_a_program_refuses_what_is_no_library_with_status_2(name):
    command = [sys.executable, "-m", "gridgrad", "train", "--dataset", "airfoil", "--net", "mlp:4,tanh", "--steps", "1"]
    ended = subprocess.run(command, env=os.environ | {"GRIDGRAD_BLAS": name}, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1 and f"GRIDGRAD_BLAS: {name} can not be used as a BLAS library" in ended.stderr
