"""Large matrix products by another BLAS library than the one in NumPy: the one that GRIDGRAD_BLAS names.

NumPy from PyPI comes with OpenBLAS. The library of a processor's vendor often multiplies large matrices faster, and machines
for high-performance computing have it: MKL, AOCL, ArmPL, NVPL. It is called through its C interface, which all of them share.
Everything else, also the products that are too small to be packed (`nn/kernels/gemm.py`), stays with NumPy.
"""

import os
import sys
from ctypes import CDLL, c_double, c_float, c_int32, c_int64, c_void_p
from ctypes.util import find_library
from functools import lru_cache
from pathlib import Path

import numpy as np

from gridgrad.nn.device import is_cpu, xp

VARIABLE = "GRIDGRAD_BLAS"
NAMES = {"mkl": "mkl_rt"}  # what libraries are called in short
ROW_MAJOR, AS_IT_IS, TRANSPOSED = 101, 111, 112  # constants of the C interface
# How libraries name the function, in which {} is the type, and the type of its sizes. NumPy's own library has the last name.
SYMBOLS = (
    ("cblas_{}gemm", c_int32),
    ("cblas_{}gemm64_", c_int64),
    ("cblas_{}gemm_64", c_int64),
    ("scipy_cblas_{}gemm64_", c_int64),
)
TYPES = {np.dtype(np.float32): ("s", c_float), np.dtype(np.float64): ("d", c_double)}


class Library:
    """A shared library with the C interface of BLAS. path: of its file. Raises OSError or AttributeError if it is none."""

    def __init__(self, path):
        if os.environ.get("OMP_NUM_THREADS") == "1":
            os.environ.setdefault("MKL_THREADING_LAYER", "SEQUENTIAL")  # otherwise MKL needs an OpenMP library
        self.path, loaded = str(path), CDLL(str(path))
        symbol, size = next(((name, size) for name, size in SYMBOLS if hasattr(loaded, name.format("s"))), SYMBOLS[0])
        self._functions = {}
        for dtype, (letter, number) in TYPES.items():
            function = getattr(loaded, symbol.format(letter))
            function.restype = None
            matrix = c_void_p, size
            function.argtypes = *[c_int32] * 3, *[size] * 3, number, *matrix, *matrix, number, *matrix
            self._functions[dtype] = function

    def product(self, a, b, out):
        """Write a @ b to `out`. Returns whether that was possible: arrays of one type with contiguous rows or columns."""
        function = self._functions.get(out.dtype)
        if function is None or not a.dtype == b.dtype == out.dtype or not (a.size and b.size):
            return False
        left, right, result = layout(a), layout(b), layout(out)
        if not left or not right or not result or result[0] != AS_IT_IS:
            return False
        (m, k), n = a.shape, b.shape[1]
        operands = address(a), left[1], address(b), right[1]
        function(ROW_MAJOR, left[0], right[0], m, n, k, 1.0, *operands, 0.0, address(out), result[1])
        return True


def layout(matrix):
    """(AS_IT_IS or TRANSPOSED, the distance of rows or columns in elements); None if neither of them are contiguous."""
    (rows, columns), (down, across), size = matrix.shape, matrix.strides, matrix.itemsize
    if across == size and down >= columns * size and down % size == 0:
        return AS_IT_IS, down // size
    if down == size and across >= rows * size and across % size == 0:
        return TRANSPOSED, across // size
    return None


def address(array):
    return array.__array_interface__["data"][0]


def product(a, b, out):
    """Write a @ b to `out` and return it, by the library that was chosen. a: (m, k), b: (k, n), out: (m, n)."""
    chosen = library() if is_cpu() else None
    if chosen is None or not chosen.product(a, b, out):
        xp.matmul(a, b, out=out)
    return out


def library():
    """The Library that GRIDGRAD_BLAS names, None if it is not set. Raises ValueError, with one line, if it names none."""
    name = os.environ.get(VARIABLE)
    return _loaded(name) if name else None


@lru_cache
def _loaded(name):
    try:
        return Library(found(name))
    except (OSError, AttributeError) as error:
        raise ValueError(
            f"{VARIABLE}: {name} can not be used as a BLAS library with a C interface ({str(error).splitlines()[0]}): "
            "set it to the path of one, or unset it"
        ) from None


def found(name):
    """The path of a library: `name` itself if that is a path, else where Python packages or the system have lib`name`."""
    if os.sep in name:
        return name
    name = NAMES.get(name, name)
    installed = sorted(Path(sys.prefix, "lib").glob(f"lib{name}.so*"))
    return installed[0] if installed else find_library(name) or f"lib{name}.so"
