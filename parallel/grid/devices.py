"""What may differ between the ranks of a job: the device on which each computes, and how MPI reaches the arrays there.

Ranks on CPUs all use one table of kernels, so that they add in the same order, whatever their processors are.

Arrays in a GPU's memory are passed to MPI directly where the library accepts them, else through host buffers. The environment
variable GRIDGRAD_CUDA_AWARE says whether the library reads and writes a GPU's memory (1) or not (0). If it is not set, the
library's own statement decides: the info key `mpi_memory_alloc_kinds` of MPI 4.1, which contains "cuda" if that was requested
when the job was started and is supported. This is never found out by trying, since a library that gets memory that it can not
read crashes.
"""

import os
from functools import cached_property
from math import inf

import numpy as np
from mpi4py import MPI

from gridgrad.nn import device as devices
from gridgrad.nn.device import xp
from gridgrad.nn.kernels.kernel_table import PRESET, kernels, store, stored, use
from gridgrad.nn.kernels.measure_table import BUDGET, QUICKLY, announce, measured
from gridgrad.parallel.job.waiting import broadcast


def use_device(comm: MPI.Intracomm, device: str = "cpu", tf32: bool = False) -> None:
    """Choose the device of every rank of `comm`. Collective.

    Parameters
    ----------
    comm : communicator
        An MPI communicator.
    device : str
        Where each rank keeps its arrays: cpu, gpu, auto, hybrid, or a list by rank; see `gridgrad help device`.
    tf32 : bool
        Let a GPU round the factors of float32 products to 10 bits, those of TensorFloat-32.

    Raises
    ------
    ValueError
        On all ranks, if a rank has no such device, if the list is longer than the number of ranks, or if GRIDGRAD_CUDA_AWARE
        is neither 0 nor 1.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from gridgrad.parallel import ProcessGrid, use_device
    >>> use_device(MPI.COMM_WORLD, "cpu")
    >>> with ProcessGrid(MPI.COMM_WORLD, batch=MPI.COMM_WORLD.size) as grid:
    ...     print(grid.on_cpus)
    True
    """
    names = checked_names(device, comm.size)
    neighbours = comm.Split_type(MPI.COMM_TYPE_SHARED)
    if device == "hybrid":
        taken, number = set(), None
        for gpus in neighbours.allgather(devices.gpus())[: neighbours.rank + 1]:
            free = [gpu for gpu in gpus if gpu not in taken]  # of those that it sees a rank takes the first one that is left
            taken.update(free[:1])
            number = gpus.index(free[0]) if free else None
        own = "cpu" if number is None else "gpu"
    else:
        if device == "auto":
            names = ["gpu" if comm.allreduce(bool(devices.gpus()), MPI.LAND) else "cpu"]
        own = names[comm.rank % len(names)]
        number = neighbours.allgather(own)[: neighbours.rank].count(own)
    neighbours.Free()
    problem = None
    try:
        if own == "gpu":
            is_cuda_aware()  # raises ValueError for a wrong setting now, rather than in the first collective
        devices.use(own, number or 0, tf32 and (own != "cpu" or device == "cpu"))
    except ValueError as error:
        problem = str(error)
    for found in filter(None, comm.allgather(problem)):
        raise ValueError(found)


def checked_names(name, ranks):
    """The words of a list of devices. Raises ValueError if one is unknown or there are more than ranks."""
    names = name.split(",")
    unknown = [word for word in names if word not in devices.KINDS]
    if unknown and name not in ("auto", "hybrid"):
        words = "use cpu, gpu, auto, hybrid, or a list of cpu and gpu by rank, such as gpu,cpu"
        raise ValueError(f"unknown device '{unknown[0]}' in --device {name}: {words}")
    if len(names) > ranks:
        raise ValueError(f"--device {name} lists {len(names)} devices, but the number of ranks is {ranks}: leave some out")
    return names


def ranks_on_cpus(comm):
    """The ranks of `comm` whose arrays are in the host's memory, in NumPy: a list. Collective.
    Ask this, or `ProcessGrid.on_cpus`, for what all ranks must decide alike: `xp.is_cpu` is about one rank alone."""
    return [rank for rank, is_cpu in enumerate(comm.allgather(xp.is_cpu)) if is_cpu]


