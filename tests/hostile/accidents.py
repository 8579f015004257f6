"""Accidents of checkpoints: what lies beside them, what is damaged or can not be read, and trainings that end at any point.

Whatever happens, nothing of the user's goes away, a training goes on right or says in one line why not, and what was not read
is never deleted.
"""

import builtins
import codecs
import errno
import io
import json
import os
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI

from gridgrad.parallel.checkpoint.manifest import digest
from gridgrad.parallel.checkpoint.saver import Saver
from tests.disk import files_end_at
from tests.fuzz.targets_checkpoint import NEWEST, TRAIN, around, parameters, resumed
from tests.hostile.case import Case, program

FIRST, SHARD, MANIFEST = "step-000000001", "rank-0000.h5", "manifest.json"
BOTH, LOCK = (FIRST, NEWEST), ("work/made/*lock*",)
OURS = *(f"work/made/step-00000000[12345]{name}" for name in ("", "/rank-*.h5", "/manifest.json")), *LOCK
NEWER, OLDER = (tuple(path.replace("[12345]", steps) for path in OURS) for steps in ("[2345]", "[1345]"))
WORDS = "train", *TRAIN.split()
NEW, ON = (*WORDS, "made", "--keep", "1"), (*(word if word != "2" else "4" for word in WORDS), "made", "--resume", "made")
ONE = *ON, "--keep", "1"
USERS = {  # of the user, in a folder of checkpoints: {path: content}; or what a copy of ours is called
    "a folder step-final": {"step-final/notes.txt": "mine"}, "a folder step-": {"step-/a": "mine"}, "a copy": f"{FIRST}-copy",
    "a folder step-1": {"step-1/rank-0000.h5": "mine"}, "a numbered copy": "step-000000009-old", "a file": {FIRST: "mine"},
    "a file in our folder": {f"{FIRST}/notes.txt": "mine"}, "a folder in our folder": {f"{FIRST}/plots/a.png": "mine"},
    "a hidden file": {f".{FIRST}.txt": "mine"}, "no checkpoint": {"step-000000007/results.csv": "mine"},
    "digits": {"step-٠١/a": "mine"}, "a folder complete": {"complete/a": "mine"}, "a file complete": {"complete": "mine"},
    "locks": {".lock": "mine", "lock": "mine"}, "another manifest": {"model/manifest.json": '{"mine": 1}'},
}  # fmt: skip


def beside(files, folder):
    """Checkpoints with files of the user beside them."""
    around(folder)
    if isinstance(files, str):
        shutil.copytree(folder / "made" / FIRST, folder / "made" / files)
    for name, content in files.items() if isinstance(files, dict) else ():
        path = folder / "made" / name
        shutil.rmtree(path, ignore_errors=True)
        for at in (path.parent, path):
            at.unlink() if at.is_file() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def spoilt(*changes):
    """A maker of checkpoints, to the files of which something was done: (name of a file, what is done)."""

    def make(folder):
        around(folder)
        for name, change in changes:
            change(folder / "made" / name)

    return make


def replaced(change):
    return lambda path: (path.unlink(), change(path))


def other_run(path):
    """In the place of a checkpoint a link to one of another run."""
    path.rename(outside := path.parents[2] / "outside" / path.name)
    path.symlink_to(outside)


def says(path, **entries):
    """A manifest says something else, and its checksum fits."""
    content = json.loads(path.read_text()) | entries
    content["sha256"] = digest({name: value for name, value in content.items() if name != "sha256"})
    path.write_text(json.dumps(content))


def failing(names, number, words=ON):
    """A reader for whom files of these names can not be opened: a file system that hiccups."""

    def wrap(real):
        def opened(path, *rest, **options):
            if isinstance(path, (str, Path)) and any(name in str(path) for name in names):
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *rest, **options)

        return opened

    def read(folder):
        builtins.open, io.open, os.open = wrap(builtins.open), wrap(io.open), wrap(os.open)
        return program(*words)(folder)

    return read


