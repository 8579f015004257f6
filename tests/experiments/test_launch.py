"""launch: a job in the foreground, all of whose processes end however it ends."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from experiments.common import programs
from parallel.job.launch import MARK, find_mpiexec
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

LIMIT = 300  # seconds after which something hangs, however busy the machine is


def start(arguments, cwd):
    env = {name: value for name, value in os.environ.items() if name != MARK} | {"PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-m", "experiments.launch", *arguments]
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
    ["experiments.nope", *(pytest.param(name, marks=pytest.mark.long) for name in ("nope.nope", "experiments.papers", "..x"))],
)
def test_a_program_that_is_not_there_is_refused_in_one_line(name, tmp_path):
    process = start(["2", name], tmp_path)
    _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert stderr == f"launch: error: there is no program {name}: give the name of one, such as train, or of a module\n"


def test_modules_and_packages_that_run_are_found():
    assert programs.module_of("train") == programs.module_of("experiments.train") == "experiments.train"
    assert programs.module_of("usability") == "experiments.usability" and programs.module_of("json.tool") == "json.tool"


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
