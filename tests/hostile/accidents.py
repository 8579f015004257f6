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

from tests.disk import files_end_at
from tests.fuzz.targets_checkpoint import NEWEST, TRAIN, around, parameters, resumed
from tests.hostile.case import Case
from tests.hostile.programs import program

FIRST, SHARD, MANIFEST = "step-000000001", "rank-0000.h5", "manifest.json"
FILES = "", "/rank-*.h5", "/whole.h5", "/manifest.json"
OURS = *(f"work/made/step-00000000?{name}".replace("?", "[12345]") for name in FILES), "work/made/*lock*"
WORDS = "train", *TRAIN.split()
NEWER = tuple(path.replace("[1", "[") for path in OURS)  # all but the first one
ON = (*(word if word != "2" else "4" for word in WORDS), "made", "--resume", "made")
NEW = (*WORDS, "made", "--keep", "1")
USERS = {  # of the user, in a folder of checkpoints: {path: content}, None for a folder
    "a folder step-final": {"step-final/notes.txt": "mine"}, "a folder step-": {"step-/a": "mine"},
    "a folder step-1": {"step-1/rank-0000.h5": "mine"}, "an empty folder step-backup": {"step-backup": None},
    "a copy of ours": "step-000000001-copy", "a copy of ours, numbered": "step-000000009-old",
    "a file step-000000001": {FIRST: "mine"}, "a file in our folder": {"step-000000001/notes.txt": "mine"},
    "a folder in our folder": {"step-000000001/plots/a.png": "mine"},
    "a folder of our form without checkpoint": {"step-000000007/results.csv": "mine"},
    "digits of another script": {"step-٠٠٠٠٠٠٠٠١/a": "mine"},
    "a folder complete": {"complete/a": "mine"}, "a file complete": {"complete": "mine"},
    "a hidden file": {".step-000000001.txt": "mine"}, "another manifest": {"model/manifest.json": '{"mine": 1}'},
    "a file .lock": {".lock": "mine", "lock": "mine"},
}  # fmt: skip


def beside(files, folder, whole=True):
    """Checkpoints with files of the user beside them."""
    if whole:
        around(folder)
    if isinstance(files, str):
        shutil.copytree(folder / "made" / FIRST, folder / "made" / files)
        return
    for name, content in files.items():
        path = folder / "made" / name
        if content is not None and path.is_dir():
            shutil.rmtree(path)
        for at in (path.parent, path):
            if at.is_file():
                at.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if content is None else path.write_text(content)


def spoilt(*changes):
    """A maker of checkpoints, to the files of which something was done: (name of a file, what is done)."""

    def make(folder):
        around(folder)
        for name, change in changes:
            change(folder / "made" / name)

    return make


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def linked(target, keep=False):
    def change(path):
        other = path.parents[1] / "other" / path.name if keep else path
        other.parent.mkdir(exist_ok=True)
        path.rename(other) if keep else shutil.rmtree(path, ignore_errors=True)
        path.symlink_to(other if keep else target)

    return change


def other_run(path):
    """In the place of a checkpoint a link to one of another run."""
    outside = path.parents[2] / "outside" / path.name
    path.rename(outside)
    path.symlink_to(outside)


def saved_at(seconds):
    def change(path):
        from gridgrad.parallel.checkpoint.manifest import digest

        content = json.loads(path.read_text()) | {"saved": seconds}
        content["sha256"] = digest({name: value for name, value in content.items() if name != "sha256"})
        path.write_text(json.dumps(content))

    return change


def fails(number, *names):
    """A context in which files of these names can not be opened: a file system that hiccups."""

    def wrap(real):
        def opened(path, *rest, **options):
            if isinstance(path, (str, Path)) and any(name in str(path) for name in names):
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *rest, **options)

        return opened

    builtins.open, io.open, os.open = wrap(builtins.open), wrap(io.open), wrap(os.open)


def unreadable(names, words, number=errno.EIO):
    def read(folder):
        fails(number, *names)
        return program(*words)(folder)

    return read


def as_nobody(paths, words):
    """Run as a user who may not read or write these."""

    def read(folder):
        for path in folder.parent.rglob("*"):
            os.chmod(path, 0o777 if path.is_dir() else 0o666)
        for path, mode in paths.items():
            os.chmod(folder / path, mode)
        codecs.lookup("utf-8-sig")  # a module that only the real user may be able to read
        if os.getuid() == 0:
            os.chmod(folder.parent.parent, 0o755)
            os.setresuid(65534, 65534, 65534)
        return program(*words)(folder)

    return read


def apart(action):
    """The status of a child process in which something is done."""
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
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
    """A training that is killed at a call of the system goes on afterwards, to the same numbers."""

    def train():
        left = [calls]
        for name in ("replace", "mkdir", "fsync", "unlink", "rmdir", "pwrite", "rename"):
            setattr(os, name, counted(getattr(os, name), left))
        program(*WORDS, "made", "--keep", "1")(folder)

    status = apart(train)
    assert status in (0, -signal.SIGKILL), status
    assert apart(lambda: program(*WORDS, "made", "--keep", "1", "--resume", "made")(folder)) == 0
    step, found = resumed(folder / "made" / NEWEST / MANIFEST)
    left = sorted(path.name for path in (folder / "made").iterdir() if path.name != "complete" and "lock" not in path.name)
    return step == 2 and np.array_equal(found, parameters(2)) and len(left) == 1 or left


