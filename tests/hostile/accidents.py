"""Accidents of checkpoints: what lies beside them, what is damaged or can not be read, and trainings that are killed.

Whatever happens, nothing of the user's goes away, a training goes on right or says in one line why not, and what was not read
is never deleted.
"""

import builtins
import errno
import io
import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path

from tests.fuzz.targets_training import NAME, NEWEST, TRAIN, around, checkpoints, digest_of, file_of, signed
from tests.hostile.case import Case, program

FIRST, SHARD = "step-000000001", file_of(0)
LOCK = ("work/made/*lock*",)
OURS = *(f"work/made/step-00000000[12345]{name}" for name in ("", "/rank-*.h5", f"/{NAME}")), *LOCK
NEWER = tuple(path.replace("[12345]", "[2345]") for path in OURS)
WORDS = "train", *TRAIN.split(), "--checkpoint-steps", "1", "--checkpoint"
ON = *(word if word != "2" else "4" for word in TRAIN.split()), "--checkpoint", "made", "--resume", "made"
ON = "train", *ON, "--checkpoint-steps", "1"
ONE = *ON, "--keep", "1"
USERS = {  # of the user, in a folder of checkpoints: {path: content}
    "a folder step-final": {"step-final/notes.txt": "mine"}, "a folder step-1": {"step-1/rank-0000.h5": "mine"},
    "a file": {FIRST: "mine"}, "a file in our folder": {f"{FIRST}/notes.txt": "mine"},
    "a folder in our folder": {f"{FIRST}/plots/a.png": "mine"}, "no checkpoint": {"step-000000007/results.csv": "mine"},
    "digits": {"step-٠١/a": "mine"}, "a file complete": {"complete": "mine"},
    "locks": {".lock": "mine", "lock": "mine"}, "another manifest": {"model/manifest.json": '{"mine": 1}'},
}  # fmt: skip


def beside(files, folder):
    """Checkpoints with files of the user beside them, or in the place of one."""
    around(folder)
    for name, content in files.items():
        path = folder / "made" / name
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def spoilt(change, *names):
    """A maker of checkpoints, to some files of which something is done."""

    def make(folder):
        around(folder)
        for name in names:
            change(folder / "made" / name)

    return make


def replaced(change):
    return lambda path: (path.unlink(), change(path))


def other_run(path):
    """In the place of a checkpoint a link to one of another run."""
    path.rename(outside := path.parents[2] / "outside" / path.name)
    path.symlink_to(outside)


def says(entries, path):
    """A manifest says something else, and its checksum fits."""
    path.write_text(json.dumps(signed(json.loads(path.read_text()) | entries)))


def failing(name, number):
    """A reader for whom files of this name can not be opened: a file system that hiccups."""

    def wrap(real):
        def opened(path, *rest, **options):
            if isinstance(path, (str, Path)) and name in str(path):
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *rest, **options)

        return opened

    def read(folder):
        builtins.open, io.open, os.open = wrap(builtins.open), wrap(io.open), wrap(os.open)
        return program(*ON)(folder)

    return read


def status_of(action):
    """The status of a child process in which something is done."""
    if (process := os.fork()) == 0:
        status = 1
        try:
            action()
            status = 0
        except SystemExit as ending:
            status = ending.code or 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def killed(calls, folder):
    """A training that is killed at a call of the system goes on afterwards, to the same numbers, and leaves nothing."""
    left = [calls]

    def counted(real):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    def train():
        for name in ("replace", "mkdir", "fsync", "unlink", "rmdir", "pwrite", "rename"):
            setattr(os, name, counted(getattr(os, name)))
        program(*WORDS, "made", "--keep", "1")(folder)

    assert status_of(train) in (0, -signal.SIGKILL)
    assert status_of(lambda: program(*WORDS, "made", "--keep", "1", "--resume", "made", "--report", "report")(folder)) == 0
    there = sorted(path.name for path in (folder / "made").iterdir() if path.name != "complete" and "lock" not in path.name)
    return digest_of(folder / "report") == checkpoints()[1] and len(there) == 1 or there


def goes_on(value, folder):
    """Whether a training has come to its end, with a checkpoint there."""
    return (folder / "made" / "step-000000004" / NAME).is_file() and "training begins" not in value


def anything(value, folder):
    return True


BAD = {
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2), "gone": Path.unlink, "a folder": replaced(Path.mkdir),
    "a FIFO": replaced(os.mkfifo), "a link to /dev/zero": replaced(lambda path: path.symlink_to("/dev/zero")),
}  # fmt: skip
FOLDERS = {
    "a file": lambda path: path.write_text("mine"), "a FIFO": os.mkfifo, "a circle": lambda path: path.symlink_to("made"),
    "a link to nothing": lambda path: path.symlink_to("no/where"), "a device": lambda path: path.symlink_to("/dev/null"),
}  # fmt: skip
NAMED = "a[b]*?", "a'\"$(touch executed)", "a\nb", "100%s", os.fsdecode(b"a\xff"), "a\x1b[31m", "a" * 300
LARGE = {"name": SHARD, "size": 10**18, "sha256": "0" * 64}
FORGED = {"a size": {"files": [LARGE]}, "a file elsewhere": {"files": [LARGE | {"name": "../a"}]}, "a time": {"saved": 1e300}}


def rows():
    """Yields (kind, what happens, make, read, right, goes), the last ones only where they are not as usual."""
    for label, files in USERS.items():
        goes = NEWER if min(files).startswith(FIRST) else OURS
        yield "files of the user", label, partial(beside, files), program(*ONE), goes_on, goes
    for label, change in BAD.items():
        yield "damage", f"the newest file: {label}", spoilt(change, f"{NEWEST}/{SHARD}"), program(*ON)
        for name in (SHARD, NAME)[: 1 + (label != "gone")]:  # no manifest: nothing says then that there was a checkpoint
            make = spoilt(change, f"{FIRST}/{name}", f"{NEWEST}/{name}")
            yield "damage", f"all {name}: {label}", make, program(*ON), None, LOCK
    for label, entries in FORGED.items():
        yield "damage", f"forged: {label}", spoilt(partial(says, entries), f"{NEWEST}/{NAME}"), program(*ON)
    for number in (errno.EIO, errno.EACCES):
        for name in (SHARD, NAME):
            yield "can not be read", f"{errno.errorcode[number]} of all {name}", around, failing(name, number), None, LOCK
    yield "links and names", "one leads into another run", spoilt(other_run, FIRST), program(*ONE)
    yield "links and names", "all do", spoilt(other_run, FIRST, NEWEST), program(*ONE), anything
    for label, change in FOLDERS.items():
        make = lambda folder, change=change: change(folder / "made")  # noqa: E731
        yield "links and names", f"in the place of the folder {label}", make, program(*WORDS, "made"), anything, LOCK
    for name in NAMED:
        yield "links and names", f"a folder {name}"[:30], Path.exists, program(*WORDS, name), anything, LOCK
    for calls in range(1, 25, 2):
        yield (
            "killed",
            f"at call {calls} of the system",
            Path.exists,
            partial(killed, calls),
            lambda value, folder: value is True,
        )


def cases():
    """All of them. What has another answer than that a training goes on may be refused too."""
    for kind, name, make, read, *rest in rows():
        right, goes = (*rest, *(goes_on, OURS)[len(rest) :])
        yield Case(f"checkpoints: {kind}", name, make, read, right, goes, may_refuse=right in (None, anything))
