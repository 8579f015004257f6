"""Ways for a job to go wrong; run by test_job.py as `python -m tests.parallel.job.failing WAY`."""

import errno
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

from mpi4py import MPI

import parallel.job.run
from gridgrad.nn import Linear, Sequential
from gridgrad.nn.files.whole_files import NotWritten
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.job.run import UserError, on_root, run

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
    comm.Barrier()
    if comm.rank == 0:
        print("about to hang", flush=True)
        Path(os.environ.get("HANGS", os.devnull)).touch()  # so that who waits for that knows it
        time.sleep(1000)
    comm.Barrier()


def own_hook():
    """Of a user's own script."""
    sys.excepthook = lambda *_: print(f"the user's own hook on rank {comm.rank}", file=sys.stderr, flush=True)
    parallelize([Linear(3, 2)] if is_last else Sequential([Linear(3, 2)]), f"batch={comm.size}")


def in_a_thread():
    ProcessGrid(comm, batch=comm.size)
    alone(lambda: (threading.Thread(target=fail, args=(ZeroDivisionError("on one rank"),)).start(), time.sleep(1000)))


WAYS = {
    "exception": partial(alone, lambda: fail(ZeroDivisionError("on one rank"))),
    "user_error": lambda: fail(UserError("what is wrong; what to do")),
    "lonely_user_error": partial(alone, lambda: fail(UserError("only here"))),
    "root_error": lambda: on_root(comm, lambda: fail(OSError(13, "Permission denied", "/some/file"))),
    "full_disk": partial(alone, lambda: fail(NotWritten("/some/file", errno.ENOSPC))),
    "killed": partial(alone, lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "hung": hang,
}
SCRIPTS = {"script_with_a_hook": own_hook, "script_in_a_thread": in_a_thread}  # which do not call `run`

if __name__ == "__main__":
    way = sys.argv[1]
    SCRIPTS[way]() if way in SCRIPTS else run(WAYS[way])
