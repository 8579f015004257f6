"""Ways for a job to go wrong; run by test_job.py as `python -m tests.parallel.job.failing WAY`."""

import sys
import time
from functools import partial

import numpy as np
from mpi4py import MPI

import parallel.job.run
from gridgrad.nn import MSE, SGD, Linear, Sequential
from gridgrad.parallel import parallelize, resumable_steps
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


def script():
    """Of a user, with a hook of its own and without `run`; it fails while a checkpoint is under way."""
    sys.excepthook = lambda *_: print(f"the user's own hook on rank {comm.rank}", file=sys.stderr, flush=True)
    net = parallelize(Sequential([Linear(3, 2)], input_shape=(3,)), f"batch={comm.size}")
    optimizer = SGD(net, 0.1)
    for step in resumable_steps(net, optimizer, sys.argv[2], 9, checkpoint_steps=3):
        net.learn(np.ones((6, 3)), np.ones((6, 2)), MSE(), optimizer)
        if step == 3 and is_last:
            fail(ZeroDivisionError("on one rank"))


WAYS = {
    "exception": partial(alone, lambda: fail(ZeroDivisionError("on one rank"))),
    "lonely_user_error": partial(alone, lambda: fail(UserError("only here"))),
    "hung": hang,
}

if __name__ == "__main__":
    way = sys.argv[1]
    script() if way == "script" else run(WAYS[way])
