"""How arrays in a GPU's memory reach MPI: through host buffers, or as they are where the MPI library takes them.

GRIDGRAD_CUDA_AWARE=1 says that the library reads and writes a GPU's memory, 0 that it does not. Where it is not set, the
library's own word counts: `mpi_memory_alloc_kinds` of MPI 4.1, which names "cuda" if that was asked for when the job
was started and is there. Nothing is tried out: a library that is handed memory that it can't read dies.
"""

import os
from functools import cached_property

import numpy as np
from mpi4py import MPI

from nn import device


def is_cuda_aware(environ=os.environ):
    """Whether the MPI library takes arrays in a GPU's memory. ValueError if GRIDGRAD_CUDA_AWARE is neither 0 nor 1."""
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
    """What stands between a collective and arrays that MPI can't reach. Arrays of the host pass through untouched.

    A collective reads what `outgoing` returns and writes what `incoming` returns; then `arrived` brings it to its place,
    maybe without waiting. The next collective, which uses the buffers again, begins by synchronising the device.
    """

    def __init__(self):
        self._buffers = {}  # of bytes, one for each direction: pinned, grown when needed, never shrunk

    def outgoing(self, array):
        """What MPI reads, or updates in place, for `array`."""
        if self._passes(array):
            return array
        buffer = self._buffer("out", array)
        device.to_host(array, buffer)
        return buffer

    def incoming(self, array):
        """What MPI writes into for `array`."""
        return array if self._passes(array) else self._buffer("in", array)

    def arrived(self, buffer, array):
        """Bring what MPI wrote into `buffer` to `array`."""
        if buffer is not array:
            device.to_device(buffer, array)

    @cached_property
    def _direct(self):
        return is_cuda_aware()

    def _passes(self, array):
        return array is None or isinstance(array, np.ndarray) or self._direct

    def _buffer(self, direction, array):
        flat = self._buffers.get(direction)
        if flat is None or flat.size < array.nbytes:
            flat = self._buffers[direction] = device.pinned_empty(array.nbytes, np.uint8)
        return flat[: array.nbytes].view(array.dtype).reshape(array.shape)


staging = Staging()  # of this process: one collective runs at a time, so one pair of buffers serves all groups