def as_nobody(modes, folder):
    """Run as a user who may not read or write these."""
    for path in folder.parent.rglob("*"):
        os.chmod(path, 0o777 if path.is_dir() else 0o666)
    for path, mode in modes.items():
        os.chmod(folder / path, mode)
    codecs.lookup("utf-8-sig")  # a module that only the real user may be able to read
    if os.getuid() == 0:
        os.setresuid(65534, 65534, 65534)
    return program(*ON)(folder)


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
        program(*NEW)(folder)

    assert status_of(train) in (0, -signal.SIGKILL)
    assert status_of(lambda: program(*NEW, "--resume", "made")(folder)) == 0
    step, found = resumed(folder / "made" / NEWEST / MANIFEST)
    there = sorted(path.name for path in (folder / "made").iterdir() if path.name != "complete" and "lock" not in path.name)
    return step == 2 and np.array_equal(found, parameters(2)) and len(there) == 1 or there


def two_jobs(first_lives, folder):
    """A second training in a folder in which another one writes, or was killed."""
    receive, send = os.pipe()
    if (process := os.fork()) == 0:
        real = Saver.boundary

        def boundary(saver, step):
            real(saver, step)
            os.write(send, b"x")
            time.sleep(1000 if step else 0)

        Saver.boundary = boundary
        program(*WORDS, "made")(folder)
        os._exit(0)
    os.close(send)
    assert len(os.read(receive, 1) + os.read(receive, 1)) == 2
    try:
        if not first_lives:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        return program(*WORDS, "made", "--resume", "made")(folder)
    finally:
        if first_lives:
            os.kill(process, signal.SIGKILL)


