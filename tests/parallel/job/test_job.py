"""However a job fails, all its ranks end in time, it says why, and it leaves no process and no file behind.

Run as `python -m ... WAY FOLDER` this is the job, which fails in some way.
"""

import contextlib
import glob
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.experiments.launching.start_ranks import mpiexec
from gridgrad.nn import MSE, SGD, Linear, Sequential
from gridgrad.parallel import parallelize, resumable_steps
from gridgrad.parallel.checkpoint.manifest import found_in
from gridgrad.parallel.choose.parallelize import of_first
from gridgrad.parallel.job import own_process, waiting
from gridgrad.parallel.job import run as run_module
from gridgrad.parallel.job.run import UserError, check_launcher, check_size, on_root, one_line, promised_ranks
from gridgrad.parallel.job.waiting import broadcast, sleep_until
from tests.clock import Clock
from tests.killer import orphaned_segments, segments_of
from tests.mpi import mpi

LIMIT = 300  # seconds after which something hangs, however busy the machine is: it takes some seconds where nothing else runs


@pytest.fixture
def job():
    """A function that runs such a job. No process of a job of the test, and no shared-memory segment of one, remains."""
    sessions = f"{tempfile.gettempdir()}/ompi.*/pid.*"  # folders of one mpiexec each
    started, before = time.time(), set(glob.glob(sessions))
    yield lambda *words, timeout=LIMIT: mpiexec(3, ["-m", "tests.parallel.job.test_job", *words], timeout)
    assert set(glob.glob(sessions)) <= before
    assert comes_true(lambda: not orphaned_segments(started))
    assert not processes_running("tests.parallel.job.test_job")


def comes_true(condition):
    """Whether a condition comes true before LIMIT."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def processes_running(*words):
    """The ids of the processes whose command runs a module with these words, as /proc has it: its ranks and their mpiexec."""
    found, module = [], "\0".join(words)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"\0-m\0{module}\0".encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


# ----- what is said, and the status


def test_an_expected_error_is_one_line_also_if_it_is_of_one_rank(job):
    finished = job("lonely_user_error")
    line = "[rank 2] error: only here\n"
    assert finished.status == 2 and finished.stderr.count(line) == 1 and "Traceback" not in finished.stderr


@pytest.mark.parametrize("way", ["exception", "script"])
def test_any_other_exception_on_one_rank_ends_the_job_with_its_traceback(way, job, tmp_path):
    """Also in a user's script, where the hook that was there is called, too; the checkpoint under way is whole or none."""
    finished = job(way, str(tmp_path))
    assert finished.status not in (0, None) and "[rank 2] ZeroDivisionError: on one rank" in finished.stderr
    assert "[rank 2] Traceback (most recent call last):" in finished.stderr
    assert ("the user's own hook on rank 2" in finished.stderr) == (way == "script")
    found, passed_over = found_in(tmp_path)
    assert {checkpoint.step for checkpoint in found} <= {3} and not passed_over


def test_messages_are_one_line():
    assert one_line(ValueError("a\n  b")) == "a b" and one_line(ValueError()) == "ValueError"
    assert one_line(ValueError("\udcff \x1b[31m")) == "\\udcff \\x1b[31m"
    assert one_line(FileNotFoundError(2, "No such file", b"\xff\x07")) == "\\udcff\\x07: No such file"


# ----- ends from outside


def test_a_hung_rank_is_ended_by_the_watchdog(job):
    """Without one it would take 1000 seconds, and end well."""
    finished = job("hung", timeout=3)
    assert finished.status is None and "ended by the watchdog after 3 s" in finished.stderr


@pytest.mark.usefixtures("job")
def test_killing_the_launching_program_ends_its_job(tmp_path):
    out = tmp_path / "s.jsonl"
    arguments = ["--nets", "mlp:8,relu", "--ranks", "2", "--steps", str(10**7), "--out", out]
    sweep = subprocess.Popen([sys.executable, "-m", "gridgrad", "sweep", *arguments], stderr=subprocess.PIPE)
    assert comes_true(lambda: sum(map(bool, map(segments_of, processes_running("gridgrad", "train")))) == 2)  # they are in MPI
    ranks = processes_running("gridgrad", "train")
    segments = set().union(*map(own_process.segments_of, ranks))
    sweep.kill()
    sweep.communicate(timeout=LIMIT)
    assert comes_true(lambda: not set(ranks) & set(processes_running("gridgrad", "train")))
    assert segments and comes_true(lambda: not any(path.exists() for path in segments))
    assert not out.exists()


