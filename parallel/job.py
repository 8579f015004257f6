"""A job of ranks begins together and ends together.

`run(main)` wraps a program: it stops a wrongly launched job, prints an expected error once and ends every rank
with status 2, and ends the whole job, with the traceback, when one rank fails. No rank waits for a dead one.
"""

import ctypes
import os
import signal
import sys
import time
import traceback

import numpy as np
from mpi4py import MPI

from parallel.launch import remove_own_segments

GRACE = 5.0  # seconds that an expected error waits for the other ranks to meet the same one


class UserError(Exception):
    """Bad input: the message is one line that says what is wrong and what to do."""


def promised_ranks(environ):
    """(ranks, variable): how many ranks the launcher says it started, and which variable says so; (1, None) if none does.

    A process manager's own variables count before Slurm's, whose SLURM_NTASKS is that of the whole allocation.
    """
    for names in (("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"), ("SLURM_NTASKS",)):
        found = [(int(environ[name]), name) for name in names if environ.get(name, "").isdecimal()]
        if found:
            return max(found)
    return 1, None


def launched_rank(environ=os.environ):
    """The rank that the launcher gave this process, whatever MPI makes of it; 0 if there is no launcher."""
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    return next((int(environ[name]) for name in names if environ.get(name, "").isdecimal()), 0)


def check_launch(comm, environ=os.environ):
    """Raise UserError if the launcher started more ranks than MPI sees: N jobs of one rank, each training alone."""
    promised, name = promised_ranks(environ)
    if comm.size < promised and (comm.size == 1 or name != "SLURM_NTASKS"):
        raise UserError(
            f"{name} says {promised} ranks but MPI ({library_name()}) sees {comm.size}: launcher and MPI library do not "
            f"belong together; use the mpiexec of that library (or MPI4PY_LIBMPI), or unset {name} for a serial run"
        )


def library_name():
    """The MPI library in use, such as "MPICH 5.0.2"."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def on_root(comm, action):
    """Run `action` on rank 0 while the others wait; if it raises, every rank raises a UserError with its message.

    Only what an outsider can cause (OSError, ValueError, UserError) is turned into a UserError.
    """
    message = b""
    result = None
    if comm.rank == 0:
        try:
            result = action()
        except (OSError, ValueError, UserError) as error:
            message = one_line(error).encode()
    length = np.array([len(message)])
    comm.Bcast(length, root=0)
    if length[0]:
        text = np.frombuffer(message, np.uint8).copy() if comm.rank == 0 else np.empty(length[0], np.uint8)
        comm.Bcast(text, root=0)
        raise UserError(text.tobytes().decode())
    return result


def one_line(error):
    """The message of an exception on one line; for errors of the system with the file's name."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


def run(main, launch_check=check_launch):
    """Run `main()` as a rank of a job and exit: 0; 2 after a UserError, printed once; 1 after any other exception.

    launch_check: called first with the communicator, to refuse a job that was launched wrongly.
    """
    _die_with_parent()
    comm = MPI.COMM_WORLD
    program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    try:
        launch_check(comm)
        main()
    except UserError as error:
        _end_together(comm, f"{program}: error: {one_line(error)}")
    except KeyboardInterrupt:
        _abort(comm, 130)
    except SystemExit as exit:
        if exit.code not in (0, None):
            _end_together(comm, None if isinstance(exit.code, int) else str(exit.code), exit.code)
    except BaseException:
        sys.stdout.flush()
        sys.stderr.write("".join(f"[rank {comm.rank}] {line}\n" for line in traceback.format_exc().splitlines()))
        sys.stderr.flush()
        _abort(comm, 1)
    sys.stdout.flush()
    _finalize(comm)


def run_launcher(main):
    """Run the `main()` of a program that starts jobs and is no rank of one; exits as `run` does."""
    program = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    try:
        if promised_ranks(os.environ)[0] > 1 and promised_ranks(os.environ)[1] != "SLURM_NTASKS":
            raise UserError(f"{program} starts mpiexec itself: run it without mpiexec")
        main()
    except UserError as error:
        print(f"{program}: error: {one_line(error)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _end_together(comm, message, status=2):
    """Print `message` once and exit with `status` on every rank; if the others do not come, end them."""
    status = status if isinstance(status, int) else 2
    arrival = comm.Ibarrier()
    deadline = time.monotonic() + GRACE
    together = arrival.Test()
    while not together and time.monotonic() < deadline:
        time.sleep(0.01)
        together = arrival.Test()
    first = comm.rank == 0 and launched_rank() == 0  # N jobs of one rank are still one job to the user
    if message and (first or not together):
        print(message, file=sys.stderr, flush=True)
    if not together:
        _abort(comm, status)
    _finalize(comm)
    sys.exit(status)


def _finalize(comm):
    """Leave MPI. A serial run under Open MPI 5 forgets its shared-memory file."""
    alone = comm.size == 1
    MPI.Finalize()
    if alone and MPI.get_vendor()[0] == "Open MPI":
        remove_own_segments()


def _abort(comm, status):
    if comm.size == 1:
        _finalize(comm)
        os._exit(status)
    comm.Abort(status)


def _die_with_parent():
    """On Linux, ask the kernel to end this rank when the launcher's process that started it dies."""
    if promised_ranks(os.environ)[0] > 1 and sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
