"""A lock is the system's: it names its holder, ends with it, and never changes what is somebody else's."""

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from gridgrad.nn.files.whole_files import MARK, Lock

TAKE = "import sys; from gridgrad.nn.files.whole_files import Lock; lock = Lock(sys.argv[1], 'taken', 'wait'); "


def taken(path, then="print('got', flush=True); sys.stdin.read()", **environment):
    """A process that takes the lock."""
    command = [sys.executable, "-c", TAKE + then, str(path)]
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    return subprocess.Popen(command, env=os.environ | environment, text=True, **pipes)


def test_the_holder_is_named_and_the_lock_ends_with_it_and_not_with_its_children(tmp_path):
    path = tmp_path / "lock"
    child = "import subprocess; child = subprocess.Popen(['cat'], stdout=2); print('got', flush=True); sys.stdin.read()"
    with taken(path, child, SLURM_JOB_ID="77") as holder:
        assert holder.stdout.readline() == "got\n"
        words = rf"^taken \(process {holder.pid} of Slurm job 77 on {os.uname().nodename}\): wait$"
        with pytest.raises(ValueError, match=words):
            Lock(path, "taken", "wait")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with Lock(path, "taken", "wait") as lock:
            assert lock.note == "" and path.read_bytes().startswith(MARK)
        assert path.read_bytes() == b""


def test_files_of_others_stay_as_they_are(tmp_path):
    mine, link, pipe = tmp_path / "mine.lock", tmp_path / "link.lock", tmp_path / "pipe.lock"
    mine.write_text("mine"), link.symlink_to(mine), os.mkfifo(pipe)
    with Lock(mine, "taken", "wait"):
        pass
    for path, words in ((link, "is a link"), (pipe, "is no ordinary file")):
        with pytest.raises(ValueError, match=f"{path} {words}.*: move it away"):
            Lock(path, "taken", "wait")
    with pytest.raises(OSError, match="can not write .*: Is a directory"):
        Lock(tmp_path, "taken", "wait")
    assert mine.read_text() == "mine" and link.is_symlink()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, 524])
def test_where_files_can_not_be_locked_a_note_says_so(number, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with Lock(tmp_path / "lock", "taken", "wait") as lock:
        assert "can not be locked (no locks here)" in lock.note and "\n" not in lock.note


def test_of_processes_that_race_one_gets_in(tmp_path):
    racers = [taken(tmp_path / "lock") for _ in range(4)]
    lines = []
    for racer in racers:
        lines.append(racer.stdout.readline())
    for racer in racers:
        racer.communicate()
    assert lines.count("got\n") == 1 and sorted(racer.returncode for racer in racers) == [0, 1, 1, 1]
