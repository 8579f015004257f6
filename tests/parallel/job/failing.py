"""Ways for a job to go wrong; run by test_job.py as `python -m tests.parallel.job.failing WAY`."""

import sys
import time
from functools import partial

from mpi4py import MPI

import parallel.job.run
from gridgrad.nn import Linear, Sequential
from gridgrad.parallel import parallelize
from gridgrad.parallel.job.run import UserError, run

comm = MPI.COMM_WORLD
is_last = comm.rank == comm.size - 1


def fail(error):
    raise error


def alone(action):
    """The last rank does it, and the others wait in a collective; it waits a second for them if its error is expected."""
    parallel.job.run.GRACE = 1.0
    if is_last:
        action()
    comm.Barrier()
    comm.Barrier()


def hang():
    if comm.rank == 0:
        time.sleep(1000)
    comm.Barrier()


def own_hook():
    """Of a user's own script."""
    sys.excepthook = lambda *_: print(f"the user's own hook on rank {comm.rank}", file=sys.stderr, flush=True)
    parallelize([Linear(3, 2)] if is_last else Sequential([Linear(3, 2)]), f"batch={comm.size}")


WAYS = {
    "exception": partial(alone, lambda: fail(ZeroDivisionError("on one rank"))),
    "lonely_user_error": partial(alone, lambda: fail(UserError("only here"))),
    "hung": hang,
}

if __name__ == "__main__":
    way = sys.argv[1]
    own_hook() if way == "script_with_a_hook" else run(WAYS[way])  # a script does not call `run`