def counted(real, left):
    def call(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    return call


def two_jobs(folder, first_lives=True):
    """A second training in a folder in which another one writes, or was killed."""
    receive, send = os.pipe()
    process = os.fork()
    if process == 0:
        from gridgrad.parallel.checkpoint.saver import Saver

        real = Saver.boundary

        def boundary(saver, step):
            real(saver, step)
            os.write(send, b"x")
            if step:
                time.sleep(1000)

        Saver.boundary = boundary
        program(*WORDS, "made")(folder)
        os._exit(0)
    os.read(receive, 1), os.read(receive, 1)
    try:
        if not first_lives:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        return program(*WORDS, "made", "--resume", "made")(folder)
    finally:
        if first_lives:
            os.kill(process, signal.SIGKILL)


def full(folder):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    MPI.Init()  # whose own files are longer
    with files_end_at(4000):
        return program(*NEW)(folder)


def table_of(folder, name, seed):
    rows = np.random.default_rng(seed).normal(size=(600, 3)).round(3)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(",".join(map(str, row)) for row in rows.tolist()) + "\n")


def other_data(before, after, folder):
    """A training on a table that goes on with another one, or with the same at another place. before, after: (name, seed)."""
    words = [word for word in WORDS if word not in ("--dataset", "airfoil")]
    table_of(folder, *before)
    assert apart(lambda: program(*words, "made", "--dataset", f"table:{before[0]}")(folder)) == 0
    (folder / before[0]).unlink()
    table_of(folder, *after)
    return program(*words, "made", "--resume", "made", "--steps", "3", "--dataset", f"table:{after[0]}")(folder)


def kept(value, folder):
    """A script whose `kept` has an odd value: it is saved, or the script is told at once."""
    from gridgrad.nn import MSE, SGD, Linear, Sequential
    from gridgrad.parallel import parallelize, resumable_steps

    if not MPI.Is_initialized():
        MPI.Init()

    def trained(steps, content):
        net = parallelize(Sequential([Linear(3, 2)], input_shape=(3,)), {"batch": 1})
        optimizer, done = SGD(net, lr=0.1), 0
        for _ in resumable_steps(net, optimizer, folder / "ck", steps, checkpoint_steps=1, kept=content):
            net.learn(np.ones((4, 3)), np.zeros((4, 2)), MSE(), optimizer)
            done += 1
        return done

    content = {"best": value}
    try:
        trained(2, content)
    except (TypeError, ValueError) as error:
        assert "best" in str(error), error  # the key
        raise ValueError(str(error)) from None
    again = {}
    assert trained(3, again) == 1 and again["best"] == value, again
    return True


def goes_on(value, folder):
    """Whether a training has come to its end, with a checkpoint there."""
    return (folder / "made" / "step-000000004" / MANIFEST).is_file() and "training begins" not in value


def true(value, folder):
    return value is True


def accident(name, make, read, right=goes_on, goes=OURS, may_refuse=False):
    return Case(
        "checkpoints: " + name.partition(":")[0], name.partition(": ")[2], make, read, right, goes, may_refuse or right is None
    )


ALL = tuple(f"{step}/{SHARD}" for step in (FIRST, NEWEST))
BAD = {"cut": cut, "gone": Path.unlink, "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: (path.unlink(), path.mkdir()), "a link to nothing": lambda path: (path.unlink(),
    path.symlink_to("nowhere")), "a FIFO": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link to /dev/zero": lambda path: (path.unlink(), path.symlink_to("/dev/zero"))}  # fmt: skip
FOLDERS = {"a file": lambda path: path.write_text("mine"), "a FIFO": os.mkfifo,
    "a link to nothing": lambda path: path.symlink_to("nowhere/at all"),
    "a link to itself": lambda path: path.symlink_to("made"), "a link to a device": lambda path: path.symlink_to("/dev/null"),
    "a link to a folder": lambda path: path.symlink_to("../outside")}  # fmt: skip
NAMED = {
    "brackets": "a[b]*?",
    "quotes": "a'\"$(touch executed)",
    "a line break": "a\nb",
    "percents": "100%s",
    "no text": os.fsdecode(b"a\xff"),
    "control characters": "a\x1b[31m",
    "300 bytes": "a" * 300,
}


