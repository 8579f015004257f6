"""launch: a job in the foreground, all of whose processes end however it ends; and how jobs are started at all."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from gridgrad.experiments.launching import leftovers
from gridgrad.experiments.launching.start_ranks import FALSE_START, STARTS, care_no_more, launch, mpiexec
from gridgrad.parallel.checkpoint.manifest import found_in
from gridgrad.parallel.job.own_process import MARK, OURS, SHARED_MEMORY
from gridgrad.parallel.job.run import CHECKPOINTED

HOURS = "--steps", "100000000", "--quiet", "--checkpoint", "c", "--checkpoint-steps", "1"
LIMIT = 300  # seconds after which something hangs, however busy the machine is


def start(*words, cwd=None, stdout=subprocess.PIPE):
    """The process of a command line, in a session of its own."""
    env = {name: value for name, value in os.environ.items() if name != MARK} | {"PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-m", "gridgrad", *words]
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.parametrize("words", [("train",), ("launch", "2", "train", "--grid", "batch=2")], ids=["alone", "launched"])
def test_ctrl_c_ends_it_with_one_line(words, tmp_path):
    """It is sent to all processes of a terminal's foreground: the job that launch starts is not among them."""
    process = start(*words, *HOURS, cwd=tmp_path)
    while not any(tmp_path.glob("c/step*")):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    said = "".join(process.communicate(timeout=LIMIT))
    assert said in ("gridgrad: interrupted\n", f"{words[0]}: interrupted\n") and process.returncode == 130


def test_at_a_signal_the_ranks_make_a_checkpoint(tmp_path):
    process = start("launch", "2", "train", "--grid", "batch=2", *HOURS, cwd=tmp_path)
    while not found_in(tmp_path / "c")[0]:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, printed = process.communicate(timeout=LIMIT)
    assert process.returncode == CHECKPOINTED, printed
    stopped = int(printed.partition("stopped by a signal after step ")[2].split(",")[0])
    assert found_in(tmp_path / "c")[0][0].step == stopped


def test_its_status_is_that_of_the_job_whose_output_it_passes_on(tmp_path):
    for status in (0, 7):
        (tmp_path / "mine.py").write_text(f"import sys; print('hello'); sys.exit({status})")
        process = start("launch", "2", "mine.py", cwd=tmp_path)
        stdout, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == status and (status or stdout.count("hello") == 2)


def test_an_output_that_nobody_reads_is_no_error_and_one_that_can_not_be_written_is_a_line():
    words = "launch", "2", "train", "--grid", "batch=2", "--steps", "2"
    process = start(*words)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait(LIMIT) == 0
    process.stderr.close()
    with open("/dev/full", "w") as full:
        process = start(*words, stdout=full)
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 2 and stderr.count("\n") == 1
    assert stderr.endswith(": error: can not write the output: No space left on device\n")


# ----- which launcher starts a job, how often, and on how many ranks


@pytest.mark.parametrize(("false_starts", "end", "status"), [(2, "exit 213", 0), (3, "exit 213", 213), (1, "exec sleep 60", 0)])
def test_a_launcher_that_fails_before_the_ranks_run_is_started_again(tmp_path, monkeypatch, false_starts, end, status):
    launcher, starts = tmp_path / "mpiexec", tmp_path / "starts"
    launcher.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exit\necho >> {starts}\n'
        f'if [ $(wc -l < {starts}) -le {false_starts} ]; then echo "{FALSE_START}. We cannot" >&2; {end}; fi\n'
    )
    launcher.chmod(0o755)
    monkeypatch.setenv("MPIEXEC", str(launcher))
    assert mpiexec(2, ["-c", ""], 0.5 if "sleep" in end else 10).status == status
    assert len(starts.read_text()) == min(false_starts + 1, STARTS)


# ----- what a job has left goes, and nothing of others

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


@pytest.fixture
def stubborn(tmp_path):
    """A launcher that starts one rank, which has files in shared memory, and does not end it."""
    path = tmp_path / "mpiexec"
    (tmp_path / "rank.py").write_text(RANK)
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit\n"{sys.executable}" "{tmp_path}/rank.py" {SHARED_MEMORY}\n')
    path.chmod(0o755)
    return str(path)


def gone(paths, pids):
    """Whether all of these files and processes go."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        running = [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")]  # which a process has until it has ended
        if not running and not any(path.exists() for path in paths):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("ending", ["well", "badly", "badly and its caretaker was killed"])
def test_a_job_that_fails_is_cleaned_up_and_one_that_ends_well_left_alone(ending, stubborn):
    """Files of others stay. A launcher that is killed is tested in tests/parallel/job/test_job.py."""
    process, caretaker = launch([stubborn], 1, [], text=True)
    path, mark, other = Path(process.stdout.readline().strip()), caretaker.args[-1], uuid.uuid4().hex
    others = [SHARED_MEMORY / f"mpich_shm_{other[:8]}_0", SHARED_MEMORY / f"{OURS}{other}_x"]
    try:
        for one in others:
            one.touch()
        # As a batch system does: the caretaker does not end before its time.
        caretaker.send_signal(signal.SIGKILL if "killed" in ending else signal.SIGTERM)
        care_no_more(caretaker, ending == "well")
        if ending == "well":
            assert path.exists() and caretaker.returncode == -signal.SIGKILL
            leftovers.clean_up(mark, process.pid, {})
        assert gone([path], [int(path.name.split("_")[2], 16)]) and not list(SHARED_MEMORY.glob(f"{OURS}{mark}_*"))
        assert all(one.exists() for one in others)
    finally:
        for one in others:
            one.unlink()
    process.communicate()
