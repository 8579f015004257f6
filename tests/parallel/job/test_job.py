"""However a job fails, all its ranks end in time, it says why, and it leaves no process and no file behind."""

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

from gridgrad.experiments.launching.start_ranks import mpiexec
from gridgrad.parallel.job import own_process, waiting
from gridgrad.parallel.job.run import UserError, check_launcher, check_size, one_line, promised_ranks
from gridgrad.parallel.job.waiting import sleep_until
from tests.clock import Clock
from tests.killer import orphaned_segments, segments_of

LIMIT = 300  # seconds after which something hangs, however busy the machine is: it takes some seconds where nothing else runs


@pytest.fixture(autouse=True)
def nothing_left():
    """No process of a job of this test, and no shared-memory segment that came with it, remains."""
    sessions = f"{tempfile.gettempdir()}/ompi.*/pid.*"  # folders of one mpiexec each
    started, before = time.time(), set(glob.glob(sessions))
    yield
    assert set(glob.glob(sessions)) <= before
    assert comes_true(lambda: not orphaned_segments(started))
    assert not processes_running("tests.parallel.job.failing")


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


def job(way, ranks=3, timeout=LIMIT):
    return mpiexec(ranks, ["-m", "tests.parallel.job.failing", way], timeout)


# ----- what is said, and the status


def test_an_expected_error_is_one_line_also_if_it_is_of_one_rank():
    finished = job("lonely_user_error")
    line = "[rank 2] error: only here\n"
    assert finished.status == 2 and finished.stderr.count(line) == 1 and "Traceback" not in finished.stderr


@pytest.mark.parametrize(("way", "words"), [
    ("exception", "ZeroDivisionError: on one rank"),
    ("script_with_a_hook", "ValueError: parallelize takes a Sequential, not a list"),
])  # fmt: skip
def test_any_other_exception_on_one_rank_ends_the_job_with_its_traceback(way, words):
    """Also in a user's script without `run`, where the hook that was there is called, too."""
    finished = job(way)
    assert finished.status not in (0, None)
    assert f"[rank 2] {words}" in finished.stderr and "[rank 2] Traceback (most recent call last):" in finished.stderr
    assert ("the user's own hook on rank 2" in finished.stderr) == (way == "script_with_a_hook")


def test_messages_are_one_line():
    assert one_line(ValueError("a\n  b")) == "a b" and one_line(ValueError()) == "ValueError"
    assert one_line(ValueError("\udcff \x1b[31m")) == "\\udcff \\x1b[31m"
    assert one_line(FileNotFoundError(2, "No such file", b"\xff\x07")) == "\\udcff\\x07: No such file"
    long = one_line(ValueError("begin " + "x" * 100_000 + " end"))
    assert long.startswith("begin ") and long.endswith(" end") and len(long) < 1300


# ----- ends from outside


def test_a_hung_rank_is_ended_by_the_watchdog():
    """Without one it would take 1000 seconds, and end well."""
    finished = job("hung", timeout=3)
    assert finished.status is None and "ended by the watchdog after 3 s" in finished.stderr


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


@pytest.mark.parametrize(("variables", "promised"), [
    ({}, (1, None)),
    ({"SLURM_NTASKS": "4"}, (4, "SLURM_NTASKS")),
    ({"PMI_SIZE": "2", "SLURM_NTASKS": "64"}, (2, "PMI_SIZE")),  # a smaller job inside an allocation
    ({"OMPI_COMM_WORLD_SIZE": "3", "PMI_SIZE": "1"}, (3, "OMPI_COMM_WORLD_SIZE")),
])  # fmt: skip
def test_jobs_that_are_smaller_than_the_launcher_promised_are_refused(variables, promised):
    assert promised_ranks(variables) == promised
    ranks, name = promised
    check_size(ranks, variables)
    for size in range(1, ranks):
        with pytest.raises(UserError, match=f"{name} says {ranks} ranks but MPI .* sees {size}"):
            check_size(size, variables)


def test_open_mpis_launcher_is_refused_before_another_library_dies_of_it():
    ours = {"OMPI_COMM_WORLD_SIZE": "2"}
    check_launcher(ours, "Open MPI")
    check_launcher(ours | {"PMI_SIZE": "2"}, "MPICH")  # MPICH's mpiexec in a job of Open MPI's
    with pytest.raises(UserError, match="launched by Open MPI's mpiexec, but the MPI library is"):
        check_launcher(ours, "MPICH")


# ----- waiting


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def test_naps_grow_with_the_time_since_something_happened_and_waiting_ends_in_time(clock):
    assert sleep_until(lambda: True) and clock.naps == []
    assert sleep_until(lambda: clock.now > 60)
    waited = np.cumsum([0, *clock.naps[:-1]])
    assert clock.naps[0] == waiting.SHORTEST and max(clock.naps) == waiting.LONGEST
    assert all(nap <= waiting.SHORTEST + 0.11 * before for nap, before in zip(clock.naps, waited, strict=True))
    clock.naps.clear()
    something = iter([False] * 20 + [True] + [False] * 20)
    assert sleep_until(lambda: len(clock.naps) == 40, serve=lambda: next(something))
    assert clock.naps[20] == waiting.SHORTEST and clock.naps[:20] == clock.naps[20:]
    clock.now = 0
    assert not sleep_until(lambda: False, seconds=3)
    assert 3 <= clock.now < 3 + 2 * waiting.LONGEST
