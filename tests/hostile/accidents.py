"""Accidents of checkpoints: what lies beside them or in their place. Nothing of the user's goes away, and a training goes on
right or says in one line why not."""

import os
import shutil
from functools import partial

from tests.fuzz.targets_training import NAME, NEWEST, TRAIN, around
from tests.hostile.case import Case, program

FIRST = "step-000000001"
LOCK = ("work/made/*lock*",)
OURS = *(f"work/made/step-00000000[12345]{name}" for name in ("", "/rank-*.h5", f"/{NAME}")), *LOCK
NEWER = tuple(path.replace("[12345]", "[2345]") for path in OURS)
NEW = "train", *TRAIN.split(), "--checkpoint-steps", "1", "--checkpoint"
ON = *(word if word != "2" else "4" for word in NEW), "made", "--resume", "made", "--keep", "1"
USERS = {  # of the user, in a folder of checkpoints: {path: content}
    "a folder step-1": {"step-1/rank-0000.h5": "mine"}, "a file": {FIRST: "mine"}, "digits": {"step-٠١/a": "mine"},
    "a file in our folder": {f"{FIRST}/notes.txt": "mine"}, "no checkpoint": {"step-000000007/results.csv": "mine"},
    "locks": {".lock": "mine", "lock": "mine"},
}  # fmt: skip
PLACES = {  # what is in the place of the folder
    "a file": lambda path: path.write_text("mine"), "a FIFO": os.mkfifo, "a circle": lambda path: path.symlink_to("made"),
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


def linked(steps, folder):
    """Checkpoints, in the place of some of which are links to those of another run."""
    around(folder)
    for step in steps:
        path, outside = folder / "made" / step, folder.parent / "outside" / step
        path.rename(outside)
        path.symlink_to(outside)


def goes_on(value, folder):
    """Whether a training has come to its end, with a checkpoint there."""
    return (folder / "made" / "step-000000004" / NAME).is_file() and "training begins" not in value


def anything(value, folder):
    return True


def cases():
    """All of them."""
    kind = "checkpoints"
    for label, files in USERS.items():
        goes = NEWER if min(files).startswith(FIRST) else OURS
        yield Case(kind, f"files of the user: {label}", partial(beside, files), program(*ON), goes_on, goes, False)
    yield Case(kind, "a link into another run", partial(linked, [FIRST]), program(*ON), goes_on, OURS, False)
    yield Case(kind, "links into another run", partial(linked, [FIRST, NEWEST]), program(*ON), anything, OURS)
    for label, change in PLACES.items():
        make = lambda folder, change=change: change(folder / "made")  # noqa: E731
        yield Case(kind, f"in the place of the folder {label}", make, program(*NEW, "made"), anything, LOCK)
