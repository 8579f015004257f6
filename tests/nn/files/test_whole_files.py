"""Files and folders appear whole or not at all, one that can not be written is named in a line, and a lock has one holder."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest

from gridgrad.nn.files import whole_files
from gridgrad.nn.files.whole_files import MARK, Lock, NotWritten, folder_written_whole, is_of_disk, write_text, written_whole
from tests.disk import files_end_at


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "folder" / "file"
    with pytest.raises(RuntimeError), written_whole(path) as beside:
        beside.write_text("half")
        raise RuntimeError
    assert list(path.parent.iterdir()) == []
    with written_whole(path) as beside:
        beside.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"


def test_links_stay_links_and_devices_stay_devices(tmp_path):
    (tmp_path / "there").write_text("old")
    for name, target in (("link", tmp_path / "there"), ("circle", "circle")):
        (tmp_path / name).symlink_to(target)
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "there").read_text() == "new"
    with pytest.raises(OSError, match="no ordinary file"), written_whole("/dev/null"):
        pass
    with pytest.raises(NotWritten, match="can not write .*circle: Too many levels"):
        write_text(tmp_path / "circle", "text")
    assert all((tmp_path / name).is_symlink() for name in ("link", "circle"))


def test_a_full_disk_is_said_in_a_line_with_the_name_of_the_file(tmp_path):
    path = tmp_path / "results.json"
    path.write_text("earlier results")
    for size in (0, 4096):
        with files_end_at(size), pytest.raises(NotWritten) as caught:
            write_text(path, "x" * 8000)
        assert str(caught.value) == f"can not write {path}: File too large; make room there, or give another name"
        assert caught.value.errno == errno.EFBIG and is_of_disk(caught.value)
        assert path.read_text() == "earlier results" and os.listdir(tmp_path) == [path.name]


# ----- folders


def make(folder, text, parts=0):
    (folder / "parts").mkdir(parents=True)
    for name in ("anchor", *(f"parts/{number}.evt" for number in range(parts))):
        (folder / name).write_text(text)


def test_a_folder_appears_whole_or_not_at_all_and_replaces_only_its_like(tmp_path):
    path = tmp_path / "new" / "trace"
    with folder_written_whole(path, "anchor") as beside:
        make(beside, "first", 3)
        assert not path.exists()
    (path / "notes").write_text("mine")
    (path / "parts" / "mine").symlink_to("elsewhere")
    with pytest.raises(KeyError), folder_written_whole(path, "anchor") as beside:
        make(beside, "second")
        raise KeyError
    with folder_written_whole(path, "anchor") as beside:
        make(beside, "third", 2)
        assert (path / "anchor").read_text() == "first"
    left = sorted(str(one.relative_to(path)) for one in path.rglob("*") if one.is_symlink() or one.is_file())
    assert left == ["anchor", "notes", "parts/0.evt", "parts/1.evt", "parts/mine"]
    assert (path / "notes").read_text() == "mine" and (path / "anchor").read_text() == "third"
    assert [*path.parent.iterdir()] == [path]


def test_a_folder_that_can_not_be_written_is_named_and_nothing_of_another_kind_is_replaced(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis").write_text("kept")
    line = f"can not write to {tmp_path}/other: it is no folder with anchor; give another"
    with pytest.raises(OSError, match=line), folder_written_whole(tmp_path / "other", "anchor"):
        pass
    assert (tmp_path / "other" / "thesis").read_text() == "kept"
    full = pytest.raises(NotWritten, match=f"^can not write {tmp_path}/new: File too large; make room there")
    with files_end_at(100), full, folder_written_whole(tmp_path / "new", "anchor") as beside:
        make(beside, "x" * 1000)
    assert os.listdir(tmp_path) == ["other"]


# ----- other processes


def started(code, *arguments, **environment):
    """A process that runs some code, and then waits for the end of its input."""
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    command = [sys.executable, "-c", f"{code}; print('done', flush=True); sys.stdin.read()", *map(str, arguments)]
    process = subprocess.Popen(command, env=os.environ | environment, text=True, **pipes)
    assert process.stdout.readline() == "done\n"
    return process


WRITES = """
import sys
from gridgrad.nn.files.whole_files import folder_written_whole, written_whole
whole, several = written_whole(sys.argv[1]), folder_written_whole(sys.argv[2], "anchor")
whole.__enter__().write_bytes(bytes(1000))
folder = several.__enter__()
folder.mkdir()
(folder / "anchor").write_bytes(bytes(1000))"""


def test_what_a_killed_writer_has_left_goes_with_the_next_one_and_nothing_else_does(tmp_path):
    one, several = tmp_path / "file", tmp_path / "folder"
    own = [tmp_path / name for name in (".file.abcd1234", ".gridgrad-mine", ".gridgrad-0123456789abcdef-01234567-abcdefgh")]
    for path in own:
        path.write_text("kept")
    with started(WRITES, one, several) as writer:
        during = set(tmp_path.iterdir())
        assert len(during) == len(own) + 2
        for left in during - set(own):
            os.utime(left, (0, 0))
        write_text(one, "of another writer")
        with folder_written_whole(several, "anchor") as beside:
            make(beside, "of another writer")
        assert set(tmp_path.iterdir()) == during | {one, several}  # the first one lives
        writer.kill()
    write_text(tmp_path / "other", "text")
    assert during < set(tmp_path.iterdir())
    write_text(one, "text")
    with folder_written_whole(several, "anchor") as beside:
        make(beside, "text")
    assert set(tmp_path.iterdir()) == {*own, one, several, tmp_path / "other"}


LOCKS = """
import subprocess, sys
from gridgrad.nn.files.whole_files import Lock
lock = Lock(sys.argv[1], "taken", "wait")
child = subprocess.Popen(["cat"], stdout=2)"""


def test_the_holder_of_a_lock_is_named_and_the_lock_ends_with_it_and_not_with_its_children(tmp_path):
    path = tmp_path / "lock"
    with started(LOCKS, path, SLURM_JOB_ID="77") as holder:
        words = rf"^taken \(process {holder.pid} of Slurm job 77 on {os.uname().nodename}\): wait$"
        with pytest.raises(ValueError, match=words):
            Lock(path, "taken", "wait")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with Lock(path, "taken", "wait") as lock:
            assert lock.note == "" and path.read_bytes().startswith(MARK)
        assert path.read_bytes() == b""


def test_where_files_can_not_be_locked_a_note_says_so_and_what_is_left_stays_for_a_day(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOLCK, "no locks here")

    for function in "lockf", "flock":
        monkeypatch.setattr(fcntl, function, refuse)
    with Lock(tmp_path / "lock", "taken", "wait") as lock:
        assert "can not be locked (no locks here)" in lock.note and "\n" not in lock.note
    left = tmp_path / f"{whole_files._prefix(tmp_path / 'file')}{whole_files._host()}-abcd_123"
    left.write_text("half")
    for age, stays in ((1, True), (2 * whole_files.DAY, False)):
        os.utime(left, (time.time() - age,) * 2)
        write_text(tmp_path / "file", "text")
        assert left.exists() == stays
