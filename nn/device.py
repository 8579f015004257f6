"""The array library in use: NumPy, or CuPy on a GPU. It is chosen here; layers write `xp` and never ask which it is.

    from nn.device import xp

Every process starts on NumPy. `use` goes first, before any network is made. `nn` and `parallel` keep to what both
libraries have, in forms that mean the same: no `where=`, no methods of ufuncs, `out=` of the type of the result.
"""

import os

import numpy as np

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


class ArrayLibrary:
    """What `xp` is: an object with the attributes of the library in use, copied, so that one costs what `np.add` does."""


class Cpu:
    """NumPy, in the host's memory."""

    library, is_cpu = np, True

    def __init__(self, local_rank=0, tf32=False):
        if tf32:
            raise ValueError("--tf32 is for the products of a GPU: use --device gpu with it")

    def empty(self, size, dtype):
        dtype = np.dtype(dtype)
        raw = np.empty(size * dtype.itemsize + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + size * dtype.itemsize].view(dtype)

    def to_device(self, array, out=None):
        return array if out is None else np.copyto(out, array)

    to_host = to_device

    def pinned_empty(self, size, dtype):
        return np.empty(size, dtype)

    def synchronise(self):
        pass

    def __str__(self):
        return "cpu"


class Gpu:
    """CuPy, in the memory of one GPU."""

    is_cpu = False

    def __init__(self, local_rank=0, tf32=False):
        os.environ["CUPY_TF32"] = str(int(tf32))  # read before the first product
        try:
            import cupy
            import cupyx

            self.library, self._empty_pinned = cupy, cupyx.empty_pinned
            self.number = local_rank % max(cupy.cuda.runtime.getDeviceCount(), 1)
            cupy.cuda.Device(self.number).use()
            probe = cupy.ones((2, 2), np.float32)
            (probe @ probe).get()  # needs the compiler and cuBLAS, which a CuPy without a toolkit lacks
        except ModuleNotFoundError as error:
            missing = "CuPy" if error.name in ("cupy", "cupyx") else f"CuPy's {error.name}"
            raise ValueError(
                f'--device gpu: {missing} is not installed: pip install "cupy-cuda13x[ctk]", or use --device cpu'
            ) from None
        except Exception as error:  # of the driver, the runtime, the compiler or cuBLAS: each has its own
            words = " ".join(str(error).split())[:200]
            raise ValueError(f"--device gpu: CuPy can not use a GPU here ({words}): use --device cpu") from None

    def empty(self, size, dtype):
        return self.library.empty(size, dtype)

    def to_device(self, array, out=None):
        return self.library.asarray(array) if out is None else out.set(array)

    def to_host(self, array, out=None):
        return self.library.asnumpy(array) if out is None else array.get(out=out)

    def pinned_empty(self, size, dtype):
        return self._empty_pinned(size, dtype)

    def synchronise(self):
        self.library.cuda.get_current_stream().synchronize()

    def __str__(self):
        name = self.library.cuda.runtime.getDeviceProperties(self.number)["name"].decode()
        return f"{name}, CuPy {self.library.__version__}"


KINDS = {"cpu": Cpu, "gpu": Gpu}
xp = ArrayLibrary()


def use(name, local_rank=0, tf32=False):
    """Choose the array library of this process.

    name: "cpu", "gpu", or "auto" for a GPU if there is one. local_rank: the place of this process among those of its
    machine; they take the GPUs in turn. tf32: let a GPU round the factors of float32 products to 10 bits.
    Raises ValueError if there is no such device, or CuPy or what it needs is missing.
    """
    global _device
    if name == "auto":
        name = "gpu" if gpus() else "cpu"
        tf32 = tf32 and name == "gpu"
    if name not in KINDS:
        raise ValueError(f"unknown device '{name}': use cpu, gpu or auto")
    _device = KINDS[name](local_rank, tf32)
    vars(xp).clear()
    vars(xp).update((name, value) for name, value in vars(_device.library).items() if not name.startswith("__"))


def gpus():
    """How many GPUs CuPy sees; 0 where there is no CuPy."""
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount()
    except (ImportError, RuntimeError):  # the latter without a driver
        return 0


def is_cpu():
    """Whether the library is NumPy: for the choice of an algorithm, never for what it computes."""
    return _device.is_cpu


def empty(size, dtype):
    """An uninitialised 1-D array of `size` elements that starts on a cache line."""
    return _device.empty(size, dtype)


def to_device(array, out=None):
    """A host array as one of the library, or its elements copied into the device's `out` (maybe still under way)."""
    return _device.to_device(array, out)


def to_host(array, out=None):
    """An array of the library as one of NumPy, or its elements copied into the host's `out`. Waits for the device."""
    return _device.to_host(array, out)


def pinned_empty(size, dtype):
    """An uninitialised 1-D NumPy array that a GPU copies from and to at full speed."""
    return _device.pinned_empty(size, dtype)


def synchronise():
    """Wait until the device has finished all it was told to do; nothing on a CPU, which never lags behind."""
    _device.synchronise()


def describe():
    """The device in words, for reports."""
    return str(_device)


use("cpu")
