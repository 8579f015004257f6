"""A parameter server by one-sided communication, to be compared with the one that serves messages."""

from mpi4py import MPI

from gridgrad.parallel.protocols.server import ServerShard


class OneSidedServer:
    """Parameters, with the state of their optimizer, in a window of the memory of rank 0, where the other ranks update them.

    A rank that has a gradient locks the window, gets everything in it, takes the optimizer's step itself, and puts everything
    back. Nothing is asked of rank 0, but what travels is twice the parameters and twice the state, and nobody else can take a
    step meanwhile. If a rank dies the job ends, since windows do not survive that.

    comm: of all ranks. params: the initial parameters, flat, of which those of rank 0 count. make_optimizer: a function that
    returns an Optimizer for a ServerShard; its learning rate must be constant, as the window has no number of the step.
    Making one is collective, and so is `free`.
    """

    def __init__(self, comm, params, make_optimizer):
        self.copy = ServerShard(params.copy(), comm.size)
        self.optimizer = make_optimizer(self.copy)
        self.arrays = [self.copy.params, *self.optimizer.state_arrays().values()]
        is_server = comm.rank == 0
        self.window = MPI.Win.Allocate(sum(array.nbytes for array in self.arrays) if is_server else 0, 1, comm=comm)
        if is_server:
            self.window.Lock(0)
            self._move(self.window.Put)
            self.window.Unlock(0)
        comm.Barrier()

    def push_and_fetch(self, gradient):
        """Update the parameters with a gradient; returns what they have become, a flat array that the next call overwrites."""
        self.copy.grads[...] = gradient
        self.window.Lock(0)  # exclusive
        self._move(self.window.Get)
        self.window.Flush(0)
        self.optimizer.step()
        self._move(self.window.Put)
        self.window.Unlock(0)
        return self.copy.params

    def _move(self, put_or_get):
        """Begin to copy all arrays to the window or from it."""
        offset = 0
        for array in self.arrays:
            put_or_get(array, 0, offset)
            offset += array.nbytes

    def free(self):
        """Give the window back. Collective."""
        self.window.Free()
