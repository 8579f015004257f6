"""launch: a job in the foreground, all of whose processes end however it ends; and how jobs are started at all."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gridgrad.experiments.common import programs
from gridgrad.experiments.launching.start_ranks import FALSE_START, STARTS, find_mpiexec, mpiexec
from gridgrad.parallel.checkpoint.manifest import found_in
from gridgrad.parallel.job.own_process import MARK
from gridgrad.parallel.job.run import CHECKPOINTED
from tests.killer import segments_of

WAIT = """
import time
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
comm.allreduce(1)
open(f"ready-{comm.rank}", "w").close()
time.sleep(120)
"""
HOURS = "--steps", "100000000", "--quiet", "--checkpoint", "c", "--checkpoint-steps", "1"
LIMIT = 300  # seconds after which something hangs, however busy the machine is


def start(*words, cwd=None, stdout=subprocess.PIPE):
    """The process of a command line, in a session of its own."""
    env = {name: value for name, value in os.environ.items() if name != MARK} | {"PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-m", "gridgrad", *words]
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, start_new_session=True)


def working_in(folder):
    """The ids of the processes whose folder this is."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(entry / "cwd") == str(folder):
                found.append(int(entry.name))
    return found


def test_a_signal_ends_the_job_and_leaves_no_segment(tmp_path):
    (tmp_path / "waiting_program.py").write_text(WAIT)
    process = start("launch", "2", "waiting_program", cwd=tmp_path)
    try:
        deadline = time.monotonic() + LIMIT
        while len(list(tmp_path.glob("ready-*"))) < 2:
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.05)
        segments = {path for rank in working_in(tmp_path) for path in segments_of(rank)}
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode not in (0, None)
    assert segments and not [path for path in segments if path.exists()]


def has_come(moment, folder):
    """Whether what was started in a folder has come so far."""
    if moment == "it trains":
        return any(folder.glob("c/step*"))
    found = False
    for pid in working_in(folder):
        with suppress(OSError):
            found |= "libmpi" in Path(f"/proc/{pid}/maps").read_text()
    return found


@pytest.mark.parametrize(("ranks", "moment"), [(1, "MPI is loaded"), (2, "it trains")])
def test_ctrl_c_ends_it_with_one_line_at_any_moment(ranks, moment, tmp_path):
    """It is sent to all processes of a terminal's foreground: the job that launch starts is not among them."""
    words = ["launch", "2", "train", "--grid", "batch=2"] if ranks == 2 else ["train"]
    process = start(*words, *HOURS, cwd=tmp_path)
    while not has_come(moment, tmp_path):
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


def test_who_stops_reading_is_no_error():
    for words in ([], ["launch", "2", "train", "--grid", "batch=2", "--steps", "2"]):
        process = start(*words)
        process.stdout.close()
        assert process.stderr.read() == "" and process.wait(LIMIT) == 0, words
        process.stderr.close()


def test_an_output_that_can_not_be_written_is_a_line():
    for words in (["study"], ["launch", "1", "train", "--help"]):
        with open("/dev/full", "w") as full:
            process = start(*words, stdout=full)
        _, stderr = process.communicate(timeout=LIMIT)
        assert process.returncode == 2 and stderr.count("\n") == 1, words
        assert stderr.endswith(": error: can not write the output: No space left on device\n")


def test_programs_files_and_modules_that_run_are_found(tmp_path):
    ours = ["-m", "gridgrad", "train"]
    assert programs.words_of("train") == programs.words_of("gridgrad.experiments.train") == programs.as_module("train") == ours
    assert programs.words_of("json.tool") == ["-m", "json.tool"]
    (tmp_path / "mine.py").write_text("")
    assert programs.words_of(str(tmp_path / "mine.py")) == ["-m", "mpi4py", str(tmp_path / "mine.py")]
    for name, message in (
        ("experiments.pruned", "use gridgrad study pruned"),
        ("nope.nope", "no program"),
    ):
        with pytest.raises(ValueError, match=message):
            programs.words_of(name)


# ----- which launcher starts a job, how often, and on how many ranks


@pytest.mark.parametrize(("false_starts", "status"), [(2, 0), (3, 213)])
def test_a_launcher_that_fails_before_the_ranks_run_is_started_again(tmp_path, monkeypatch, false_starts, status):
    launcher, starts = tmp_path / "mpiexec", tmp_path / "starts"
    launcher.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exit\necho >> {starts}\n'
        f'if [ $(wc -l < {starts}) -le {false_starts} ]; then echo "{FALSE_START}. We cannot" >&2; exit 213; fi\n'
    )
    launcher.chmod(0o755)
    monkeypatch.setenv("MPIEXEC", str(launcher))
    assert mpiexec(2, ["-c", ""], 10).status == status
    assert len(starts.read_text()) == STARTS


def test_the_launcher_is_the_one_of_mpiexec_if_it_is_there(monkeypatch):
    monkeypatch.setenv("MPIEXEC", f"{sys.executable} --mpi=pmi2")
    assert find_mpiexec() == [sys.executable, "--mpi=pmi2"]
    for words, message in (("/no/such/mpiexec --flag", "no launcher '/no/such/mpiexec'"), ("mpiexec 'x", "quotation mark")):
        monkeypatch.setenv("MPIEXEC", words)
        with pytest.raises(OSError, match=message):
            find_mpiexec()
