"""Which device each rank of a job computes on. The ranks of one job may use different ones."""

from mpi4py import MPI

from gridgrad.nn import device as devices
from gridgrad.nn.device import xp
from gridgrad.parallel.grid.staging import is_cuda_aware


def use_device(comm: MPI.Intracomm, device: str = "cpu", tf32: bool = False) -> None:
    """Choose the device of every rank of `comm`. Collective.

    Parameters
    ----------
    comm : communicator
        An MPI communicator.
    device : str
        Where each rank keeps its arrays: cpu, gpu, auto (GPUs if every rank sees one, else CPUs), hybrid (as many ranks of a
        machine as it has GPUs use one each, the others CPUs), or a list by rank, such as gpu,cpu, which is repeated until every
        rank has a device. The ranks of one machine that use GPUs take them in turn.
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
        number = _with_one_gpu_each(neighbours.allgather(devices.gpus()))[neighbours.rank]
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
        raise ValueError(
            f"unknown device '{unknown[0]}' in --device {name}: use cpu, gpu, auto, hybrid, or a list of cpu and gpu by rank, "
            "such as gpu,cpu"
        )
    if len(names) > ranks:
        raise ValueError(f"--device {name} lists {len(names)} devices, but the number of ranks is {ranks}: leave some out")
    return names


def _with_one_gpu_each(seen):
    """For each rank of a machine, the number of its GPU among those that it sees, or None. seen: for each rank, these GPUs."""
    numbers, taken = [], set()
    for gpus in seen:
        free = [gpu for gpu in gpus if gpu not in taken]
        taken.update(free[:1])
        numbers.append(gpus.index(free[0]) if free else None)
    return numbers


def ranks_on_cpus(comm):
    """The ranks of `comm` whose arrays are in the host's memory, in NumPy: a list. Collective.

    What decides which collectives the ranks enter must be the same on all of them, and so ask this, or `ProcessGrid.on_cpus`.
    `xp.is_cpu` is about one rank alone.
    """
    return [rank for rank, is_cpu in enumerate(comm.allgather(xp.is_cpu)) if is_cpu]