def test_only_files_of_mpi_count_and_only_where_the_process_has_them(tmp_path, monkeypatch):
    monkeypatch.setattr(own_process, "SHARED_MEMORY", tmp_path)
    names = "mpich_shm_0_0", "mpich_vci_ab12_3", "sm_segment.host.0.1", "dataset.npy", "gridgrad_1", "psm_1"
    with contextlib.ExitStack() as files:
        for name in names:
            files.enter_context(open(tmp_path / name, "w"))
        assert set(own_process.segments_of(os.getpid())) == {tmp_path / name for name in names[:3]}
        assert own_process.segments_of(os.getppid()) == own_process.segments_of(1 << 30) == {}


# ----- launchers


@pytest.mark.parametrize(("variables", "ranks", "name"), [
    ({}, 1, None),
    ({"SLURM_NTASKS": "4"}, 4, "SLURM_NTASKS"),
    ({"PMI_SIZE": "2", "SLURM_NTASKS": "64"}, 2, "PMI_SIZE"),  # a smaller job inside an allocation
])  # fmt: skip
def test_jobs_that_are_smaller_than_the_launcher_promised_are_refused(variables, ranks, name):
    assert promised_ranks(variables) == (ranks, name)
    check_size(ranks, variables)
    if name:
        with pytest.raises(UserError, match=f"{name} says {ranks} ranks but MPI .* sees 1"):
            check_size(1, variables)


def test_open_mpis_launcher_is_refused_before_another_library_dies_of_it():
    ours = {"OMPI_COMM_WORLD_SIZE": "2"}
    check_launcher(ours, "Open MPI")
    check_launcher(ours | {"PMI_SIZE": "2"}, "MPICH")  # MPICH's mpiexec in a job of Open MPI's
    with pytest.raises(UserError, match="launched by Open MPI's mpiexec, but the MPI library is"):
        check_launcher(ours, "MPICH")


# ----- waiting


@mpi(3, timeout=60)
def test_what_the_first_rank_does_alone_is_waited_for_asleep(comm, monkeypatch):
    """It ends when all others sleep, and never if one spins in a collective of MPI."""
    own, told, sleep = comm.Dup(), [], waiting.time.sleep

    def alone():
        for rank in range(1, comm.size):
            own.recv(source=rank)

    def nap(seconds):
        if comm.rank and not told:
            told.append(True)
            own.send("asleep", 0)
        sleep(seconds)

    monkeypatch.setattr(waiting.time, "sleep", nap)
    for action in (on_root, of_first, lambda comm, alone: broadcast(comm, None if comm.rank else alone())):
        told.clear()
        action(comm, alone)
    own.Free()


def test_naps_grow_with_the_time_since_something_happened_and_waiting_ends_in_time(monkeypatch):
    monkeypatch.setattr(waiting, "time", clock := Clock())
    assert sleep_until(lambda: True) and clock.naps == []
    assert sleep_until(lambda: clock.now > 60)
    assert clock.naps[0] == waiting.SHORTEST and max(clock.naps) == waiting.LONGEST
    clock.naps.clear()
    something = iter([False] * 20 + [True] + [False] * 20)
    assert sleep_until(lambda: len(clock.naps) == 40, serve=lambda: next(something))
    assert clock.naps[20] == waiting.SHORTEST and clock.naps[:20] == clock.naps[20:]
    clock.now = 0
    assert not sleep_until(lambda: False, seconds=3)
    assert 3 <= clock.now < 3 + 2 * waiting.LONGEST


# ----- ways to fail


def fail_alone(comm, error):
    """The last rank raises it, and the others wait in a collective; it waits a second for them if its error is expected."""
    run_module.GRACE = 1.0
    if comm.rank == comm.size - 1:
        raise error
    comm.Barrier()


def hang(comm):
    if comm.rank == 0:
        time.sleep(1000)
    comm.Barrier()


def script(comm):
    """Of a user, with a hook of its own and without `run`; it fails while a checkpoint is under way."""
    sys.excepthook = lambda *_: print(f"the user's own hook on rank {comm.rank}", file=sys.stderr, flush=True)
    net = parallelize(Sequential([Linear(3, 2)], input_shape=(3,)), f"batch={comm.size}")
    optimizer = SGD(net, 0.1)
    for step in resumable_steps(net, optimizer, sys.argv[2], 9, checkpoint_steps=3):
        net.learn(np.ones((6, 3)), np.ones((6, 2)), MSE(), optimizer)
        if step == 3:
            fail_alone(comm, ZeroDivisionError("on one rank"))


WAYS = {
    "exception": lambda comm: fail_alone(comm, ZeroDivisionError("on one rank")),
    "lonely_user_error": lambda comm: fail_alone(comm, UserError("only here")),
    "hung": hang,
}

if __name__ == "__main__":
    if sys.argv[1] == "script":
        script(MPI.COMM_WORLD)
    else:
        run_module.run(lambda: WAYS[sys.argv[1]](MPI.COMM_WORLD))
