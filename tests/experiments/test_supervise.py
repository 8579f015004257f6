"""supervise: a training is started again from its last checkpoint, on what is left, as often as that makes sense."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gridgrad.experiments import supervise
from gridgrad.experiments.common.checkpoints import touch
from gridgrad.experiments.launching import start_ranks
from gridgrad.experiments.launching.start_ranks import answering, launcher_options, nodes_in, nodes_of_allocation
from gridgrad.experiments.supervise import HALTED, checkpoint_of, fitting, grids_of, newest_step, time_of
from gridgrad.parallel.checkpoint.manifest import Manifest, new_folder
from gridgrad.parallel.checkpoint.shard_file import sha256
from gridgrad.parallel.job.run import CHECKPOINTED, UserError
from tests.experiments.programs import program

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
    return tmp_path


def plays(folder, *starts):
    """Say how the first starts end."""
    for number, lines in enumerate(starts, 1):
        (folder / f"start-{number}").write_text(lines)


def checkpoints(folder, *steps):
    """Prepare whole checkpoints, which the lines `mv ready-STEP ck/` of a start bring into being."""
    (folder / "ck").mkdir(exist_ok=True)
    for step in steps:
        made = new_folder(folder / "made", step)
        (made / "file").touch()
        Manifest(step, 1.5, None, 1, [{"name": "file", "size": 0, "sha256": sha256(made / "file")}], {}, made).write()
        made.rename(folder / f"ready-{step}")


def supervised(folder, *options, train=("--steps", "9")):
    """(status, the lines of what is started, what is printed)."""
    words = ["--wait", "0", *options, "--", "train", *train, "--checkpoint", folder / "ck"]
    finished = program("supervise", *words)
    started = folder / "started"
    return finished.returncode, started.read_text().splitlines() if started.exists() else [], finished.stderr


def test_it_starts_again_until_the_training_is_complete(played):
    checkpoints(played, 3)
    plays(played, "exit 9", "mv ready-3 ck/; exit 137", "kill -9 $$")
    status, started, printed = supervised(played, "--ranks", "2")
    assert status == 0 and len(started) == 4
    common = f"-m gridgrad train --steps 9 --checkpoint {played}/ck --resume {played}/ck --grid batch=2"
    assert all(line.startswith("-n 2 ") and line.endswith(common) for line in started)
    assert "there is no checkpoint yet" in printed and "step 3 is the last in a checkpoint" in printed
    table = [line.split() for line in printed.splitlines()[-5:]]
    assert table[0] == ["start", "ranks", "grid", "minutes", "status", "steps", "in", "a", "checkpoint"]
    assert [(cells[0], cells[1], cells[-2], cells[-1]) for cells in table[1:]] == [
        ("1", "2", "9", "-"), ("2", "2", "137", "3"), ("3", "2", table[3][-2], "3"), ("4", "2", "0", "3"),
    ]  # fmt: skip


def test_a_launcher_that_hides_a_failure_is_not_believed(played):
    plays(played, "exit 0", "touch ck/complete; exit 1")
    status, started, printed = supervised(played, "--ranks", "1")
    assert (status, len(started)) == (0, 3)
    assert printed.count("the launcher ended with status 0, but the training did not reach its end") == 1


@pytest.mark.parametrize("is_folder", [False, True])
def test_what_is_called_complete_already_stays_and_says_nothing(is_folder, played):
    mine = played / "ck" / "complete"
    (mine if is_folder else mine.parent).mkdir(parents=True)
    (mine / "inside" if is_folder else mine).write_text("mine")
    os.utime(mine, (1e9, 1e9))
    plays(played, "exit 0")
    status, started, printed = supervised(played, "--ranks", "1")
    assert (status, len(started)) == (0, 2) and printed.count("did not reach its end") == 1
    assert (mine / "inside" if is_folder else mine).read_text() == "mine"


def test_the_end_of_a_training_is_marked_without_following_links(tmp_path):
    (tmp_path / "complete").symlink_to("elsewhere")
    before = time_of(tmp_path / "complete")
    touch(tmp_path / "complete")
    assert time_of(tmp_path / "complete") != before and not (tmp_path / "elsewhere").exists()
    (tmp_path / "complete").unlink()
    touch(tmp_path / "complete")
    assert (tmp_path / "complete").read_bytes() == b""


def test_the_next_start_waits_for_the_lock_of_the_job_before(played, monkeypatch):
    """As of a node that is gone, whose lock the file server still holds."""
    answers = [BlockingIOError(11, "held")] * 2
    looked = SimpleNamespace(release=lambda: None)
    jobs = SimpleNamespace(signalled=None, pause=lambda seconds: None)
    one = supervise.Supervisor([], played, [], 1, {}, "", 0, 0, None, jobs)
    monkeypatch.setattr(supervise, "lock", lambda folder: raised(answers.pop()) if answers else looked)
    one._wait_for_lock()
    assert len(answers) == 2  # nothing was started before
    one.starts.append({})
    one._wait_for_lock()
    assert answers == []


def raised(error):
    raise error


@pytest.mark.parametrize(("status", "starts"), [(2, 1), (CHECKPOINTED, 1), (1, 3)])
def test_what_is_not_a_failure_is_not_started_again(played, status, starts):
    plays(played, *[f"exit {status}"] * 3)
    ended, started, _ = supervised(played, "--ranks", "1", "--retries", "2")
    assert (ended, len(started)) == (status, starts)


def test_a_newer_checkpoint_begins_the_count_anew(played):
    checkpoints(played, 3, 6)
    plays(played, "exit 1", "exit 1", "mv ready-3 ck/; exit 1", "exit 1", "mv ready-6 ck/; exit 1", *["exit 1"] * 9)
    ended, started, printed = supervised(played, "--ranks", "1", "--retries", "2")
    assert (ended, len(started)) == (1, 7)
    assert "no newer checkpoint after 2 starts again: giving up" in printed


def test_the_halt_file_forbids_starts(played):
    plays(played, "touch halt; exit 1")
    ended, started, printed = supervised(played, "--ranks", "1", "--halt", str(played / "halt"))
    assert (ended, len(started)) == (HALTED, 1) and f"{played}/halt exists" in printed
    assert supervised(played, "--ranks", "1", "--halt", str(played / "halt"))[:2] == (HALTED, started)


def test_nodes_that_do_not_answer_are_left_out_and_the_grid_becomes_smaller(played):
    (played / "nodes").write_text("# two nodes\nleft:2\nright slots=2\n")
    (played / "left").touch(), (played / "right").touch()
    plays(played, f"rm {played}/right; exit 1", f"rm {played}/left; exit 1")
    options = "--nodes", str(played / "nodes"), "--ask", f"test -e {played}/{{node}}", "--retries", "2"
    status, started, printed = supervised(played, *options, "--grid", "batch=2,model=2", "--grid", "model=2")
    assert status == 1 and len(started) == 2
    assert started[0].startswith("-hosts left:2,right:2 -n 4 ") and started[0].endswith("--grid batch=2,model=2")
    assert started[1].startswith("-hosts left:2 -n 2 ") and started[1].endswith("--grid model=2")
    assert "without right, which does not answer" in printed and "without left, right, which do not answer" in printed
    assert "no grid fits on the 0 ranks that are left" in printed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_is_passed_on_and_ends_it(played, number):
    plays(played, f"trap 'echo got >> got; exit 1' {signal.Signals(number).name[3:]}; touch runs; while :; do sleep 0.05; done")
    command = [sys.executable, "-m", "gridgrad", "supervise", "--ranks", "1", "--", "train", "--checkpoint", str(played / "ck")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + LIMIT
    while not (played / "runs").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, printed = process.communicate(timeout=LIMIT)
    assert process.returncode == (130 if number == signal.SIGINT else CHECKPOINTED)
    assert (played / "got").read_text() == "got\n" and f"ended by {number.name}" in printed
    assert len((played / "started").read_text().splitlines()) == 1


def test_a_signal_ends_it_between_two_starts(played):
    plays(played, "exit 1")
    command = [sys.executable, "-m", "gridgrad", "supervise", "--ranks", "1", "--wait", "50", "--", "train", "--checkpoint"]
    process = subprocess.Popen([*command, str(played / "ck")], stderr=subprocess.PIPE, text=True)
    while "start again in 50 s" not in (line := process.stderr.readline()):
        assert line
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT)
    assert process.returncode == CHECKPOINTED


@pytest.mark.parametrize(
    ("ranks", "texts", "found"),
    [
        (8, ["batch=4,model=2"], ("batch=4,model=2", 8)),
        (9, ["batch=4,model=2"], ("batch=4,model=2", 8)),
        (7, ["batch=4,model=2", "batch=2,model=2"], ("batch=2,model=2", 4)),
        (7, ["batch=4,model=2", "batch=7"], ("batch=7", 7)),
        (7, ["batch=4,model=2"], ("batch=3,model=2", 6)),
        (3, ["stage=2,batch=2", "model=4"], ("stage=2,batch=1", 2)),
        (1, ["model=2"], None),
        (0, ["batch=2"], None),
        (5, ["auto"], ("auto", 5)),
        (5, ["batch=8", "auto"], ("auto", 5)),
    ],
)
def test_the_first_grid_that_fits_is_chosen(ranks, texts, found):
    assert fitting(grids_of(texts), ranks) == found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "give train the option --checkpoint DIR"),
        (["train", "--checkpoint", "ck", "--resume", "ck"], "leave --resume out"),
        (["train", "--checkpoint=ck", "--grid", "batch=2"], "give --grid to supervise"),
        (["train", "--checkpoint=ck"], "how many ranks"),
        (["--grid", "batch=x", "--", "train", "--checkpoint=ck"], "the size of batch"),
        (["--ranks", "3", "--grid", "model=4", "train", "--checkpoint=ck"], "none of the grids fits on 3 ranks"),
        (["--ranks", "1", "--nodes", "/nope", "train", "--checkpoint=ck"], "/nope: No such file"),
        (["--ranks", "1", "--ask", "ping x", "train", "--checkpoint=ck"], "put {node} there"),
        (["--ranks", "1", "sweep"], "only train has checkpoints"),
        (["--ranks", "1"], "name the training behind --"),
    ],
)
def test_what_does_not_suit_is_said_in_one_line(words, message, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["supervise", *words])
    with pytest.raises(UserError) as caught:
        supervise.main()
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_more_ranks_than_slots_are_refused(tmp_path, monkeypatch):
    (tmp_path / "nodes").write_text("a:1\nb\n")
    words = ["--ranks", "3", "--nodes", str(tmp_path / "nodes"), "--", "train", "--checkpoint=ck"]
    monkeypatch.setattr(sys, "argv", ["supervise", *words])
    with pytest.raises(UserError, match="3 ranks do not fit in the 2 slots"):
        supervise.main()


def test_the_folder_of_checkpoints_is_found_in_the_options_of_train(tmp_path):
    assert checkpoint_of(["--steps", "3", "--checkpoint", "a/b", "--lr", "-1"]) == Path("a/b")
    assert checkpoint_of(["--checkpoint=x", "--checkpoint-steps", "3"]) == Path("x")
    assert newest_step(tmp_path / "none") == -1


def test_files_of_nodes_are_read_as_launchers_write_them(tmp_path):
    path = tmp_path / "nodes"
    path.write_text("# comment\nn1 slots=4 max-slots=4\nn2:3\nn3\nn3\n10.0.0.1:2 # by address\n\n")
    assert nodes_in(path) == {"n1": 4, "n2": 3, "n3": 2, "10.0.0.1": 2}
    for wrong in ("n2:x", "-Fevil:1", "é:1", "$(x):1"):
        path.write_text(f"n1\n{wrong}\n")
        with pytest.raises(ValueError, match=f"line 2: '{re.escape(wrong)}' is no node"):
            nodes_in(path)
    for content in ("", "# none\n", "n:0\n"):
        path.write_text(content)
        with pytest.raises(ValueError, match="has no nodes"):
            nodes_in(path)


def test_the_nodes_of_an_allocation_are_those_that_slurm_names(tmp_path, monkeypatch):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames n[1-3],m" ] || exit 1\nprintf "n1\\nn2\\nn3\\nm\\n"\n')
    scontrol.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    environment = {"SLURM_JOB_NODELIST": "n[1-3],m", "SLURM_TASKS_PER_NODE": "16(x3),8"}
    assert nodes_of_allocation(environment) == {"n1": 16, "n2": 16, "n3": 16, "m": 8}
    assert nodes_of_allocation({}) == {}
    with pytest.raises(ValueError, match="scontrol does not know the nodes q"):
        nodes_of_allocation(environment | {"SLURM_JOB_NODELIST": "q"})
    with pytest.raises(ValueError, match="do not belong together"):
        nodes_of_allocation(environment | {"SLURM_TASKS_PER_NODE": "16(x3)"})


def test_a_node_that_says_nothing_is_not_waited_for_long(monkeypatch, tmp_path):
    """The time is over when the others have answered."""
    looks = iter([0.0, 0.0, 0.0, 1e9])  # at first, for a, for b, for c
    monkeypatch.setattr(start_ranks, "SECONDS", 300.0)
    monkeypatch.setattr(start_ranks, "time", SimpleNamespace(monotonic=lambda: next(looks)))
    (tmp_path / "b").touch()
    ask = f"sh -c 'test {{node}} = c && sleep 600; test -e {tmp_path}/{{node}}'"
    assert answering({"a": 1, "b": 2, "c": 3, "localhost": 4}, ask) == {"b": 2, "localhost": 4}
    assert list(looks) == []


def test_launchers_are_told_the_nodes_in_their_own_words(monkeypatch):
    nodes = {"a": 4, "b": 0, "c": 4, "d": 4}
    monkeypatch.setattr("gridgrad.experiments.launching.start_ranks.is_open_mpi", lambda launcher: launcher == "mpirun")
    assert launcher_options("/usr/bin/mpiexec", nodes, 6) == ["-hosts", "a:4,c:2"]
    assert launcher_options("mpirun", nodes, 6) == ["--host", "a:4,c:2"]
    assert launcher_options("/bin/srun", nodes, 9) == ["--nodes=3", "--nodelist=a,c,d", "--distribution=block"]