def full(size, folder):
    """A disk that has room for so many bytes of a file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    MPI.Init()  # whose own files are longer
    printed, (receive, send) = os.dup(2), os.pipe()  # what is printed goes to no file meanwhile
    os.dup2(send, 1), os.dup2(send, 2)
    try:
        with files_end_at(size):
            return program(*ONE)(folder)
    finally:
        sys.stdout.flush()
        os.dup2(printed, 1), os.dup2(printed, 2), os.close(send)
        os.write(2, os.read(receive, 1 << 16))


def other_data(name, seed, folder):
    """A training on a table that goes on with another one, or with the same at another place."""
    for turn, (file, of) in enumerate((("a.csv", 1), (name, seed))):
        path, rows = folder / file, np.random.default_rng(of).normal(size=(600, 3)).round(3)
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows.tolist()))
        train = program("train", *WORDS[3:], "made", "--dataset", f"table:{file}", *("--resume", "made", "--steps", "4") * turn)
        if turn:
            return train(folder)
        assert status_of(partial(train, folder)) == 0
        path.unlink()


def goes_on(value, folder):
    """Whether a training has come to its end, with a checkpoint there."""
    return (folder / "made" / "step-000000004" / MANIFEST).is_file() and "training begins" not in value


def anything(value, folder):
    return True


BAD = {
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2), "gone": Path.unlink, "empty": replaced(Path.touch),
    "a folder": replaced(Path.mkdir), "a link to nothing": replaced(lambda path: path.symlink_to("nowhere")),
    "a FIFO": replaced(os.mkfifo), "a link to /dev/zero": replaced(lambda path: path.symlink_to("/dev/zero")),
}  # fmt: skip
FOLDERS = {
    "a file": lambda path: path.write_text("mine"), "a FIFO": os.mkfifo, "a circle": lambda path: path.symlink_to("made"),
    "a link to nothing": lambda path: path.symlink_to("no/where"), "a device": lambda path: path.symlink_to("/dev/null"),
}  # fmt: skip
NAMED = "a[b]*?", "a'\"$(touch executed)", "a\nb", "100%s", os.fsdecode(b"a\xff"), "a\x1b[31m", "a" * 300
MODES = {
    "a file": {f"made/{NEWEST}/{SHARD}": 0}, "the newest folder": {f"made/{NEWEST}": 0}, "the whole": {"made": 0},
    "all folders": {f"made/{step}": 0 for step in BOTH}, "writing": {"made": 0o555},
}  # fmt: skip
OTHERS = ("--net", "mlp:8,relu"), ("--batch-size", "50"), ("--dataset", "airfoil5"), ("--seed", "3"), ("--dtype", "float64")


def rows():
    """Yields (kind, what happens, make, read, right, goes, may_refuse), the last ones only where they are not as usual."""
    empty = lambda folder: None  # noqa: E731
    for label, files in USERS.items():
        of_first = isinstance(files, dict) and min(files).startswith(FIRST)
        yield "files of the user", label, partial(beside, files), program(*ONE), goes_on, NEWER if of_first else OURS
    for label, change in BAD.items():
        every = (spoilt(*((f"{step}/{name}", change) for step in BOTH)) for name in (SHARD, MANIFEST))
        yield "damage", f"the newest file: {label}", spoilt((f"{NEWEST}/{SHARD}", change)), program(*ON)
        yield "damage", f"all files: {label}", next(every), program(*ON), None, LOCK
        if label != "gone":  # nothing says then that there was a checkpoint
            yield "damage", f"all manifests: {label}", next(every), program(*ON), None, LOCK
    newest, large = f"{NEWEST}/{MANIFEST}", {"name": SHARD, "size": 10**18, "sha256": "0" * 64}
    only_one = spoilt((f"{NEWEST}/{SHARD}", BAD["cut"]), (FIRST, shutil.rmtree))
    yield "damage", "the only one, with --keep 1", only_one, program(*ONE), None, LOCK
    yield "damage", "a forged size", spoilt((newest, partial(says, files=[large]))), program(*ON)
    yield "damage", "a file elsewhere", spoilt((newest, partial(says, files=[large | {"name": "../a"}]))), program(*ON)
    for number in (errno.EIO, errno.EACCES, errno.ESTALE):
        for name in (SHARD, MANIFEST):
            label = f"{errno.errorcode[number]} of all {name}"
            yield "can not be read", label, around, failing([f"{step}/{name}" for step in BOTH], number), None, LOCK
        yield "can not be read", f"{errno.errorcode[number]}, --keep 1", around, failing([newest], number, ONE), goes_on, OLDER
    for label, modes in MODES.items():
        right = (anything, OLDER) if label in ("a file", "the newest folder") else (None, LOCK)
        yield "can not be read", f"no permission: {label}", around, partial(as_nobody, modes), *right
    yield "links and names", "one leads into another run", spoilt((FIRST, other_run)), program(*ONE)
    yield "links and names", "all do", spoilt(*((step, other_run) for step in BOTH)), program(*ONE), anything
    for label, change in FOLDERS.items():
        make = lambda folder, change=change: change(folder / "made")  # noqa: E731
        yield "links and names", f"in the place of the folder {label}", make, program(*NEW), anything, LOCK, True
    for name in NAMED:
        yield "links and names", f"a folder {name}"[:30], empty, program(*WORDS, name), anything, LOCK, True
    for saved in (time.time() + 86400, -1e9, 1e12, 1e300):
        make = spoilt((f"{FIRST}/{MANIFEST}", partial(says, saved=saved)))
        yield "clocks, two jobs, a full disk", f"saved at {saved:.1g}", make, program(*ON), anything, OURS, not 0 < saved < 1e11
    yield "clocks, two jobs, a full disk", "the first job lives", empty, partial(two_jobs, True), None, LOCK
    yield "clocks, two jobs, a full disk", "the first job was killed", empty, partial(two_jobs, False), anything
    for size in (0, 100, 4000, 20_000):
        yield "clocks, two jobs, a full disk", f"{size} bytes of a file", around, partial(full, size), None, LOCK
    for name, seed, right in (("a.csv", 2, None), ("b/a.csv", 1, goes_on), ("b/a.csv", 2, None)):
        yield "other data and settings", f"{name} with seed {seed}", empty, partial(other_data, name, seed), right
    for words in OTHERS:
        yield "other data and settings", " ".join(words), around, program(*ON, *words), None, LOCK
    for calls in range(1, 25, 2):
        yield "killed", f"at call {calls} of the system", empty, partial(killed, calls), lambda value, folder: value is True


def accident(kind, name, make, read, right=goes_on, goes=OURS, may_refuse=False):
    return Case(f"checkpoints: {kind}", name, make, read, right, goes, may_refuse or right is None)


def cases():
    """All of them."""
    return [accident(*row) for row in rows()]
