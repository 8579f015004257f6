"""The caretaker of a job: what the job has left goes, however it and its launcher end, and nothing of others."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from gridgrad.experiments.launching import leftovers
from gridgrad.experiments.launching.start_ranks import care_no_more, launch
from gridgrad.parallel.job.own_process import OURS, SHARED_MEMORY

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
import signal, sys
from gridgrad.experiments.launching.start_ranks import launch
signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # which a shell lets the programs ignore that it starts in the background
process, caretaker = launch([sys.argv[1]], 1, [], stdout=None)
print(caretaker.args[-1], process.pid, caretaker.pid, flush=True)
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


def pid_in(path):
    return int(path.name.split("_")[2], 16)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGQUIT])
def test_a_launcher_that_is_killed_leaves_neither_processes_nor_files_and_those_of_others_stay(number, mpiexec):
    process = subprocess.Popen([sys.executable, "-c", LAUNCHER, mpiexec], stdout=subprocess.PIPE, text=True)
    words = sorted((process.stdout.readline().split() for _ in range(2)), key=len)
    path, (mark, *pids) = Path(words[0][0]), words[1]
    other = uuid.uuid4().hex
    others = [SHARED_MEMORY / f"mpich_shm_{other[:8]}_0", SHARED_MEMORY / f"{OURS}{other}_x", SHARED_MEMORY / f"{OURS}{other}"]
    ours = [path, SHARED_MEMORY / f"{OURS}{mark}_x"]
    assert all(one.exists() for one in ours)
    try:
        for one in others:
            one.touch()
        os.kill(int(pids[1]), signal.SIGTERM)  # as a batch system does: its caretaker does not end before its time
        process.send_signal(number)
        process.wait()
        assert gone(ours, [pid_in(path), *pids]) and all(one.exists() for one in others)
    finally:
        for one in others:
            one.unlink()
        process.stdout.close()


@pytest.mark.parametrize("ending", ["well", "badly", "badly and its caretaker was killed"])
def test_a_job_that_fails_is_cleaned_up_and_one_that_ends_well_left_alone(ending, mpiexec):
    process, caretaker = launch([mpiexec], 1, [], text=True)
    path = Path(process.stdout.readline().strip())
    if "killed" in ending:
        caretaker.kill()
    care_no_more(caretaker, ending == "well")
    if ending == "well":
        assert path.exists() and caretaker.returncode == -signal.SIGKILL
        leftovers.clean_up(caretaker.args[-1], process.pid, {})
    assert gone([path], [pid_in(path)]) and not list(SHARED_MEMORY.glob(f"{OURS}{caretaker.args[-1]}_*"))
    process.communicate()
