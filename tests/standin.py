"""A stand-in for CuPy where there is no GPU: an array library that keeps apart what is on the host and on the device.

Its Array holds a NumPy array that nobody else sees. Functions take Arrays and numbers, let NumPy compute, and wrap what
comes out; an array of NumPy's among the arguments is a TypeError. Only functions and keywords that CuPy and NumPy share
are there, and as with CuPy a single element is a 0-d view, memory is not zero at first, and copies are explicit.

GRIDGRAD_TEST_DEVICE=stand-in (or gpu) runs tests on it, and GRIDGRAD_TEST_DEVICE=stand-in,cpu runs the tests of ranks in jobs
whose ranks have different devices: see `tests/conftest.py` and `tests/worker.py`.
"""

import operator
import os
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np

from gridgrad.nn import device
from gridgrad.nn.kernels import workspace
from gridgrad.nn.layers import activations, pool
from tests.elementwise import Kernel

UFUNCS = """absolute add bitwise_and ceil cos divide equal exp expm1 floor floor_divide greater greater_equal isfinite
    isinf isnan less less_equal log log1p logical_and logical_not logical_or maximum minimum multiply negative not_equal power
    reciprocal remainder right_shift rint sign sin sqrt square subtract tanh true_divide"""
FUNCTIONS = {  # keywords: names
    "out dtype casting": UFUNCS,
    "out": "dot matmul outer",
    "axis dtype out keepdims": "sum prod mean",
    "axis dtype out ddof keepdims": "var std",
    "axis out keepdims": "max min all any argmax argmin",
    "axis out dtype casting": "concatenate stack",
    "axis dtype out": "cumsum",
    "axis out": "take",
    "axis": "count_nonzero expand_dims squeeze flip repeat split take_along_axis argsort sort",
    "dtype order": "empty zeros ones full array asarray",
    "dtype order shape": "empty_like zeros_like ones_like full_like",
    "dtype": "arange ascontiguousarray",
    "casting where": "copyto",
    "order": "reshape ravel",
    "axes": "transpose tensordot",
    "out a_min a_max": "clip",
    "mode constant_values": "pad",
    "rtol atol": "allclose",
    "": "may_share_memory where broadcast_to swapaxes moveaxis tile array_equal nonzero vdot diagonal",
}
SAME = """bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 dtype finfo iinfo newaxis pi
    inf nan"""
METHODS = """all any argmax argmin argsort clip cumsum diagonal dot max mean min nonzero prod ravel repeat reshape sort
    squeeze std sum swapaxes take transpose var"""  # the keywords are those of the functions
OTHER_METHODS = {"astype": "copy order", "copy": "order", "fill": "", "flatten": "", "item": "", "tolist": "", "view": ""}
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor"


class Array:
    """An array on the pretended device."""

    __slots__ = ("_host",)
    __array_ufunc__ = None  # NumPy's operators leave it to ours, which refuse
    __hash__ = __iter__ = None

    def __init__(self, host):
        self._host = host

    def __array__(self, *arguments, **keywords):
        raise TypeError("device array given to a host function")

    def __reduce__(self):
        raise TypeError("device array pickled")

    def __getitem__(self, index):
        index = unwrap(index)
        found = self._host[index]
        if isinstance(found, np.generic):
            index = (*(index if isinstance(index, tuple) else (index,)), Ellipsis)
        return computed(lambda host: host[index], self._host)

    def __setitem__(self, index, value):
        index, value = unwrap(index), unwrap(value)
        do(lambda: self._host.__setitem__(index, value))

    def __len__(self):
        return len(self._host)

    def __bool__(self):
        return bool(read(self))

    def __float__(self):
        return float(read(self))

    def __int__(self):
        return int(read(self))

    def __repr__(self):
        return f"device {self._host!r}"

    @property
    def base(self):
        """The array of which this is a view, None where it holds memory of its own."""
        return None if self._host.base is None else Array(self._host.base)

    def __neg__(self):
        return computed(operator.neg, self._host)

    def __abs__(self):
        return computed(abs, self._host)

    def __invert__(self):
        return computed(operator.invert, self._host)

    @property
    def T(self):
        return Array(self._host.T)


