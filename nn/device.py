"""The array library of this process: `xp` is NumPy, or CuPy on a GPU.

Every process starts with NumPy; call `use` to change that before any network is made. `nn` and `parallel` use only what
means the same in both libraries: no `where=`, no methods of ufuncs, and `out=` only with the dtype of the result. For GPUs
alone are the kernels of `nn/kernels/fused.py`.
"""

import os
from contextlib import ExitStack
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from gridgrad.nn.kernels.cublas import CuBlas

Array = npt.NDArray[Any]  # of the library in use, in type hints; CuPy's arrays have the same methods

ALIGNMENT = 64  # bytes: the size of a cache line and of the widest vector registers
# The elements of NumPy's buffers, to which it copies rows that are not contiguous if several fit: with the usual 8192,
# operations on rows of some hundred elements take two to three times as long.
BUFFER_SIZE = 512
NO_TF32 = "--tf32 is for the products of a GPU: use --device gpu with it"  # on a CPU


class Cpu:
    """NumPy, with arrays in the host's memory."""

    library, is_cpu, records, pinned_empty = np, True, False, staticmethod(np.empty)
    own: dict[str, Any] = {}

    def __init__(self, number=0, tf32=False):
        if tf32:
            raise ValueError(NO_TF32)
        np.setbufsize(BUFFER_SIZE)

    def empty(self, size, dtype):
        dtype = np.dtype(dtype)
        raw = np.empty(size * dtype.itemsize + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + size * dtype.itemsize].view(dtype)

    def to_device(self, array, out=None):
        return array if out is None else np.copyto(out, array)

    to_host = to_device

    def __str__(self):
        return "cpu"


class Gpu:
    """CuPy, with arrays in the memory of one GPU."""

    is_cpu = records = False
    own: dict[str, Any] = {}  # what takes the place of functions of CuPy

    def __init__(self, number=0, tf32=False):
        os.environ["CUPY_TF32"] = str(int(tf32))  # CuPy reads it before the first matrix product
        try:
            import cupy
            import cupyx

            self.library, self.empty, self.pinned_empty = cupy, cupy.empty, cupyx.empty_pinned
            self.number = number % max(cupy.cuda.runtime.getDeviceCount(), 1)
            cupy.cuda.Device(self.number).use()
            probe = cupy.ones((2, 2), np.float32)
            (probe @ probe).get()  # fails if the compiler or cuBLAS is missing, as in a CuPy without a toolkit
            self._use_products(cupy, tf32)
        except ModuleNotFoundError as error:
            missing = "CuPy" if error.name in ("cupy", "cupyx") else f"CuPy's {error.name}"
            advice = 'pip install "cupy-cuda13x[ctk]", or use --device cpu'
            raise ValueError(f"--device gpu: {missing} is not installed: {advice}") from None
        except Exception as error:  # the driver, the runtime, the compiler and cuBLAS each raise a type of their own
            words = " ".join(str(error).split())[:200]
            raise ValueError(f"--device gpu: CuPy can not use a GPU here ({words}): use --device cpu") from None

    def _use_products(self, cupy, tf32):
        try:
            self.products = CuBlas(cupy, tf32)
        except LookupError:
            return
        self.records = graphs_wanted()
        self.own = {name: getattr(self.products, name) for name in ("matmul", "dot", "add_product")}

    def recorder(self):
        return Recorder(self)

    def to_device(self, array, out=None):
        return self.library.asarray(array) if out is None else out.set(array)

    def to_host(self, array, out=None):
        return self.library.asnumpy(array) if out is None else array.get(out=out)

    def synchronise(self):
        self.library.cuda.get_current_stream().synchronize()

    def __str__(self):
        name = self.library.cuda.runtime.getDeviceProperties(self.number)["name"].decode()
        return f"{name}, CuPy {self.library.__version__}"


class Recorder:
    """A `with` block in which a GPU does nothing: what it would do becomes graphs. It begins with `begin_piece`. Graphs of one
    recorder may use the same memory: they run one after the other."""

    def __init__(self, gpu):
        self.gpu, self.cuda = gpu, gpu.library.cuda
        self.stream, self.pool = self.cuda.Stream(non_blocking=True), self.cuda.MemoryPool()
        _recorders.add(self)

    def __enter__(self):
        self.gpu.synchronise()
        with ExitStack() as stack:
            stack.enter_context(self.stream)
            stack.enter_context(self.cuda.using_allocator(self.pool.malloc))
            stack.enter_context(self.gpu.products.on(self.stream))
            self.begin_piece()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        with self.stack:
            if error[0]:
                self.stream.end_capture()  # of what remains without use; raises where the error has ended it
        self.gpu.library.get_default_memory_pool().free_all_blocks()  # what the same work needed before it was recorded

    def begin_piece(self):
        self.stream.begin_capture()

    def end_piece(self):
        """A function that starts what was recorded since the last `begin_piece`."""
        graph = self.stream.end_capture()
        return lambda: graph.launch(self.cuda.get_current_stream())


def _add_product(a, b, out):
    xp.add(out, xp.matmul(a, b), out=out)