def cases():
    """All of them."""
    found = []
    for label, files in USERS.items():
        found += [accident(f"beside them: {label}", partial(beside, files), program(*ON, "--keep", "1"),
            goes=OURS if isinstance(files, str) or not any(name.startswith(FIRST) for name in files) else NEWER)]  # fmt: skip
    for label in ("a folder step-final", "a folder of our form without checkpoint", "a folder complete", "a file complete"):
        found += [accident(f"a first training: {label}", partial(beside, USERS[label], whole=False), program(*NEW),
            lambda value, folder: True, may_refuse=True)]  # fmt: skip
    for label, change in BAD.items():
        found += [accident(f"the newest one: its file is {label}", spoilt((f"{NEWEST}/{SHARD}", change)), program(*ON))]
        found += [
            accident(f"all of them: their files are {label}", spoilt(*((name, change) for name in ALL)), program(*ON), None, ())
        ]
        found += [accident(f"all manifests: they are {label}",
            spoilt(*((f"{step}/{MANIFEST}", change) for step in (FIRST, NEWEST))), program(*ON),
            (lambda value, folder: True) if label == "gone" else None, OURS if label == "gone" else ())]  # fmt: skip
    found += [
        accident(
            "the newest one: damaged, with --keep 1",
            spoilt((f"{NEWEST}/{SHARD}", cut), (FIRST, shutil.rmtree)),
            program(*ON, "--keep", "1"),
            None,
            (),
        )
    ]
    errors = {"EIO": errno.EIO, "EACCES": errno.EACCES, "ESTALE": errno.ESTALE}
    for label, number in errors.items():
        found += [accident(f"can not be read: {label} of all files", around, unreadable(ALL, ON, number), None, ()),
            accident(f"can not be read: {label} of all manifests", around,
            unreadable([f"{FIRST}/{MANIFEST}", f"{NEWEST}/{MANIFEST}"], ON, number), None, ())]  # fmt: skip
        found += [accident(f"can not be read: {label} of the newest manifest, --keep 1", around,
            unreadable([f"{NEWEST}/{MANIFEST}"], (*ON, "--keep", "1"), number),
            goes=tuple(path.replace("12", "1") for path in OURS))]  # fmt: skip
    for label, paths in {"a file": {f"made/{NEWEST}/{SHARD}": 0}, "the newest folder": {f"made/{NEWEST}": 0},
        "all folders": {f"made/{FIRST}": 0, f"made/{NEWEST}": 0}, "the whole": {"made": 0},
        "writing": {"made": 0o555}}.items():  # fmt: skip
        found += [accident(f"no permission: {label}", around, as_nobody(paths, ON),
            (lambda value, folder: True) if label in ("a file", "the newest folder") else None,
            tuple(path.replace("12", "1") for path in OURS) if label in ("a file",
            "the newest folder") else ())]  # fmt: skip
    found += [accident("links: one leads into another run", spoilt((FIRST, other_run)), program(*ON, "--keep", "1")),
        accident("links: all lead into another run", spoilt((FIRST, other_run), (NEWEST, other_run)),
        program(*ON, "--keep", "1"), lambda value, folder: True)]  # fmt: skip
    found += [accident(f"in the place of the folder: {label}", lambda folder, change=change: change(folder / "made"),
        program(*NEW), lambda value, folder: True, (), True) for label, change in FOLDERS.items()]  # fmt: skip
    found += [accident(f"names: with {label}", lambda folder: None, program(*WORDS, name), lambda value, folder: True, (),
        True) for label, name in NAMED.items()]  # fmt: skip
    found += [accident(f"the clock: the first one was saved {label}", spoilt((f"{FIRST}/{MANIFEST}", saved_at(seconds))),
        program(*ON), lambda value, folder: True, may_refuse=label != "tomorrow") for label,
        seconds in {"tomorrow": time.time() + 86400, "before 1970": -1e9, "in the year 33658": 1e12,
        "never": 1e300}.items()]  # fmt: skip
    found += [accident("two jobs: the first one lives", lambda folder: None, two_jobs, None, ()),
        accident("two jobs: the first one was killed", lambda folder: None, partial(two_jobs, first_lives=False), lambda value,
        folder: True)]  # fmt: skip
    found += [accident("the disk: it is full", lambda folder: None, full, None, ())]
    found += [accident("the data: other numbers of the same name", lambda folder: None,
        partial(other_data, ("a.csv", 1), ("a.csv", 2)), None),
        accident("the data: the same at another place", lambda folder: None, partial(other_data, ("a.csv", 1), ("b/a.csv", 1)),
        lambda value, folder: "begins" not in value), accident("the data: other numbers at another place", lambda folder: None,
        partial(other_data, ("a.csv", 1), ("b/a.csv", 2)), None)]  # fmt: skip
    found += [accident(f"killed: at call {calls} of the system", lambda folder: None, partial(killed, calls),
        true) for calls in range(1, 25, 2)]  # fmt: skip
    values = {"a float32": (np.float32(0.5), False), "an int64": (np.int64(3), False), "infinity": (np.inf, False),
        "an array": (np.ones(3), True), "a set": ({1}, True), "a function": (print, True), "a complex": (1j, True),
        "a long integer": (10**400, True)}  # fmt: skip
    found += [accident(f"kept: {label}", lambda folder: None, partial(kept, value), true, may_refuse=refused) for label,
        (value, refused) in values.items()]  # fmt: skip
    others = {
        "another network": ("--net", "mlp:8,relu"),
        "another batch": ("--batch-size", "50"),
        "another data set": ("--dataset", "airfoil5"),
        "another seed": ("--seed", "3"),
    }
    return found + [
        accident(f"another training: {label}", around, program(*ON, *words), None, ()) for label, words in others.items()
    ]
