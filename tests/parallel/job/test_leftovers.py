"""The caretaker of a job: what the job has left goes, however it and its launcher end, and nothing of others."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from gridgrad.parallel.job import leftovers
from gridgrad.parallel.job.leftovers import MARK, OURS, SHARED_MEMORY
from gridgrad.parallel.job.start_ranks import care_no_more, launch

RANK = """
import mmap, os, sys, time
path = os.path.join(sys.argv[1], f"mpich_shm_{os.getpid():x}_0")
with open(path, "w+b") as file:
    file.truncate(4096)
    kept = mmap.mmap(file.fileno(), 4096)
open(os.path.join(sys.argv[1], f"gridgrad_{os.environ['GRIDGRAD_JOB']}_x"), "w").close()
print(path, flush=True)
time.sleep(600)
"""
LAUNCHER = """
import sys
from gridgrad.parallel.job.start_ranks import launch
process, _ = launch([sys.argv[1]], 1, [], env={"GRIDGRAD_LAUNCHED": sys.argv[2]}, stdout=None)
process.wait()
"""


@pytest.fixture
def mpiexec(tmp_path):
    """A launcher that starts one rank, which has files in shared memory, and does not end it."""
    path = tmp_path / "mpiexec"
    (tmp_path / "rank.py").write_text(RANK)
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit\n"{sys.executable}" "{tmp_path}/rank.py" {SHARED_MEMORY}\n')
    path.chmod(0o755)
    return str(path)


def gone(paths, pids):
    """Whether all of these files and processes go."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        running = [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")]  # which a process has until it has ended
        if not running and not any(path.exists() for path in paths):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGQUIT])
def test_a_launcher_that_is_killed_leaves_neither_ranks_nor_files_and_those_of_others_stay(number, mpiexec, tmp_path):
    other = uuid.uuid4().hex
    others = [SHARED_MEMORY / f"mpich_shm_{other[:8]}_0", SHARED_MEMORY / f"{OURS}{other}_x", SHARED_MEMORY / f"{OURS}{other}"]
    process = subprocess.Popen([sys.executable, "-c", LAUNCHER, mpiexec, other], stdout=subprocess.PIPE, text=True)
    path = Path(process.stdout.readline().strip())
    pid = int(path.name.split("_")[2], 16)
    mark = next(
        word.decode().removeprefix(f"{MARK}=")
        for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if word.startswith(MARK.encode())
    )
    assert path.exists() and len(list(SHARED_MEMORY.glob(f"{OURS}{mark}_*"))) == 1
    try:
        for one in others:
            one.touch()
        process.send_signal(number)
        process.wait()
        assert gone([path], [pid]) and not list(SHARED_MEMORY.glob(f"{OURS}{mark}_*"))
        assert all(one.exists() for one in others)
    finally:
        for one in others:
            one.unlink()
    process.stdout.close()


def test_a_job_that_fails_is_cleaned_up_and_one_that_ends_well_left_alone(mpiexec):
    for clean in (False, True):
        process, caretaker = launch([mpiexec], 1, [], text=True)
        path = Path(process.stdout.readline().strip())
        pid = int(path.name.split("_")[2], 16)
        if clean:
            os.kill(pid, signal.SIGKILL)
        care_no_more(caretaker, clean)
        if clean:
            assert path.exists() and caretaker.returncode == -signal.SIGKILL
            path.unlink()
            for one in SHARED_MEMORY.glob(f"{OURS}{caretaker.args[-1]}_*"):
                one.unlink()
        else:
            assert gone([path], [pid]) and caretaker.returncode == 0
        process.communicate()


def test_only_files_of_mpi_count_and_only_where_the_process_has_them(tmp_path, monkeypatch):
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", tmp_path)
    names = "mpich_shm_0_0", "mpich_shm_ab12_3", "sm_segment.host.0.1", "mpich_shm_data", "dataset.npy", "psm_1"
    files = [open(tmp_path / name, "w") for name in names]  # noqa: SIM115
    try:
        assert leftovers.segments_of(os.getpid()) == {tmp_path / name for name in names[:3]}
        assert leftovers.segments_of(os.getppid()) == leftovers.segments_of(1 << 30) == set()
    finally:
        for file in files:
            file.close()
