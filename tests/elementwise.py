"""CuPy's elementwise kernels where there is no GPU: their code, compiled by g++, on arrays of NumPy's.

As in CuPy a kernel's parameters are references to elements, so that arrays may be the same memory, or, with `raw`, arrays that
take an index. Types are names of NumPy's or, as T, the type of all arrays whose parameters have this name. Here an index beyond
an array is an IndexError.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import pytest

COMPILE = "g++ -x c++ -O1 -Wall -Werror -Wno-unused -ffp-contract=off -shared -fPIC -o new.so -"
DIMS = 6
NEEDS_COMPILER = "kernels of the stand-in need g++"
TYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long", "uint8": "unsigned char",
         "uint16": "unsigned short"}  # fmt: skip
SOURCE = """
typedef __PTRDIFF_TYPE__ ptrdiff_t;  // headers would take most of the time
inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }
inline float tanh(float x) { return __builtin_tanhf(x); }
inline double tanh(double x) { return __builtin_tanh(x); }
static bool beyond;
template <class A> struct Strided {
    char *data; const ptrdiff_t *shape, *strides; ptrdiff_t count;
    Strided(char *data, const ptrdiff_t *layout) : data(data), shape(layout), strides(layout + DIMS), count(1) {
        for (int dim = 0; dim < DIMS; ++dim) count *= shape[dim];
    }
    A &operator[](ptrdiff_t at) const {
        if (at < 0 || at >= count) { beyond = true; at = 0; }
        ptrdiff_t offset = 0;
        for (int dim = DIMS - 1; dim >= 0; --dim) { offset += at % shape[dim] * strides[dim]; at /= shape[dim]; }
        return *(A *) (data + offset);
    }
};
struct Indexer { ptrdiff_t count; ptrdiff_t size() const { return count; } };
extern "C" int run(ptrdiff_t count, char **data, const ptrdiff_t *layouts) {
    Indexer _ind = {count};
    beyond = false;
    ARRAYS
    for (ptrdiff_t i = 0; i < count; ++i) {
        ELEMENTS
        OPERATION;
    }
    return beyond;
}
"""


class Kernel:
    """What CuPy's ElementwiseKernel is, for arrays of NumPy's."""

    def __init__(self, in_params, out_params, operation, name="kernel"):
        self.operation, self.name = operation, name
        params = [("const ", param.split()) for param in in_params.split(",")]
        params += [("", param.split()) for param in out_params.split(",")]
        self.params = [(const, bool(raw), kind, name) for const, (*raw, kind, name) in params]
        for _, _, kind, name in self.params:
            assert kind in TYPES or len(kind) == 1, f"{self.name}: CuPy does not know the type {kind}"
            assert name not in ("i", "n") and name[0] != "_", f"{self.name}: CuPy has a variable {name} of its own"

    def __call__(self, *arguments):
        """Run it on arrays and numbers."""
        pairs, types = list(zip(self.params, arguments, strict=True)), {kind: kind for kind in TYPES}
        for (*_, kind, name), argument in pairs:
            if isinstance(argument, np.ndarray) and types.setdefault(kind, argument.dtype.name) != argument.dtype.name:
                raise TypeError(f"{self.name}: {name} is of type {argument.dtype}, not {types[kind]}")
        pairs = [(param, np.asarray(argument, types[param[2]])) for param, argument in pairs]
        shape = self.shape(arguments)
        for (const, is_raw, _, name), array in pairs:
            if not (const or is_raw) and array.shape != shape:
                raise ValueError(f"{self.name}: {name} is of shape {array.shape}, not {shape}")
        if 0 in shape:
            return
        arrays = [array if is_raw else np.broadcast_to(array, shape) for (_, is_raw, *_), array in pairs]
        layouts = np.ones((len(arrays), 2, DIMS), np.int64)
        for layout, array in zip(layouts, arrays, strict=True):
            layout[:, DIMS - array.ndim :] = array.shape, array.strides
        data = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        run = compiled(self._source(types))
        if run(ctypes.c_ssize_t(prod(shape)), data, layouts.ctypes.data_as(ctypes.c_void_p)):
            raise IndexError(f"{self.name}: an index lies beyond a raw array")

    def shape(self, arguments):
        """That of new outputs."""
        return np.broadcast_shapes(
            *(np.shape(one) for (_, is_raw, *_), one in zip(self.params, arguments, strict=False) if not is_raw)
        )

    def dtypes(self, arguments):
        """Those of new outputs."""
        given = {
            kind: one.dtype for (*_, kind, _), one in zip(self.params, arguments, strict=False) if isinstance(one, np.ndarray)
        }
        return [np.dtype(kind) if kind in TYPES else given[kind] for const, _, kind, _ in self.params if not const]

    def _source(self, types):
        kinds = {kind: TYPES[types[kind]] for *_, kind, _ in self.params}
        arrays, elements = [f"typedef {type_name} {kind};" for kind, type_name in kinds.items()], []
        for number, (const, is_raw, kind, name) in enumerate(self.params):
            array = name if is_raw else f"_{name}"
            arrays.append(f"Strided<{const}{kind}> {array}(data[{number}], layouts + {2 * DIMS * number});")
            if not is_raw:
                elements.append(f"{const}{kind} &{name} = _{name}[i];")
        found = SOURCE.replace("ARRAYS", " ".join(arrays)).replace("ELEMENTS", " ".join(elements))
        return found.replace("OPERATION", self.operation).replace("DIMS", str(DIMS))


@cache
def own_folder():
    return tempfile.TemporaryDirectory(prefix="gridgrad-kernels-")


@cache
def compiled(source):
    """The function `run` of some C++, compiled once for all processes of a test run."""
    if not shutil.which("g++"):
        pytest.skip(NEEDS_COMPILER)
    folder = Path(os.environ.get("GRIDGRAD_CACHE") or own_folder().name)
    library = folder / f"kernel-{hashlib.sha256(source.encode()).hexdigest()[:24]}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as own:
            done = subprocess.run(COMPILE.split(), cwd=own, input=source, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"g++ does not compile a kernel:\n{done.stderr}\n{source}")
            os.replace(f"{own}/new.so", library)
    return ctypes.CDLL(str(library)).run
