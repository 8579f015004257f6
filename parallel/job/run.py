"""All ranks of a job start together and end together. `run(main)` refuses a job that was launched wrongly. After a UserError,
which is bad input, it prints the message once and ends every rank with status 2. When one rank fails in any other way, it
prints that rank's traceback and ends the whole job."""

import os
import shlex
import signal
import sys
import threading
import time
import traceback
import warnings
from itertools import groupby

from mpi4py import MPI

from gridgrad.nn.files.whole_files import NotWritten, is_of_disk
from gridgrad.nn.kernels.kernel_table import named
from gridgrad.parallel.job.own_process import end_with_parent, remove_own_segments
from gridgrad.parallel.job.waiting import broadcast, sleep_until
from gridgrad.startup import interruptible, listen

INTERRUPTED = "interrupted"  # what is said after Ctrl-C
CHECKPOINTED = 75  # the exit status after EndedEarly: EX_TEMPFAIL of sysexits.h, "try again later"
LONGEST = 1200  # characters of an error
GRACE = 5.0  # seconds that a rank with a UserError waits for the other ranks to raise one too
DRAIN = 0.2  # seconds that the launcher gets to pass on what was printed
ADVICE = "use the mpiexec of that library, or point MPI4PY_LIBMPI at the launcher's library"


class UserError(Exception):
    """Bad input: the message is one line that says what is wrong and what to do. Its notes are printed below it."""


class EndedEarly(Exception):
    """All ranks have agreed to end before the work is done, which can go on later. The message is one line."""


class Fault(RuntimeError):
    """The ranks of a job contradict each other, by a mistake in the program or in the hardware: the job must end.
    The message is one line. All ranks raise it together."""


def promised_ranks(environ=os.environ):
    """(the number of ranks that the launcher says it started, the environment variable that says so), else (1, None).
    A process manager's own variables come before SLURM_NTASKS, which may be the number of tasks of the whole allocation."""
    for names in (("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"), ("SLURM_NTASKS",)):
        found = [(int(environ[name]), name) for name in names if environ.get(name, "").isdecimal()]
        if found:
            return max(found)
    return 1, None


def launched_rank():
    """The rank that the launcher gave this process, also before MPI is started; 0 if there is no launcher."""
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID") if promised_ranks()[0] > 1 else ()
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), 0)


def start_line(ranks):
    """The line that starts this program on so many ranks: as it was typed, with mpiexec in front."""
    python, *words = sys.orig_argv
    if words[:2] == ["-m", "gridgrad"]:
        words = words[1:]
    elif words and os.path.basename(words[0]) == "gridgrad":
        words = ["gridgrad", *words[1:]]
    else:
        words = [".."] if "-c" in words else [os.path.basename(python), *words]
    return shlex.join(["mpiexec", "-n", str(ranks), *words])


def check_launcher(environ=os.environ, vendor=None):
    """Raise UserError if Open MPI's launcher started a program with another MPI library.
    Called before MPI_Init, which may abort in such a job with messages that do not name the cause."""
    vendor = vendor or MPI.get_vendor()[0]
    if "OMPI_COMM_WORLD_SIZE" in environ and "PMI_SIZE" not in environ and vendor != "Open MPI":
        raise UserError(f"launched by Open MPI's mpiexec, but the MPI library is {library_name()}: {ADVICE}")


def check_size(size, environ=os.environ):
    """Raise UserError if the launcher started more ranks than MPI sees: each rank would train alone."""
    promised, name = promised_ranks(environ)
    if size < promised:
        serial = f", or unset {name} for a serial run" if size == 1 else ""
        raise UserError(f"{name} says {promised} ranks but MPI ({library_name()}) sees {size}: {ADVICE}{serial}")


