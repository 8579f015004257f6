"""A user's script, without `run`, that goes wrong on its last rank; run by test_uncaught.py as `python -m ... WAY`."""

import sys
import threading
import time

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


def told(label):
    def hook(*_):
        print(f"{label} on rank {comm.rank}", file=sys.stderr, flush=True)

    return hook


def grid():
    from gridgrad.parallel import ProcessGrid

    return ProcessGrid(comm, batch=comm.size)


def exception():
    grid()
    grid()
    fail()


def in_parallelize():
    from gridgrad.nn import Linear, Sequential
    from gridgrad.parallel import parallelize

    parallelize([Linear(3, 2)] if comm.rank == comm.size - 1 else Sequential([Linear(3, 2)]), f"batch={comm.size}")


def other_lengths():
    """On the axis model, ranks that pass minibatches of different lengths can not exchange their activations."""
    from gridgrad.nn import MSE, SGD, Linear, Sequential
    from gridgrad.parallel import parallelize

    net, n = parallelize(Sequential([Linear(3, 4), Linear(4, 2)]), f"model={comm.size}"), 5 + 400 * (comm.rank > 0)
    net.learn(np.ones((n, 3)), np.ones((n, 2)), MSE(), SGD(net, 0.1))


def chained():
    sys.excepthook = told("the user's own hook")
    grid()
    fail()


def chained_and_broken():
    sys.excepthook = lambda *_: 1 / 0
    grid()
    fail()


def thread():
    grid()
    if comm.rank == comm.size - 1:
        threading.Thread(target=fail).start()
        time.sleep(1000)
    comm.Barrier()


def well():
    grid()
    comm.Barrier()
    print("well", flush=True)


def interactive():
    """As in an interpreter, where an exception is no end."""
    sys.ps1 = ">>> "
    grid()
    assert sys.excepthook is sys.__excepthook__
    print("well", flush=True)


def under_pytest():
    sys.argv[0] = "/somewhere/bin/pytest"
    grid()
    assert sys.excepthook is sys.__excepthook__ and threading.excepthook is threading.__excepthook__
    print("well", flush=True)


def fail():
    if comm.rank == comm.size - 1:
        raise ZeroDivisionError("on one rank")
    comm.Barrier()
    comm.Barrier()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
