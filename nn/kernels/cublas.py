"""Matrix products by cuBLAS itself: they can be part of a CUDA graph, and can be added to what is there.

CuPy's own calls may allocate memory within a product, which a graph can not do. Here the library, which CuPy has loaded, gets
its workspace beforehand. It stores matrices by columns: a row-major C = A B is C^T = B^T A^T to it.
"""

import ctypes
import re
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np

WORKSPACE = 64 << 20  # bytes
TF32_MATH = 3  # CUBLAS_TF32_TENSOR_OP_MATH
TYPES = {"f": ("S", ctypes.c_float), "d": ("D", ctypes.c_double)}  # {NumPy's letter: (cuBLAS's, the type of a factor)}


class CuBlas:
    """The products of one GPU. cupy: the module, which has used cuBLAS. LookupError where there is none, as on AMD's GPUs."""

    def __init__(self, cupy, tf32=False):
        path = next(iter(re.findall(r"/\S*/libcublas\.so\S*", Path("/proc/self/maps").read_text())), None)
        if path is None:
            raise LookupError("CuPy has not loaded cuBLAS")
        self.cupy, self.library, self.handle = cupy, ctypes.CDLL(path), ctypes.c_void_p()
        self.workspace = cupy.empty(WORKSPACE, np.uint8)
        _check(self.library.cublasCreate_v2(ctypes.byref(self.handle)))
        if tf32:
            _check(self.library.cublasSetMathMode(self.handle, TF32_MATH))
        self._use(cupy.cuda.get_current_stream())

    @contextmanager
    def on(self, stream):
        """A `with` block whose products run on another stream of CuPy's."""
        self._use(stream)
        try:
            yield
        finally:
            self._use(self.cupy.cuda.Stream.null)

    def _use(self, stream):
        _check(self.library.cublasSetStream_v2(self.handle, ctypes.c_void_p(stream.ptr)))  # this takes the workspace away
        memory, size = ctypes.c_void_p(self.workspace.data.ptr), ctypes.c_size_t(WORKSPACE)
        _check(self.library.cublasSetWorkspace_v2(self.handle, memory, size))

    def matmul(self, a, b, out=None):
        """a @ b, as CuPy's."""
        if min(a.ndim, b.ndim) < 2 or max(a.ndim, b.ndim) > 3:
            return self.cupy.matmul(a, b, out=out)
        if out is None:
            out = self.cupy.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype)
        return out if self._multiply(a, b, out) else self.cupy.matmul(a, b, out=out)

    def dot(self, a, b, out=None):
        """The product of a vector a with a vector or a matrix b, as CuPy's."""
        if a.ndim != 1:
            return self.cupy.dot(a, b, out=out)
        if out is None:
            out = self.cupy.empty(b.shape[1:], a.dtype)
        done = self._multiply(a[None], b.reshape(len(b), prod(b.shape[1:])), out.reshape(1, -1))
        return out if done else self.cupy.dot(a, b, out=out)

    def add_product(self, a, b, out):
        """out <- out + a @ b, of matrices."""
        if not self._multiply(a, b, out, add=True):
            self.cupy.add(out, self.cupy.matmul(a, b), out=out)

    def _multiply(self, a, b, out, add=False):
        """Whether cuBLAS could do it: write a @ b to `out`, or add it. Of one or, along a first dimension, several matrices."""
        layouts = [_layout(matrix) for matrix in (a, b, out)]
        if out.dtype.char not in TYPES or {a.dtype, b.dtype} != {out.dtype} or None in layouts or not (out.size and a.size):
            return False
        (a_turned, a_step), (b_turned, b_step), (out_turned, out_step) = layouts
        if out_turned:
            return self._multiply(b.swapaxes(-1, -2), a.swapaxes(-1, -2), out.swapaxes(-1, -2), add)
        (m, k), n = a.shape[-2:], b.shape[-1]
        letter, number = TYPES[out.dtype.char]
        factor, kept = ctypes.byref(number(1)), ctypes.byref(number(add))
        numbers = *map(int, (b_turned, a_turned, n, m, k)), factor
        (b_at, a_at, out_at) = (ctypes.c_void_p(matrix.data.ptr) for matrix in (b, a, out))
        if out.ndim == 2:
            function = getattr(self.library, f"cublas{letter}gemm_v2")
            _check(function(self.handle, *numbers, b_at, b_step, a_at, a_step, kept, out_at, out_step))
        else:
            function = getattr(self.library, f"cublas{letter}gemmStridedBatched")
            b_next, a_next, out_next = (ctypes.c_longlong(_next(matrix)) for matrix in (b, a, out))
            arrays = b_at, b_step, b_next, a_at, a_step, a_next, kept, out_at, out_step, out_next
            _check(function(self.handle, *numbers, *arrays, len(out)))
        return True


def _layout(x):
    """(whether a matrix is stored by columns, elements from one row, or else column, to the next), or None: neither."""
    (rows, columns), (down, across) = x.shape[-2:], (stride // x.itemsize for stride in x.strides[-2:])
    for turned, (many, length, step, near) in enumerate(((rows, columns, down, across), (columns, rows, across, down))):
        if (near == 1 or length == 1) and (many == 1 or step >= length):
            return turned, step if many > 1 else max(length, 1)
    return None


def _next(x):
    """The elements from one matrix to the next; 0 for one that is used for all."""
    return x.strides[0] // x.itemsize if x.ndim == 3 and len(x) > 1 else 0


def _check(status):
    if status:
        raise RuntimeError(f"cuBLAS: status {status}")
