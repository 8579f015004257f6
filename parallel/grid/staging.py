"""How arrays in a GPU's memory are passed to MPI: directly where the MPI library accepts them, else through host buffers.

The environment variable GRIDGRAD_CUDA_AWARE says whether the library reads and writes a GPU's memory (1) or not (0). If it is
not set, the library's own statement decides: the info key `mpi_memory_alloc_kinds` of MPI 4.1, which contains "cuda" if that
was requested when the job was started and is supported. This is never found out by trying, since a library that gets memory
that it can not read crashes.
"""

import os
from functools import cached_property

import numpy as np
from mpi4py import MPI

from gridgrad.nn import device


def is_cuda_aware(environ=os.environ):
    """Whether the MPI library accepts arrays in a GPU's memory. Raises ValueError if GRIDGRAD_CUDA_AWARE is neither 0 nor 1."""
    said = environ.get("GRIDGRAD_CUDA_AWARE", "")
    if said:
        if said not in ("0", "1"):
            raise ValueError(f"GRIDGRAD_CUDA_AWARE must be 0 or 1, not '{said}'")
        return said == "1"
    info = MPI.COMM_WORLD.Get_info()
    kinds = (info.Get("mpi_memory_alloc_kinds") or "").split(",")
    info.Free()
    return any(kind == "cuda" or kind.startswith("cuda:") and "device" in kind.split(":") for kind in kinds)


class Staging:
    """Host buffers for arrays that MPI can not access. Arrays in the host's memory are passed on as they are, without a copy.

    direct: whether arrays in a GPU's memory are passed on, too, if the MPI library accepts them.

    A collective sends what `outgoing` returns and receives into what `incoming` returns. Afterwards `arrived` copies what was
    received to the array, possibly asynchronously. That is safe although the buffers are reused: each collective begins by
    synchronising the device.
    """

    def __init__(self, direct=True):
        self.direct = direct
        self._buffers = {}  # direction: pinned bytes, which grow when needed and never shrink

    def outgoing(self, array):
        """The host array that MPI sends, or updates in place, instead of `array`."""
        if array is None or isinstance(array, np.ndarray) or self._direct:
            return array
        buffer = self._buffer("out", array)
        device.to_host(array, buffer)
        return buffer

    def incoming(self, array):
        """The host array into which MPI receives, instead of `array`."""
        passes = array is None or isinstance(array, np.ndarray) or self._direct
        return array if passes else self._buffer("in", array)

    def arrived(self, buffer, array):
        """Copy what MPI wrote into `buffer`, which `outgoing` or `incoming` returned, to `array`."""
        if buffer is not array:
            device.to_device(buffer, array)

    @cached_property
    def _direct(self):
        return self.direct and is_cuda_aware()

    def _buffer(self, direction, array):
        flat = self._buffers.get(direction)
        if flat is None or flat.size < array.nbytes:
            flat = self._buffers[direction] = device.pinned_empty(array.nbytes, np.uint8)
        return flat[: array.nbytes].view(array.dtype).reshape(array.shape)


staging = Staging()  # for blocking collectives: only one of them runs at a time, so all groups share its buffers
