"""Which device each rank of a job computes on."""

from mpi4py import MPI

from nn import device
from parallel.grid.staging import is_cuda_aware


def use_device(comm, name, tf32=False):
    """Choose the device of every rank of `comm`. Collective.

    name: "cpu", "gpu", or "auto", which means GPUs if every rank sees one, else CPUs. The ranks of one machine take its GPUs in
    turn. tf32: whether matrix products on GPUs may round to TensorFloat-32, see `nn.device.use`. Raises ValueError if there is
    no such device, or if GRIDGRAD_CUDA_AWARE is neither 0 nor 1.
    """
    if name == "auto":
        name = "gpu" if comm.allreduce(device.gpus() > 0, MPI.LAND) else "cpu"
        tf32 = tf32 and name == "gpu"
    if name == "gpu":
        is_cuda_aware()  # raises ValueError for a wrong setting now, rather than in the first collective
    neighbours = comm.Split_type(MPI.COMM_TYPE_SHARED)
    local_rank = neighbours.rank
    neighbours.Free()
    device.use(name, local_rank, tf32)