class ArrayLibrary:  # looking up attributes of a SimpleNamespace takes three times as long
    """The type of `xp`. `use` copies the attributes of the library into it, so that looking up `xp.add` is as fast as `np.add`.
    is_cpu: whether it is NumPy; use it only to choose between algorithms that compute the same.
    add_product(a, b, out): adds the product of two matrices to `out`."""


# The Graph that is being recorded (nn/graphs.py), if any: nothing is computed then, and nothing may wait for the device.
recording: Any = None
_crossings = 0
_recorders: WeakSet[Recorder] = WeakSet()
KINDS = {"cpu": Cpu, "gpu": Gpu}
xp: Any = ArrayLibrary()


def use(name, number=0, tf32=False):
    """Choose the library: "cpu", "gpu" (ValueError if there is none), or "auto" for a GPU if there is one.
    number: of the GPU, modulo how many there are. tf32: whether it may round factors of float32 products to 10 bits."""
    global _device
    if name == "auto":
        name = "gpu" if gpus() else "cpu"
        tf32 = tf32 and name == "gpu"
    if name not in KINDS:
        raise ValueError(f"unknown device '{name}': use cpu, gpu or auto")
    _device = KINDS[name](number, tf32)
    vars(xp).clear()
    vars(xp).update((name, value) for name, value in vars(_device.library).items() if not name.startswith("__"))
    vars(xp).update({"is_cpu": _device.is_cpu, "add_product": _add_product} | _device.own)


def gpus():
    """The GPUs that this process sees, each by an identifier that is unique in its machine: a list, empty without CuPy."""
    try:
        import cupy

        runtime = cupy.cuda.runtime
        return [runtime.getDeviceProperties(number)["uuid"] for number in range(runtime.getDeviceCount())]
    except (ImportError, RuntimeError):  # RuntimeError if there is no driver
        return []


def empty(size, dtype):
    """An uninitialised 1-D array of `size` elements; on a CPU it starts at a multiple of ALIGNMENT bytes."""
    return _device.empty(size, dtype)


def to_device(array, out=None):
    """A host array as one of the device, on a CPU the same one, or copied to `out`, maybe not completely when this returns."""
    if not xp.is_cpu and isinstance(array, np.ndarray):
        _cross()
    return _device.to_device(array, out)


def to_host(array, out=None):
    """An array of the device, for which this waits, as one of NumPy, on a CPU the same one, or copied to `out`."""
    if not xp.is_cpu:
        _cross()
    return _device.to_host(array, out)


def as_input(x, dtype):
    """x as an array of the network's dtype, on the device. ValueError if it does not hold real numbers."""
    if isinstance(x, xp.ndarray) and x.dtype == dtype:
        return x
    return to_device(array_of_numbers(x, "x").astype(dtype, copy=False))


def array_of_numbers(array, name):
    """A list, or an array of another library, as an array of NumPy. ValueError if it does not hold real numbers."""
    if not isinstance(array, np.ndarray | xp.ndarray):
        try:
            array = np.asarray(array)
        except ValueError:  # rows of different lengths
            raise ValueError(f"{name} is no array: its rows must have the same length") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, but is of type {array.dtype}")
    return array


def pinned_empty(size, dtype):
    """An uninitialised 1-D NumPy array in page-locked memory, from and to which a GPU copies at full speed."""
    return _device.pinned_empty(size, dtype)


def synchronise():
    """Wait until the device has finished all operations. On a CPU there is nothing to wait for."""
    if not xp.is_cpu:
        _cross()
        _device.synchronise()


def memory_pools():
    """The pools that hold the memory of a GPU, those of graphs among them: a list, empty where there is no GPU."""
    return [xp.get_default_memory_pool(), *(one.pool for one in _recorders)] if hasattr(xp, "get_default_memory_pool") else []


# ----- graphs: see `nn/graphs.py`


def records_graphs():
    """Whether the device records graphs: a GPU of NVIDIA's, unless the environment variable GRIDGRAD_GRAPH is 0."""
    return _device.records


def recorder():
    """A Recorder of the device."""
    return _device.recorder()


def crossings():
    """How often this process has waited for its device, or copied between it and the host."""
    return _crossings


def uncounted(function):
    """What function() returns; its `crossings` are not counted."""
    global _crossings
    before = _crossings
    try:
        return function()
    finally:
        _crossings = before


def _cross():
    global _crossings
    if recording is not None:
        raise RuntimeError("a graph can not wait for the device, nor copy between it and the host")
    _crossings += 1


def graphs_wanted(environ=os.environ):
    """Whether GRIDGRAD_GRAPH allows graphs. ValueError if it is neither 0 nor 1."""
    said = environ.get("GRIDGRAD_GRAPH", "1")
    if said not in ("0", "1"):
        raise ValueError(f"GRIDGRAD_GRAPH must be 0 or 1, not '{said}'")
    return said == "1"


def describe():
    """A description of the device for reports: "cpu", or the GPU's name and CuPy's version."""
    return str(_device)


use("cpu")