# ----- one table of kernels


def agree_on_kernels(comm, first):
    """Make all ranks of `comm` use the table of the rank `first`, the first one on a CPU: GPUs need none. Collective.
    If it has none, it measures one within BUDGET seconds. ValueError on all if its GRIDGRAD_KERNELS names no table."""
    table = problem = None
    if comm.rank == first:
        try:
            table = kernels()
        except ValueError as error:
            problem = str(error)
        if table == PRESET and xp.is_cpu:
            table = stored()
    table, problem = comm.bcast((table, problem), first)
    if problem:
        raise ValueError(problem)
    if table is not None:
        use(table)
        return
    if comm.rank == first:
        announce()
    _measure(comm, first, BUDGET)


def calibrate_kernels(comm):
    """Measure the table of kernels anew and without a budget if it was measured quickly. Collective."""
    first = min(ranks_on_cpus(comm), default=0)
    agree_on_kernels(comm, first)
    if comm.bcast(kernels().name.startswith(QUICKLY), first):
        _measure(comm, first, inf)


def _measure(comm, first, budget):
    """Measure a table within `budget` seconds, store it and use it on all ranks. Collective.
    All measure at once, since they share the memory's bandwidth when they compute, too. That of the rank `first` counts."""
    table = broadcast(comm, measured(budget) if xp.is_cpu else None, first, "the measurement of kernels")
    if comm.rank == first:
        store(table)
    use(table)


# ----- arrays for MPI


def is_cuda_aware(environ=os.environ):
    """Whether the MPI library accepts arrays in a GPU's memory. Raises ValueError if GRIDGRAD_CUDA_AWARE is neither 0 nor 1."""
    said = environ.get("GRIDGRAD_CUDA_AWARE", "")
    if said not in ("", "0", "1"):
        raise ValueError(f"GRIDGRAD_CUDA_AWARE must be 0 or 1, not '{said}'")
    if said:
        return said == "1"
    info = MPI.COMM_WORLD.Get_info()
    kinds = (info.Get("mpi_memory_alloc_kinds") or "").split(",")
    info.Free()
    return any(kind == "cuda" or kind.startswith("cuda:") and "device" in kind.split(":") for kind in kinds)


class Staging:
    """Host buffers for arrays that MPI can not access; those in the host's memory are passed on as they are.
    direct: whether arrays in a GPU's memory are passed on, too, if the MPI library accepts them."""

    def __init__(self, direct=True):
        self.direct = direct
        self._buffers = {}  # direction: pinned bytes, which grow when needed and never shrink

    def outgoing(self, array):
        """The host array that MPI sends, or updates in place, instead of `array`."""
        buffer = self._buffer("out", array)
        if buffer is not array:
            devices.to_host(array, buffer)
        return buffer

    def incoming(self, array):
        """The host array into which MPI receives, instead of `array`."""
        return self._buffer("in", array)

    def arrived(self, buffer, array):
        """Copy what MPI wrote into `buffer`, which `outgoing` or `incoming` returned, to `array`."""
        if buffer is not array:  # the copy may be asynchronous: each collective begins by synchronising the device
            devices.to_device(buffer, array)

    def on_host(self, outgoing, incoming):
        """(what `outgoing` returns, what `incoming` returns); the same array twice if MPI updates it in place."""
        sent = self.outgoing(outgoing)
        return sent, sent if incoming is outgoing else self.incoming(incoming)

    @cached_property
    def _direct(self):
        return self.direct and is_cuda_aware()

    def _buffer(self, direction, array):
        if array is None or isinstance(array, np.ndarray) or self._direct:
            return array
        flat = self._buffers.get(direction)
        if flat is None or flat.size < array.nbytes:
            flat = self._buffers[direction] = devices.pinned_empty(array.nbytes, np.uint8)
        return flat[: array.nbytes].view(array.dtype).reshape(array.shape)


staging = Staging()  # for blocking collectives: only one of them runs at a time, so all groups share its buffers
