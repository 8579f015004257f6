"""A job of ranks begins together and ends together.

`run(main)` wraps a program: it stops a wrongly launched job, prints an expected error once and ends every rank
with status 2, and ends the whole job, with the traceback, when one rank fails. No rank waits for a dead one.
"""

import os
import signal
import sys
import time
import traceback
import warnings

from mpi4py import MPI

from parallel.job.launch import end_with_parent, remove_own_segments

GRACE = 5.0  # seconds that an expected error waits for the other ranks to meet the same one
ADVICE = "use the mpiexec of that library, or point MPI4PY_LIBMPI at the launcher's library"
DRAIN = 0.2  # seconds for the launcher to pass on what was printed, before an end by force may cut it off


class UserError(Exception):
    """Bad input: the message is one line that says what is wrong and what to do."""


def promised_ranks(environ=os.environ):
    """(ranks, variable): how many ranks the launcher says it started, and which variable says so; (1, None) if none does.

    A process manager's own variables count before Slurm's, whose SLURM_NTASKS may be that of the whole allocation.
    """
    for names in (("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"), ("SLURM_NTASKS",)):
        found = [(int(environ[name]), name) for name in names if environ.get(name, "").isdecimal()]
        if found:
            return max(found)
    return 1, None


def launched_rank(environ=os.environ):
    """The rank that the launcher gave this process, whatever MPI makes of it; 0 if there is no launcher."""
    if promised_ranks(environ)[0] == 1:
        return 0
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    return next((int(environ[name]) for name in names if environ.get(name, "").isdecimal()), 0)


def check_launcher(environ=os.environ, vendor=None):
    """Before MPI is entered: raise UserError if Open MPI's launcher started a program that uses another library.

    Such a library may die in MPI_Init, with many lines that say nothing.
    """
    vendor = vendor or MPI.get_vendor()[0]
    if "OMPI_COMM_WORLD_SIZE" in environ and "PMI_SIZE" not in environ and vendor != "Open MPI":
        raise UserError(f"launched by Open MPI's mpiexec, but the MPI library is {library_name()}: {ADVICE}")


def check_size(size, environ=os.environ):
    """Raise UserError if the launcher started more ranks than MPI sees: N jobs of one rank, each training alone."""
    promised, name = promised_ranks(environ)
    if size < promised:
        serial = f", or unset {name} for a serial run" if size == 1 else ""
        raise UserError(f"{name} says {promised} ranks but MPI ({library_name()}) sees {size}: {ADVICE}{serial}")


def library_name():
    """The MPI library in use, such as "MPICH 5.0.2"."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def on_root(comm, action):
    """Run `action` on rank 0 while the others wait; if it raises, every rank raises a UserError with its message.

    Only what an outsider can cause (OSError, ValueError, UserError) is turned into a UserError.
    """
    result, message = None, None
    if comm.rank == 0:
        try:
            result = action()
        except (OSError, ValueError, UserError) as error:
            message = one_line(error)
    message = comm.bcast(message)
    if message is not None:
        raise UserError(message)
    return result


def one_line(error):
    """The message of an exception on one line; for errors of the system with the file's name."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = " ".join(str(error).split()) or type(error).__name__
    return text.encode(errors="backslashreplace").decode()  # of names of files that are not UTF-8


def run(main, check=check_size):
    """Run `main()` as a rank of a job and exit: 0; 2 after a UserError, printed once; 1 after any other exception.

    check: called first with the number of ranks, to refuse a job that was launched wrongly.
    """
    if promised_ranks()[0] > 1:
        end_with_parent()  # the launcher's process that started this rank
    try:
        check_launcher()
    except UserError as error:
        _say(error)
        sys.exit(2)
    if not MPI.Is_initialized():
        with warnings.catch_warnings():  # of a launcher of another library, on every rank; `check` says it once
            warnings.filterwarnings("ignore", message="suspicious MPI execution environment")
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
    comm = MPI.COMM_WORLD
    try:
        check(comm.size)
        main()
        sys.stdout.flush()
    except UserError as error:
        _end_together(comm, error)
    except KeyboardInterrupt:
        _abort(comm, 130)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _abort(comm, 141)
    except SystemExit as exit:
        if exit.code not in (0, None):
            _abort(comm, exit.code if isinstance(exit.code, int) else 1)
    except BaseException:
        sys.stderr.write("".join(f"[rank {comm.rank}] {line}\n" for line in traceback.format_exc().splitlines()))
        sys.stderr.flush()
        _abort(comm, 1)
    _finalize(comm)


def run_launcher(main):
    """Run the `main()` of a program that starts jobs or only reads results, and is no rank; exits as `run` does."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # of a scheduler that ends the allocation, of a closed terminal
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        promised, name = promised_ranks()
        if name == "SLURM_NTASKS":
            promised = int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))
        if promised > 1:
            raise UserError("not a parallel program: run it without mpiexec")
        main()
        sys.stdout.flush()
    except UserError as error:
        _say(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def end_job_early():
    """End the whole job from a rank that fails before `run`; does nothing where there is no job."""
    if promised_ranks()[0] > 1 and not MPI.Is_finalized():
        if not MPI.Is_initialized():
            MPI.Init()
        time.sleep(DRAIN)
        MPI.COMM_WORLD.Abort(1)


def _say(error):
    """Print an error, on the first of the processes that were launched together."""
    if launched_rank() == 0:
        folder, file = os.path.split(sys.argv[0])
        program = os.path.splitext(file)[0] if file != "__main__.py" else os.path.basename(folder)
        print(f"{program}: error: {one_line(error)}", file=sys.stderr, flush=True)


def _end_together(comm, error):
    """Print `error` once and exit with status 2 on every rank; if the others do not come, end them."""
    arrival = comm.Ibarrier()
    deadline = time.monotonic() + GRACE
    together = arrival.Test()
    while not together and time.monotonic() < deadline:
        time.sleep(0.01)
        together = arrival.Test()
    if not together:
        print(f"[rank {comm.rank}] error: {one_line(error)}", file=sys.stderr, flush=True)
        _abort(comm, 2)
    if comm.rank == 0:
        _say(error)
    comm.Barrier()  # a launcher may end the others as soon as one has exited: not before the word is out
    time.sleep(DRAIN)
    _finalize(comm)
    sys.exit(2)


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
    time.sleep(DRAIN)
    comm.Abort(status)
