"""The planner."""
BATCH_SIZE = 128


def planned(net, grid, plan, batch_size, memory):
    from mpi4py import MPI
    return f"batch={MPI.COMM_WORLD.size}", "fewest-bytes"
