"""However a job fails, all its ranks end in time, it says why, and it leaves no process and no file behind."""

import contextlib
import errno
import glob
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gridgrad.experiments.launching import start_ranks
from gridgrad.experiments.launching.leftovers import processes, remove_session
from gridgrad.experiments.launching.start_ranks import (
    environment,
    find_mpiexec,
    is_open_mpi,
    mpiexec,
)
from gridgrad.nn.files.whole_files import NotWritten
from gridgrad.parallel.job.own_process import MARK
from gridgrad.parallel.job.own_process import segments_of as segments_to_clear
from gridgrad.parallel.job.run import (
    UserError,
    check_launcher,
    check_size,
    launched_rank,
    one_line,
    promised_ranks,
    run,
    run_launcher,
)
from tests.killer import orphaned_segments, remove_orphaned_segments, segments_of

LIMIT = 300  # seconds after which something hangs, however busy the machine is: it takes some seconds where nothing else runs


@pytest.fixture(autouse=True)
def nothing_left():
    """No process of a job of this test, and no shared-memory segment that came with it, remains."""
    started, sessions = time.time(), open_mpi_sessions()
    yield
    assert open_mpi_sessions() <= sessions
    assert comes_true(lambda: not orphaned_segments(started))
    assert not processes_running()


def comes_true(condition):
    """Whether a condition comes true before LIMIT."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def open_mpi_sessions():
    """Folders of one mpiexec each. The folder `ompi.HOST.USER` around some of them is of all jobs, and stays."""
    folders = glob.glob(f"{tempfile.gettempdir()}/ompi.*")
    return {path for path in folders if path.rpartition("ompi.")[2].isdigit()} | {
        path for folder in folders for path in glob.glob(f"{folder}/pid.*")
    }


def processes_running(*words):
    """The ids of the processes whose command runs a module with these words: its ranks and their mpiexec.

    They are read from /proc, where a process that has ended has no command any more. The lines of ps would be cut at the
    width that the variable COLUMNS gives.
    """
    found, module = [], "\0".join(words or ["tests.parallel.job.failing"])
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"\0-m\0{module}\0".encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


def job(way, ranks=3, timeout=LIMIT):
    return mpiexec(ranks, ["-m", "tests.parallel.job.failing", way], timeout)


def test_a_job_that_goes_well():
    finished = job("well")
    assert (finished.status, finished.stdout, finished.stderr) == (0, "", "")


def test_an_exception_on_one_rank_ends_the_job_with_its_traceback():
    finished = job("exception")
    assert finished.status not in (0, None)
    assert "[rank 2] ZeroDivisionError: on one rank" in finished.stderr and "Traceback" in finished.stderr


def test_a_user_error_is_said_once():
    finished = job("user_error")
    assert finished.status == 2
    assert finished.stderr.count("failing: error: what is wrong; what to do\n") == 1
    assert "Traceback" not in finished.stderr


def test_a_user_error_of_one_rank_ends_the_others():
    finished = job("lonely_user_error")
    assert finished.status == 2
    assert finished.stderr.count("[rank 2] error: only here\n") == 1


def test_an_error_of_rank_0_reaches_all():
    finished = job("root_error")
    assert finished.status == 2
    assert finished.stderr.count("failing: error: /some/file: Permission denied\n") == 1


FULL = "can not write /some/file: No space left on device; make room there, or give another name"


def test_a_full_disk_ends_a_job_in_a_line():
    finished = job("full_disk", 2)
    assert finished.status == 2 and finished.stderr.count(f"[rank 0] error: {FULL}\n") == 1
    assert "Traceback" not in finished.stderr


def full_disk():
    raise NotWritten("/some/file", errno.ENOSPC)


def full_output():
    print("printed")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_memory():
    np.empty(1 << 60, np.uint8)


MEMORY = f"Unable to allocate 1.00 EiB for an array with shape ({1 << 60},) and data type uint8"
CASES = [
    (full_disk, FULL),
    (full_output, "can not write the output: No space left on device"),
    (no_memory, f"there is not enough memory ({MEMORY}): use a smaller network or minibatch, more ranks, or another machine"),
]


@pytest.mark.parametrize("main, words", CASES)
@pytest.mark.parametrize("start", [run, run_launcher])
def test_a_full_disk_or_memory_ends_a_program_in_a_line(start, main, words):
    command = [sys.executable, "-c", f"from {__name__} import *; {start.__name__}({main.__name__})"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert finished.returncode == 2 and finished.stderr == f"-c: error: {words}\n"


def test_a_killed_rank_ends_the_job():
    finished = job("killed")
    assert finished.status not in (0, None)


def test_a_hung_rank_is_ended_by_the_watchdog(monkeypatch):
    """For the launching program no time passes until it has read what the job prints before it hangs."""
    made = []

    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(self)

    def now():
        read = [part for one in made for parts in getattr(one, "_fileobj2output", {}).values() for part in parts]
        return 3.0 * (b"about to hang" in b"".join(read))

    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.setattr(start_ranks, "time", SimpleNamespace(monotonic=now, time=time.time, sleep=time.sleep))
    finished = job("hung", timeout=3)
    assert finished.status is None
    assert "about to hang" in finished.stdout and "ended by the watchdog after 3 s" in finished.stderr


@pytest.mark.parametrize("interrupted", ["the waiting thread", pytest.param("another thread", marks=pytest.mark.long)])
def test_an_interrupt_of_the_launching_program_ends_the_job(interrupted, monkeypatch, tmp_path):
    """The system hands a signal to any thread of a process. If that is not the one that waits, it goes on waiting."""
    hangs = tmp_path / "hangs"
    monkeypatch.setenv("HANGS", str(hangs))
    over = threading.Event()  # so that no later test is interrupted

    def interrupt():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        while not hangs.exists():
            if over.wait(0.05):
                return
        os.kill(os.getpid(), signal.SIGINT)

    if interrupted == "another thread":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            job("hung")
    finally:
        over.set()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def test_killing_mpiexec_leaves_no_orphan():
    launcher, started = find_mpiexec(), time.time()
    process = subprocess.Popen(
        [*launcher, "-n", "3", sys.executable, "-m", "tests.parallel.job.failing", "hung"],
        env=environment(3, launcher[0]) | {MARK: "orphans"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "about to hang\n"
    process.kill()
    process.wait()
    comes_true(lambda: not processes("orphans"))
    left = processes("orphans")
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    remove_orphaned_segments(started)
    remove_session(process.pid)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, *(pytest.param(other, marks=pytest.mark.long) for other in (signal.SIGTERM, signal.SIGHUP))]
)
def test_ending_the_launching_program_ends_its_job(number, tmp_path):
    out = tmp_path / "s.jsonl"
    arguments = ["--nets", "mlp:8,relu", "--ranks", "2", "--steps", str(10**7), "--out", out]
    sweep = subprocess.Popen([sys.executable, "-m", "gridgrad", "sweep", *arguments], stderr=subprocess.PIPE)
    assert comes_true(lambda: sum(map(bool, map(segments_of, processes_running("gridgrad", "train")))) == 2)  # they are in MPI
    ranks = processes_running("gridgrad", "train")
    segments = set().union(*map(segments_to_clear, ranks))
    sweep.send_signal(number)
    sweep.communicate(timeout=LIMIT)
    assert comes_true(lambda: not set(ranks) & set(processes_running("gridgrad", "train")))
    assert segments and comes_true(lambda: not any(path.exists() for path in segments))
    assert not out.exists()


@pytest.mark.parametrize(
    ("variables", "promised"),
    [
        ({}, (1, None)),
        ({"SLURM_NTASKS": "4"}, (4, "SLURM_NTASKS")),
        ({"PMI_SIZE": "2", "SLURM_NTASKS": "64"}, (2, "PMI_SIZE")),
        ({"OMPI_COMM_WORLD_SIZE": "3", "PMI_SIZE": "1"}, (3, "OMPI_COMM_WORLD_SIZE")),
        ({"SLURM_NTASKS": ""}, (1, None)),
    ],
)
def test_what_the_launcher_promised(variables, promised):
    assert promised_ranks(variables) == promised


@pytest.mark.parametrize(
    ("variables", "size", "wrong"),
    [
        ({}, 1, False),
        ({"SLURM_NTASKS": "4"}, 1, True),
        ({"SLURM_NTASKS": "4"}, 4, False),
        ({"SLURM_NTASKS": "4"}, 2, True),
        ({"SLURM_NTASKS": "4", "PMI_SIZE": "2"}, 2, False),  # a smaller job inside an allocation
        ({"SLURM_NTASKS": "64", "PMI_SIZE": "1"}, 1, False),  # mpiexec -n 1 inside an allocation
        ({"PMI_SIZE": "4"}, 1, True),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, 1, True),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, 2, True),
    ],
)
def test_n_jobs_of_one_rank_are_refused(variables, size, wrong):
    if wrong:
        with pytest.raises(UserError, match=f"{next(iter(variables))} says 4 ranks but MPI .* sees {size}"):
            check_size(size, variables)
    else:
        check_size(size, variables)


@pytest.mark.parametrize(
    ("variables", "vendor", "wrong"),
    [
        ({}, "MPICH", False),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "MPICH", True),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "Open MPI", False),
        ({"OMPI_COMM_WORLD_SIZE": "2", "PMI_SIZE": "2"}, "MPICH", False),  # MPICH's mpiexec in a job of Open MPI's
    ],
)
def test_open_mpis_launcher_is_refused_before_another_library_dies_of_it(variables, vendor, wrong):
    if wrong:
        with pytest.raises(UserError, match="launched by Open MPI's mpiexec, but the MPI library is"):
            check_launcher(variables, vendor)
    else:
        check_launcher(variables, vendor)


def test_the_rank_of_the_launcher_counts_only_if_there_is_one():
    assert launched_rank({"SLURM_PROCID": "3"}) == 0
    assert launched_rank({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}) == 3
    assert launched_rank({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}) == 1


def test_the_wrong_launcher_stops_every_program():
    finished = subprocess.run(
        [sys.executable, "-m", "gridgrad", "train", "--steps", "1"],
        env=os.environ | {"PMI_SIZE" if is_open_mpi(find_mpiexec()[0]) else "OMPI_COMM_WORLD_SIZE": "4"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert finished.returncode == 2
    assert finished.stderr.startswith("train: error: ") and finished.stderr.count("\n") == 1


def test_messages_are_one_line():
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(OSError("no such thing")) == "no such thing"
    assert one_line(ValueError()) == "ValueError"
    assert one_line(ValueError("\udcff \x1b[31m")) == "\\udcff \\x1b[31m"
    assert one_line(FileNotFoundError(2, "No such file", b"\xff\x07")) == "\\udcff\\x07: No such file"
    assert one_line(FileNotFoundError(2, "No such file or directory")).startswith("the current folder is no longer there")
    assert one_line(FileNotFoundError(2, "No such file or directory", "x")) == "x: No such file or directory"
    with pytest.raises(ValueError) as many:
        int("9" * 5000)
    assert "5000 digits" in one_line(many.value) and "sys." not in one_line(many.value)
    long = one_line(ValueError("begin " + "x" * 100_000 + " end"))
    assert long.startswith("begin ") and long.endswith(" end") and len(long) < 1300