def _attribute(name):
    return property(lambda self: getattr(self._host, name))


for _name in ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides", "flags"):
    setattr(Array, _name, _attribute(_name))


def unwrap(value):
    """What an Array holds, also inside tuples and lists. TypeError for an array of NumPy's."""
    if isinstance(value, Array):
        return value._host
    if isinstance(value, (tuple, list)):
        return type(value)(unwrap(v) for v in value)
    if isinstance(value, np.ndarray):
        raise TypeError("host array given to a device function")
    return value


def wrap(value):
    """An Array of an array or a number, also inside tuples and lists."""
    if isinstance(value, (tuple, list)):
        return type(value)(wrap(v) for v in value)
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        return Array(np.asarray(value))
    return value


# While a graph is recorded, as CUDA does: nothing is computed in arrays that are there already, and new ones get the values of
# each replay. {"steps": functions without arguments, or None}
recording = {"steps": None}


def do(step):
    """What changes an array: now or, while a graph is recorded, in each replay."""
    if recording["steps"] is None:
        step()
    else:
        recording["steps"].append(step)


def computed(function, *arguments):
    """The Array that holds function(*arguments); a view of an argument stays one."""
    found = wrap(function(*arguments))
    if recording["steps"] is not None:
        results = found if isinstance(found, (tuple, list)) else [found]
        taken = list(arrays_in(arguments))
        if not all(any(np.may_share_memory(one._host, array) for array in taken) for one in results if isinstance(one, Array)):
            assert results[0] is found, "only functions with one result are recorded"
            recording["steps"].append(lambda: np.copyto(found._host, function(*arguments)))
    return found


def arrays_in(value):
    """The arrays of NumPy's in a value, and in tuples and lists within it."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from arrays_in(one)


def read(array):
    """What an Array holds, for the host, which a graph does not let read."""
    if recording["steps"] is not None:
        raise RuntimeError("a graph can not read back")
    return array._host


def _function(name, function, keywords):
    """`function` of NumPy on Arrays, with no other keywords than these."""
    keywords = set(keywords.split())

    def call(*arguments, **options):
        if not options.keys() <= keywords:
            raise TypeError(f"{name}: {sorted(options.keys() - keywords)} is not in CuPy, or not in NumPy")
        out = options.get("out")
        if out is not None and not isinstance(out, Array):
            raise TypeError(f"{name}: out must be a device array")
        if out is not None and name in ("dot", "matmul") and any(a.dtype != out.dtype for a in arguments):
            raise ValueError(f"{name}: CuPy wants one type for the factors and the product")
        if name == "may_share_memory":  # which looks at no element, so that CuPy answers on the host
            return function(*unwrap(arguments))
        arguments, options = unwrap(arguments), {key: unwrap(value) for key, value in options.items()}
        if out is None and name not in ("copyto", "fill"):
            return computed(partial(function, **options), *arguments)
        do(lambda: function(*arguments, **options))
        return out

    call.__name__ = name
    return call


def _method(name, keywords):
    call = _function(name, lambda array, *arguments, **options: getattr(array, name)(*arguments, **options), keywords)
    if name in ("item", "tolist"):
        return lambda self: getattr(read(self), name)()
    return lambda self, *arguments, **options: call(self, *arguments, **options)


def _operator(name):
    def call(self, other):
        other = unwrap(other)
        if name.startswith("__i"):
            do(lambda: getattr(self._host, name)(other))
            return self
        if getattr(self._host, name)(other) is NotImplemented:
            return NotImplemented
        return computed(lambda host, other: getattr(host, name)(other), self._host, other)

    return call


KEYWORDS = {name: keywords for keywords, names in FUNCTIONS.items() for name in names.split()}
for _name in METHODS.split():
    setattr(Array, _name, _method(_name, KEYWORDS[_name]))
for _name, _keywords in OTHER_METHODS.items():
    setattr(Array, _name, _method(_name, _keywords))
for _name in [f"__{kind}{name}__" for name in OPERATORS.split() for kind in ("", "r", "i")]:
    setattr(Array, _name, _operator(_name))
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(Array, f"__{_name}__", _operator(f"__{_name}__"))


def _as_strided(x, shape, strides):
    return np.lib.stride_tricks.as_strided(x, shape, strides)


class ElementwiseKernel(Kernel):
    """CuPy's kernels, called with inputs alone or also with outputs, which they return."""

    def __call__(self, *arguments):
        if len(arguments) < len(self.params):
            shape, dtypes = self.shape(unwrap(arguments)), self.dtypes(unwrap(arguments))
            arguments = *arguments, *(Array(np.full(shape, 0xFF, dtype)) for dtype in dtypes)
        on_host = unwrap(arguments)
        do(lambda: super(ElementwiseKernel, self).__call__(*on_host))
        outputs = [array for (const, *_), array in zip(self.params, arguments, strict=True) if not const]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