def library_name():
    """The MPI library in use, such as "MPICH 5.0.2"."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def on_root(comm, action):
    """The result of action() on rank 0, None on the other ranks, which sleep meanwhile. Collective.
    An OSError, MemoryError, ValueError or UserError in it becomes a UserError on all ranks; others are raised on rank 0."""
    result, message = None, None
    if comm.rank == 0:
        try:
            result = action()
        except (OSError, MemoryError, ValueError, UserError) as error:
            message = one_line(error)
    message = broadcast(comm, message)
    if message is not None:
        raise UserError(message)
    return result


def in_short(numbers, between=","):
    """Whole numbers in short: "0-3,8" for {0, 1, 2, 3, 8}."""
    places = groupby(enumerate(sorted(numbers)), key=lambda place: place[1] - place[0])  # the same in a row of neighbours
    runs = [[number for _, number in run] for _, run in places]
    return between.join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def one_line(error):
    """The message of an exception on one printable line, with the file of an OSError; a very long one without its middle."""
    text = str(error) or type(error).__name__
    if isinstance(error, FileNotFoundError) and error.errno and error.filename is None:  # of getcwd, which names none
        text = "the current folder is no longer there: go to another one"
    elif isinstance(error, OSError) and error.strerror and not isinstance(error, NotWritten):
        text = f"{os.fsdecode(error.filename)}: {error.strerror}" if isinstance(error.filename, str | bytes) else error.strerror
    elif isinstance(error, MemoryError):
        text = f"there is not enough memory ({text}): use a smaller network or minibatch, more ranks, or another machine"
    text = printable(" ".join(text.split())).partition("; use sys.set_int_max_str_digits")[0]  # Python's advice to a program
    if len(text) > LONGEST:  # it repeats what the user gave, and that is longer than a line may be
        text = f"{text[: LONGEST * 2 // 3]} .. {text[-LONGEST // 3 :]}"
    return text


def printable(text):
    """A text in which what can not be printed, such as control characters and bytes that are not UTF-8, is escaped."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def run(main, check=check_size):
    """Run main() on this rank of a job, between MPI_Init and MPI_Finalize, after check(ranks). Collective.
    Exit status: 0; 2 on every rank after a UserError or on a full disk; CHECKPOINTED after an EndedEarly; else 1."""
    listen()
    if promised_ranks()[0] > 1:
        end_with_parent()  # the parent is the launcher's process on this node
    try:
        check_launcher()
    except UserError as error:
        _end_badly(error)
    if not MPI.Is_initialized():
        os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")  # MPICH's words, where ours say why the job ends
        with warnings.catch_warnings():  # mpi4py's warning, on each rank, of what `check` reports once
            warnings.filterwarnings("ignore", message="suspicious MPI execution environment")
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
    comm = MPI.COMM_WORLD
    if comm.size == 1:  # nobody else will map them, and nobody could delete them if this process were killed
        remove_own_segments()
    try:
        interruptible()
        check(comm.size)
        on_root(comm, named)  # says at once, and not when the first network is made, what is wrong with GRIDGRAD_KERNELS
        main()
        sys.stdout.flush()
    except (UserError, MemoryError) as error:
        _end_together(comm, f"error: {one_line(error)}", 2, getattr(error, "__notes__", ()))
    except EndedEarly as ending:
        _end_together(comm, one_line(ending), CHECKPOINTED)
    except Fault as fault:
        if comm.rank:  # the first rank ends the job and says why
            time.sleep(GRACE)
        print_of_rank(comm.rank, f"error: {one_line(fault)}\n")
        _abort(comm, 1)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if comm.rank:  # rank 0 says so, or where it waits in MPI for another rank, that one
            time.sleep(GRACE / 10)
        print(f"{_program()}: {INTERRUPTED}", file=sys.stderr, flush=True)
        _abort(comm, 130)
    except SystemExit as exit:
        if exit.code not in (0, None):
            _abort(comm, exit.code if isinstance(exit.code, int) else 1)
    except BaseException as error:
        if is_of_disk(error):
            _end_together(comm, f"error: {_of_disk(error)}", 2)
        if is_death(error):
            print_of_rank(comm.rank, f"error: {NEEDED}\n")
            end_after_death(1)
        print_of_rank(comm.rank, traceback.format_exc())
        _abort(comm, 1)
    _finalize(comm)


def run_launcher(main):
    """Run the `main()` of a serial program, such as one that starts jobs or plots results. It exits as `run` does."""
    listen()
    try:
        interruptible()
        for number in (signal.SIGTERM, signal.SIGHUP):  # sent when an allocation ends and when a terminal is closed
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        promised, name = promised_ranks()
        if name == "SLURM_NTASKS":
            promised = int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))
        if promised > 1:
            raise UserError("this is not a parallel program: run it without mpiexec")
        try:
            named()
        except ValueError as error:
            raise UserError(str(error)) from None
        main()
        sys.stdout.flush()
    except (UserError, MemoryError) as error:
        _end_badly(error)
    except KeyboardInterrupt:
        listen()
        _say(INTERRUPTED)
        sys.exit(130)
    except OSError as error:
        end_unwritten(error)
    finally:
        if MPI.Is_initialized() and not MPI.Is_finalized():
            _finalize(MPI.COMM_WORLD)


def end_unwritten(error):
    """End a serial program with one line and status 2 after an error of a disk that is full, and raise any other one again."""
    if not is_of_disk(error):
        raise error
    _say(f"error: {_of_disk(error)}")
    sys.exit(2)


def end_job_early():
    """End the whole job from a rank that fails before it calls `run`; in a serial program do nothing."""
    if promised_ranks()[0] > 1 and not MPI.Is_finalized():
        if not MPI.Is_initialized():
            MPI.Init()
        time.sleep(DRAIN)
        MPI.COMM_WORLD.Abort(1)


def print_of_rank(rank, text):
    """Print a text of several lines to standard error, each line with the rank that it comes from."""
    # At once: without buffers print would write each line and its end apart, and the lines of several ranks run together.
    sys.stderr.write("".join(f"[rank {rank}] {line}\n" for line in text.splitlines()))
    sys.stderr.flush()


def _of_disk(error):
    """The message for an exception of a disk that is full or read-only. Without a name it is of what the program prints."""
    if error.filename:
        return one_line(error)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be printed is lost
    return f"can not write the output: {one_line(error)}"


def _say(words, notes=()):
    """Print a line, and notes below it, on launched rank 0 only."""
    if launched_rank() == 0:
        print("\n".join([f"{_program()}: {words}", *notes]), file=sys.stderr, flush=True)


