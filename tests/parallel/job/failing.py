"""Ways for a job to go wrong; run by test_job.py as `python -m tests.parallel.job.failing WAY`."""

import errno
import os
import signal
import sys
import threading
import time

from mpi4py import MPI

import parallel.job.run
from gridgrad.nn import Linear, Sequential
from gridgrad.nn.files.whole_files import NotWritten
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.job.run import UserError, on_root, run

comm = MPI.COMM_WORLD
last = comm.rank == comm.size - 1


def exception():
    """One rank raises while the others wait in a collective."""
    if last:
        raise ZeroDivisionError("on one rank")
    comm.Barrier()
    comm.Barrier()


def user_error():
    """All ranks meet the same expected error."""
    raise UserError("what is wrong; what to do")


def lonely_user_error():
    """One rank meets an expected error, the others wait for it."""
    parallel.job.run.GRACE = 1.0  # seconds that the rank waits for the others
    if last:
        raise UserError("only here")
    comm.Barrier()


def root_error():
    """What rank 0 does for all fails: every rank has the message."""

    def fail():
        raise OSError(13, "Permission denied", "/some/file")

    on_root(comm, fail)


def full_disk():
    """A file can not be written in the middle of a program, on the last rank."""
    parallel.job.run.GRACE = 1.0
    if last:
        raise NotWritten("/some/file", errno.ENOSPC)
    comm.Barrier()


def killed():
    if last:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.Barrier()


def hung():
    comm.Barrier()
    if comm.rank == 0:
        print("about to hang", flush=True)
        if path := os.environ.get("HANGS"):
            open(path, "w").close()  # so that who waits for that knows it
        time.sleep(1000)
    comm.Barrier()


def script_in_parallelize():
    """A user's own script, without `run`, with a hook of its own."""
    sys.excepthook = lambda *_: print(f"the user's own hook on rank {comm.rank}", file=sys.stderr, flush=True)
    parallelize([Linear(3, 2)] if last else Sequential([Linear(3, 2)]), f"batch={comm.size}")


def script_in_a_thread():
    ProcessGrid(comm, batch=comm.size)
    if last:
        threading.Thread(target=exception).start()
        time.sleep(1000)
    comm.Barrier()


if __name__ == "__main__":
    way = sys.argv[1]
    globals()[way]() if way.startswith("script") else run(globals()[way])
