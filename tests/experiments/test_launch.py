"""launch: a job in the foreground, all of whose processes end however it ends."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gridgrad.experiments import launch
from gridgrad.experiments.common import programs
from gridgrad.experiments.launching.start_ranks import find_mpiexec
from gridgrad.parallel.job.own_process import MARK
from gridgrad.parallel.job.run import UserError
from tests.killer import segments_of

WAIT = """
import time
from contextlib import suppress
from pathlib import Path
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
comm.allreduce(1)
open(f"ready-{comm.rank}", "w").close()
time.sleep(120)
"""

ADVICE = "give the name of one, such as train, a file such as mine.py, or a module"
LIMIT = 300  # seconds after which something hangs, however busy the machine is


def start(arguments, cwd):
    env = {name: value for name, value in os.environ.items() if name != MARK} | {"PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-m", "gridgrad", "launch", *arguments]
    return subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def working_in(folder):
    """The ids of the processes whose folder this is."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(entry / "cwd") == str(folder):
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGINT, signal.SIGHUP))]
)
def test_a_signal_ends_the_job_and_leaves_no_segment(number, tmp_path):
    (tmp_path / "waiting_program.py").write_text(WAIT)
    process = start(["2", "waiting_program"], tmp_path)
    try:
        deadline = time.monotonic() + LIMIT
        while len(list(tmp_path.glob("ready-*"))) < 2:
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.05)
        segments = {path for rank in working_in(tmp_path) for path in segments_of(rank)}
        process.send_signal(number)
        process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode not in (0, None)
    assert segments and not [path for path in segments if path.exists()]


@pytest.mark.parametrize(
    "name",
    ["nope", *(pytest.param(name, marks=pytest.mark.long) for name in ("nope.nope", "experiments.papers", "..x"))],
)
def test_a_program_that_is_not_there_is_refused_in_one_line(name, tmp_path):
    process = start(["2", name], tmp_path)
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert stderr == f"launch: error: there is no program {name.removeprefix('experiments.')}: {ADVICE}\n"


def test_programs_files_and_modules_that_run_are_found(tmp_path):
    ours = ["-m", "gridgrad", "train"]
    assert (
        programs.words_of("train") == programs.words_of("experiments.train") == programs.words_of("gridgrad.experiments.train")
    )
    assert programs.words_of("train") == programs.as_module("train") == ours
    assert programs.words_of("json.tool") == ["-m", "json.tool"]
    (tmp_path / "mine.py").write_text("")
    assert programs.words_of(str(tmp_path / "mine.py")) == ["-m", "mpi4py", str(tmp_path / "mine.py")]


@pytest.mark.parametrize(
    ("old", "new"), [("hosts", "launch --hosts 4"), ("pruned", "study pruned"), ("experiments.pruned", "study pruned")]
)
def test_a_program_that_was_called_otherwise_is_told_its_name(old, new):
    with pytest.raises(ValueError, match=f"use gridgrad {new}"):
        programs.words_of(old)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the number of ranks must be a whole number of at least 1, not '': begin with it"),
        (["train"], "not 'train': begin with it, such as: gridgrad launch 4 train"),
        (["0", "train"], "at least 1, not '0'"),
        (["2"], "name the program that the 2 ranks run"),
        (["100000000", "train"], "100000000 ranks are too many to start from here"),
        (["-n", "2"], "name the program that the 2 ranks run"),
        (["--rate", "100", "2", "train"], "--rate is of the network between emulated hosts: add --hosts"),
        (["--hosts", "254", "2", "train"], "at most 253"),
        (["--hosts", "2", "--rate", "-1", "2", "train"], "a number at least 0"),
        (["--hosts", "2", "--delay", "soon", "2", "train"], "a number at least 0"),
    ],
)
def test_bad_command_lines_are_refused(words, message, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["launch", *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(UserError) as caught:
        launch.main()
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("status", [0, 7])
def test_the_status_of_the_job_is_that_of_launch(tmp_path, status):
    (tmp_path / "status_program.py").write_text(f"import sys; sys.exit({status})")
    process = start(["2", "status_program"], tmp_path)
    stderr = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == status
    assert stderr == "" or status != 0  # of a job that failed, some launchers say so


def test_an_open_quotation_mark_in_mpiexec_is_said(monkeypatch):
    monkeypatch.setenv("MPIEXEC", "mpiexec 'x")
    with pytest.raises(OSError, match="MPIEXEC=mpiexec 'x has a quotation mark that is not closed"):
        find_mpiexec()


HOURS = "--steps", "100000000", "--quiet", "--checkpoint", "c", "--checkpoint-steps", "1"
LIBRARIES = {"Python is importing": "_multiarray_umath", "MPI is loaded": "libmpi"}  # what is mapped then


def has_come(moment, folder, ranks):
    """Whether the processes that train in a folder have come so far."""
    if moment == "it trains":
        return any(folder.glob("c/step*"))
    found = 0
    for pid in working_in(folder):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found += b"launch" not in words and LIBRARIES[moment] in Path(f"/proc/{pid}/maps").read_text()
    return found >= ranks


@pytest.mark.parametrize("moment", [*LIBRARIES, "it trains"])
@pytest.mark.parametrize("words", [["train"], ["launch", "2", "train", "--grid", "batch=2"]], ids=" ".join)
def test_ctrl_c_ends_it_with_one_line_at_any_moment(words, moment, tmp_path):
    """It is sent to all processes of a terminal's foreground: the job that launch starts is not among them."""
    command = [sys.executable, "-m", "gridgrad", *words, *HOURS]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=tmp_path
    )
    while not has_come(moment, tmp_path, 2 if "launch" in words else 1):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=LIMIT)
    assert said in ("gridgrad: interrupted\n", f"{words[0]}: interrupted\n") and process.returncode == 130


def test_who_stops_reading_is_no_error():
    for words in (
        [],
        ["study"],
        ["summary"],
        ["train", "--steps", "2"],
        ["launch", "2", "train", "--grid", "batch=2", "--steps", "2"],
    ):
        process = subprocess.Popen([sys.executable, "-m", "gridgrad", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait(LIMIT) == 0, words
        process.stderr.close()


def test_an_output_that_can_not_be_written_is_a_line():
    for words in (["--version"], ["study"], ["explain", "--help"], ["launch", "1", "train", "--help"]):
        with open("/dev/full", "w") as full:
            ended = subprocess.run([sys.executable, "-m", "gridgrad", *words], stdout=full, stderr=subprocess.PIPE, text=True)
        assert ended.returncode == 2 and ended.stderr.count("\n") == 1, words
        assert ended.stderr.endswith(": error: can not write the output: No space left on device\n")
