"""supervise: a training is started again from its last checkpoint, on what is left, as often as that makes sense."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gridgrad.experiments.launching.start_ranks import launcher_options, nodes_in, nodes_of_allocation
from gridgrad.experiments.supervise import HALTED
from gridgrad.parallel.checkpoint.manifest import Manifest, new_folder
from gridgrad.parallel.checkpoint.shard_file import sha256
from gridgrad.parallel.job.run import CHECKPOINTED
from tests.experiments.programs import run_main

# Plays the launcher. How a start ends is in a file start-N, as lines of the shell; one without a file completes the training.
LAUNCHER = """#!/bin/sh
[ "$1" = --version ] && exit
cd {folder}
printf '%s\\n' "$*" >> started
number=$(wc -l < started)
mkdir -p ck
[ -f start-$number ] || {{ touch ck/complete; exit 0; }}
. ./start-$number
"""

LIMIT = 300  # seconds after which something hangs, however busy the machine is


@pytest.fixture
def played(tmp_path, monkeypatch):
    """A folder, in which supervise starts a made-up launcher without waiting between two starts."""
    launcher = tmp_path / "launcher"
    launcher.write_text(LAUNCHER.format(folder=tmp_path))
    launcher.chmod(0o700)
    monkeypatch.setenv("MPIEXEC", str(launcher))
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plays(*starts):
    """Say how the first starts end."""
    for number, lines in enumerate(starts, 1):
        Path(f"start-{number}").write_text(lines)


def checkpoints(*steps):
    """Prepare whole checkpoints, which the lines `mv ready-STEP ck/` of a start bring into being."""
    Path("ck").mkdir()
    for step in steps:
        made = new_folder(Path("made"), step)
        (made / "file").touch()
        Manifest(step, 1.5, None, 1, [{"name": "file", "size": 0, "sha256": sha256(made / "file")}], {}, made).write()
        made.rename(f"ready-{step}")


@pytest.fixture
def supervised(played, monkeypatch, capsys):
    """A function that supervises a training: it returns (status, the lines of what is started, what is printed)."""

    def ended(*options):
        with pytest.raises(SystemExit) as ending:
            run_main(monkeypatch, "supervise", "--wait", 0, *options, "--", "train", "--checkpoint", played / "ck")
        return ending.value.code, (played / "started").read_text().splitlines(), capsys.readouterr().err

    return ended


def test_it_starts_again_until_the_training_is_complete(played, supervised):
    checkpoints(3)
    plays("exit 9", "mv ready-3 ck/; exit 137", "kill -9 $$")
    status, started, printed = supervised("--ranks", 2)
    assert status == 0 and len(started) == 4
    common = f"-m gridgrad train --checkpoint {played}/ck --resume {played}/ck --grid batch=2"
    assert all(line.startswith("-n 2 ") and line.endswith(common) for line in started)
    rows = [line.split() for line in printed.splitlines()[-4:]]
    assert [row[-1] for row in rows] == ["-", "3", "3", "3"] and [row[-2] for row in rows[:2]] == ["9", "137"]


@pytest.mark.parametrize(
    ("ends", "options", "status", "starts"),
    [
        (["exit 2"], (), 2, 1),
        ([f"exit {CHECKPOINTED}"], (), CHECKPOINTED, 1),
        (["exit 1"] * 4, ("--retries", 2), 1, 3),
        (["exit 1", "mv ready-3 ck/; exit 1", "exit 1", "mv ready-6 ck/; exit 1", *["exit 1"] * 4], ("--retries", 2), 1, 6),
        (["touch ck/complete; exit 1", "exit 0"], (), 0, 3),  # a launcher that hides a failure is not believed
        (["touch halt; exit 1"], ("--halt", "halt"), HALTED, 1),
    ],
)
def test_how_a_start_ends_says_whether_there_is_another_one(ends, options, status, starts, supervised):
    """A newer checkpoint begins the count of failures anew."""
    checkpoints(3, 6)
    plays(*ends)
    ended, started, _ = supervised("--ranks", 1, *options)
    assert (ended, len(started)) == (status, starts)


def test_nodes_that_do_not_answer_are_left_out_and_the_grid_becomes_smaller(played, supervised):
    (played / "nodes").write_text("# two nodes\nleft:2\nright slots=2\n")
    for name in ("left", "right"):
        (played / name).touch()
    plays(f"rm {played}/right; exit 1", f"rm {played}/left; exit 1")
    options = "--nodes", str(played / "nodes"), "--ask", f"test -e {played}/{{node}}", "--retries", "2"
    status, started, printed = supervised(*options, "--grid", "batch=2,model=2", "--grid", "model=2")
    assert status == 1 and len(started) == 2
    assert started[0].startswith("-hosts left:2,right:2 -n 4 ") and started[0].endswith("--grid batch=2,model=2")
    assert started[1].startswith("-hosts left:2 -n 2 ") and started[1].endswith("--grid model=2")
    assert "without right, which does not answer" in printed and "without left, right, which do not answer" in printed
    assert "no grid fits on the 0 ranks that are left" in printed


def test_a_signal_is_passed_on_and_ends_it(played):
    plays("trap 'echo got >> got; exit 1' TERM; touch runs; while :; do sleep 0.05; done")
    words = "supervise", "--ranks", "1", "--", "train", "--checkpoint", str(played / "ck")
    process = subprocess.Popen([sys.executable, "-m", "gridgrad", *words], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + LIMIT
    while not (played / "runs").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT)
    assert process.returncode == CHECKPOINTED
    assert (played / "got").read_text() == "got\n" and len((played / "started").read_text().splitlines()) == 1


def test_files_of_nodes_are_read_as_launchers_write_them(tmp_path):
    path = tmp_path / "nodes"
    path.write_text("# comment\nn1 slots=4 max-slots=4\nn2:3\nn3\nn3\n\n")
    assert nodes_in(path) == {"n1": 4, "n2": 3, "n3": 2}
    path.write_text("n1\nn2:x")
    with pytest.raises(ValueError, match="line 2: 'n2:x'"):
        nodes_in(path)


def test_the_nodes_of_an_allocation_are_those_that_slurm_names(tmp_path, monkeypatch):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames n[1-3],m" ] || exit 1\nprintf "n1\\nn2\\nn3\\nm\\n"\n')
    scontrol.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    environment = {"SLURM_JOB_NODELIST": "n[1-3],m", "SLURM_TASKS_PER_NODE": "16(x3),8"}
    assert nodes_of_allocation(environment) == {"n1": 16, "n2": 16, "n3": 16, "m": 8} and nodes_of_allocation({}) == {}
    with pytest.raises(ValueError, match="do not belong together"):
        nodes_of_allocation(environment | {"SLURM_TASKS_PER_NODE": "16(x3)"})


def test_launchers_are_told_the_nodes_in_their_own_words(monkeypatch):
    nodes = {"a": 4, "b": 0, "c": 4, "d": 4}
    monkeypatch.setattr("gridgrad.experiments.launching.start_ranks.is_open_mpi", lambda launcher: launcher == "mpirun")
    assert launcher_options("/usr/bin/mpiexec", nodes, 6) == ["-hosts", "a:4,c:2"]
    assert launcher_options("mpirun", nodes, 6) == ["--host", "a:4,c:2"]
    assert launcher_options("/bin/srun", nodes, 9) == ["--nodes=3", "--nodelist=a,c,d", "--distribution=block"]