library = SimpleNamespace(
    **{name: _function(name, getattr(np, name), keywords) for name, keywords in KEYWORDS.items()},
    **{name: getattr(np, name) for name in SAME.split()},
    ndarray=Array,
    ElementwiseKernel=ElementwiseKernel,
    lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_function("as_strided", _as_strided, "shape strides"))),
)


class Device:
    """The pretended device; `calls` counts what crosses its border, in calls and in bytes."""

    library, is_cpu, own, calls = library, False, {}, Counter()

    def __init__(self, number=0, tf32=False):
        self.number, self.tf32, self.records = number, tf32, device.graphs_wanted()
        self.calls.clear()

    def empty(self, size, dtype):
        dtype = np.dtype(dtype)
        return Array(np.full(size * dtype.itemsize, 0xFF, np.uint8).view(dtype))  # NaN, as floats

    def to_device(self, array, out=None):
        if isinstance(array, Array):
            return array
        self._count("to device", array)
        if out is None:
            return Array(np.array(array))
        self._copy(array, out._host)

    def to_host(self, array, out=None):
        if isinstance(array, np.ndarray):
            return array
        self._count("to host", array)
        if out is None:
            return np.array(array._host)
        self._copy(array._host, out)

    def pinned_empty(self, size, dtype):
        self.calls["pinned"] += 1
        return np.empty(size, dtype)

    def synchronise(self):
        self.calls["synchronised"] += 1

    def recorder(self):
        return self

    def __enter__(self):
        self.begin_piece()

    def __exit__(self, *error):
        recording["steps"] = None

    def begin_piece(self):
        recording["steps"] = []

    def end_piece(self):
        steps, recording["steps"] = recording["steps"], None

        def start():
            for step in steps:
                step()

        return start

    def _count(self, what, array):
        self.calls[what] += 1
        self.calls[f"bytes {what}"] += array.nbytes

    @staticmethod
    def _copy(source, target):
        if source.shape != target.shape or source.dtype != target.dtype or not target.flags.c_contiguous:
            raise ValueError(f"no plain copy: {source.shape} {source.dtype} to {target.shape} {target.dtype}")
        np.copyto(target, source)

    def __str__(self):
        return "stand-in"


def forget():
    """Empty what the process keeps of arrays, as a test may run on another device than the one before."""
    workspace.scratch._spaces.clear()
    for kept in workspace._ones, activations.zeros, pool.space_for:
        kept.cache_clear()


def names():
    """The devices that the ranks of tests run on, as `gridgrad.parallel.grid.devices.use_device` takes them."""
    return os.environ.get("GRIDGRAD_TEST_DEVICE", "cpu")


def name():
    """The device that tests without ranks run on."""
    return names().split(",")[0]


device.KINDS["stand-in"] = Device