def _program():
    """The name of the program that runs."""
    folder, file = os.path.split(sys.argv[0])
    return os.path.splitext(file)[0] if file != "__main__.py" else os.path.basename(folder)


def _end_badly(error):
    """Print an error with its notes, on launched rank 0 only, and exit with status 2."""
    _say(f"error: {one_line(error)}", getattr(error, "__notes__", ()))
    sys.exit(2)


def _end_together(comm, words, status, notes=()):
    """Print a line once and exit with the same status on every rank; abort those that are not here after GRACE seconds."""
    listen()
    if not sleep_until(comm.Ibarrier().Test, seconds=GRACE):
        print_of_rank(comm.rank, words)
        _abort(comm, status)
    if comm.rank == 0:
        _say(words, notes)
    comm.Barrier()  # a launcher may kill all ranks as soon as one exits, so none exits before the error is printed
    time.sleep(DRAIN)
    _finalize(comm)
    sys.exit(status)


def _finalize(comm):
    """Finalise MPI, and delete the shared-memory file that Open MPI 5 leaves behind after a serial run."""
    listen()  # Python's own end would print a traceback after Ctrl-C
    alone = comm.size == 1
    MPI.Finalize()
    if alone and MPI.get_vendor()[0] == "Open MPI":
        remove_own_segments()


def _abort(comm, status):
    """End the whole job with an exit status."""
    if comm.size == 1:
        _finalize(comm)
        os._exit(status)
    time.sleep(DRAIN)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what is wrong has been said, and libraries add lines of their own
    comm.Abort(status)


# ----- the death of a rank that the others survive: User-Level Failure Mitigation (ULFM), an extension of MPI

# Open MPI 5 has it in jobs started by `mpiexec --with-ft ulfm`. Other libraries, and Slurm's srun, end a job when one of its
# ranks dies. Messages between survivors still arrive. Windows, files and Cartesian communicators do not survive, and
# collectives in which the dead one would have taken part fail.

# Libraries without it have no such classes of errors, and mpi4py gives their names the number of another one.
DEATHS = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING) if MPI.get_vendor()[0] == "Open MPI" else ()
NEEDED = "a rank of this job has died, and what it computes needs all ranks: start it again"


class Death(RuntimeError):
    """A rank has died without which this one can not go on."""


def is_death(error):
    """Whether an exception says that another rank has died."""
    return isinstance(error, Death) or isinstance(error, MPI.Exception) and error.Get_error_class() in DEATHS


def end_after_death(status):
    """End this process with an exit status, without the others: after a death MPI_Abort and MPI_Finalize may hang."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(DRAIN)
    os._exit(status)


def dead(comm):
    """The ranks of a communicator that are known to have died: a set. Afterwards receives from any rank work again."""
    comm.Ack_failed()
    failed, everyone = comm.Get_failed(), comm.Get_group()
    ranks = set(MPI.Group.Translate_ranks(failed, list(range(failed.size)), everyone))
    failed.Free(), everyone.Free()
    return ranks


# ----- scripts that do not call `run`: an uncaught exception on one rank ends the whole job

# Python alone would end only the process that raised, and the other ranks would wait for it in their next collective for ever.
# Python does not call the hook for `sys.exit`: a script that ends early on one rank must raise an exception instead.

_installed: list[tuple] = []  # the hooks of sys and threading that ours replaced; empty until it is installed


def end_job_when_uncaught():
    """Install the hook, once. It is not installed in a serial run, in an interactive interpreter or under pytest."""
    is_interactive = hasattr(sys, "ps1") or sys.flags.interactive
    program = sys.argv[0] if sys.argv else ""
    # pytest reports exceptions itself, and a test may raise in a thread on purpose
    is_pytest = os.path.basename(program) in ("pytest", "py.test") or program.endswith(os.path.join("pytest", "__main__.py"))
    if _installed or not MPI.Is_initialized() or MPI.COMM_WORLD.size == 1 or is_interactive or is_pytest:
        return
    _installed.extend((sys.excepthook, threading.excepthook))
    sys.excepthook, threading.excepthook = _in_main_thread, _in_thread


def _in_main_thread(kind, error, trace):
    _end_job(kind, error, trace, _installed[0], kind, error, trace)


def _in_thread(arguments):
    if arguments.exc_type is not SystemExit:  # which ends only its thread, and Python prints nothing
        _end_job(arguments.exc_type, arguments.exc_value, arguments.exc_traceback, _installed[1], arguments)


def _end_job(kind, error, trace, before, *arguments):
    """Print the traceback with the rank, call the hook `before` that ours replaced unless it is Python's, and end all ranks."""
    active = not MPI.Is_finalized()
    try:
        rank = MPI.COMM_WORLD.rank if active else "?"
        print_of_rank(rank, "".join(traceback.format_exception(kind, error, trace)))
        if before not in (sys.__excepthook__, threading.__excepthook__):
            before(*arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        if active:
            time.sleep(DRAIN)
            MPI.COMM_WORLD.Abort(130 if issubclass(kind, KeyboardInterrupt) else 1)
