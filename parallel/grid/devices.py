"""Which device each rank of a job computes on."""

from mpi4py import MPI

from nn import device
from parallel.grid.staging import is_cuda_aware


def use_device(comm, name, tf32=False):
    """Choose the device of every rank: "cpu", "gpu", or "auto" for GPUs if every rank sees one. Collective.

    The ranks of one machine take its GPUs in turn. tf32: as of `nn.device.use`. Raises ValueError as it does.
    """
    if name == "auto":
        name = "gpu" if comm.allreduce(device.gpus() > 0, MPI.LAND) else "cpu"
        tf32 = tf32 and name == "gpu"
    if name == "gpu":
        is_cuda_aware()  # refuses a wrong setting before any array is sent
    neighbours = comm.Split_type(MPI.COMM_TYPE_SHARED)
    local_rank = neighbours.rank
    neighbours.Free()
    device.use(name, local_rank, tf32)
