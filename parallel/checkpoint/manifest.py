"""The manifest of a checkpoint: the file that makes it whole, and by which alone it is known.

A checkpoint is a folder with a file of each rank and `manifest.json`, which names all other files with their sizes and SHA-256.
It is written last, and appears by renaming. A folder without it is unfinished, one with other files damaged; neither is read.
"""

import hashlib
import json
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from gridgrad.nn.files.documents import COUNT, UNFIT, WHOLE, Kind, Optional, check, content_of
from gridgrad.nn.files.limits import read_limited
from gridgrad.nn.files.whole_files import Lock
from gridgrad.parallel.checkpoint.shard_file import Shard, sha256
from gridgrad.parallel.job.run import one_line

NAME = "manifest.json"
FORMAT = "gridgrad checkpoint 1"
LATEST = 1e11  # seconds of the epoch
FOLDER = "step-"
LOCK = "gridgrad.lock"  # beside the checkpoints
OWN_FOLDER = re.compile(rf"{FOLDER}([0-9]{{9,}})(-[0-9]+)?")
OWN_FILE = re.compile(rf"rank-[0-9]{{4,}}\.h5|whole\.h5|{re.escape(NAME)}(\.new)?")  # whole.h5: of version 1.0
FILE_NAME = Kind("a name", lambda name: name == os.path.basename(name) not in ("", ".", "..") and name.isprintable())
TEXT = Kind("a text", lambda value: isinstance(value, str))
FORM = {
    "step": COUNT, "workers": WHOLE, "settings": {}, "files": [{"name": FILE_NAME, "size": COUNT, "sha256": TEXT}],
    "saved": Kind("seconds", lambda value: 0 <= value < LATEST),
    "value": Optional(Kind("a finite number", lambda value: abs(value) < float("inf"))),
}  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """What is in a checkpoint."""

    step: int  # how many steps of training it has
    saved: float  # when it was written, in seconds of the epoch
    value: float | None  # the lowest is the best checkpoint; None if there is nothing to compare
    workers: int  # how many copies of the network there are
    files: list  # [{"name", "size", "sha256"}]
    settings: dict  # what the program that trains wants to know again, what JSON can hold
    folder: Path  # where it was found

    @staticmethod
    def read(folder):
        """The manifest in a folder. ValueError, which names the file, if it is not whole; OSError if it can not be read."""
        path = Path(folder) / NAME
        text = read_limited(path)  # of an ordinary file
        try:
            content = content_of(text)
            whole, version = content.pop("sha256") == digest(content), content.pop("format")
            if whole and version != FORMAT and re.fullmatch(rf"{FORMAT[:-1]}[0-9]+", version):
                raise OSError(f"{path}: {version}, which another version of gridgrad has written")
            check(content, FORM)
            names = {entry["name"] for entry in content["files"]}
            whole = whole and version == FORMAT and content.keys() == FORM.keys() and 0 < len(names) == len(content["files"])
        except UNFIT:
            whole = False
        if not whole:
            raise ValueError(f"{path}: damaged")
        return Manifest(folder=Path(folder), **content)

    def write(self):
        """Write it to its folder, and wait until the disk has it: afterwards the checkpoint is whole. OSError if that fails."""
        content = {name: value for name, value in vars(self).items() if name != "folder"} | {"format": FORMAT}
        text = json.dumps(content | {"sha256": digest(content)}, allow_nan=False)
        for entry in self.files:
            if (self.folder / entry["name"]).stat().st_size != entry["size"]:
                raise OSError(f"{self.folder / entry['name']} has changed since it was written")
        beside = self.folder / f"{NAME}.new"
        with open(beside, "x") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        synchronise(self.folder)
        os.replace(beside, self.folder / NAME)
        synchronise(self.folder)
        synchronise(self.folder.parent)

    def wrong_size(self, entry):
        """What is wrong with the size of one of the files, in words, or "". OSError as for `damage`."""
        path = self.folder / entry["name"]
        try:
            found = path.stat().st_size
        except FileNotFoundError as error:
            if path.is_symlink():
                raise
            return one_line(error)
        return "" if found == entry["size"] else f"{path} has {found} bytes instead of {entry['size']}"

    def damage(self, entry):
        """What is wrong with one of the files, which is read as a whole, in words, or "". OSError if it can not be read."""
        path, wrong = self.folder / entry["name"], self.wrong_size(entry)
        return f"{path} is not what was written" if not wrong and sha256(path) != entry["sha256"] else wrong

    def shard(self, entry):
        """The Shard of one of the files. ValueError that names the file if it is damaged, OSError as for `damage`."""
        if words := self.damage(entry):
            raise ValueError(words)
        return Shard(self.folder / entry["name"])


def digest(content):
    """The SHA-256 of what a manifest says."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def synchronise(folder):
    """Wait until the disk has the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def found_in(directory):
    """([Manifest, ..] of the checkpoints in a folder, the one that was saved last first; {folder passed over: why, in words}).
    After a damaged one was passed over, the newest need not have the most steps. OSError if the folder can not be read."""
    found, passed_over = [], {}
    with suppress(FileNotFoundError):
        for folder in [Path(directory) / name for name in sorted(os.listdir(directory))]:
            try:
                found.append(Manifest.read(folder))
            except NotADirectoryError:
                pass
            except (OSError, ValueError) as error:
                leads_nowhere = any(os.path.islink(path) and not os.path.exists(path) for path in (folder, folder / NAME))
                if is_claimed(folder) and (leads_nowhere or not isinstance(error, FileNotFoundError)):
                    passed_over[folder] = one_line(error)
    return sorted(found, key=lambda manifest: (manifest.saved, manifest.step), reverse=True), passed_over


def is_claimed(folder):
    """Whether a folder has the name of a checkpoint, or a file that says that it is the manifest of one."""
    with suppress(OSError, ValueError):  # the folders of other people are not ours to read, and no manifest is so long
        path = folder / NAME
        return OWN_FOLDER.fullmatch(folder.name) or path.is_file() and FORMAT[:-1].encode() in read_limited(path)
    return False


def time_to_save(directory):
    """The time to write into a new manifest: now, or later if the clock is behind the newest one in the folder."""
    found, _ = found_in(directory)
    return max(time.time(), found[0].saved + 1e-3) if found else time.time()


def new_folder(directory, step):
    """Make a new folder for a checkpoint; returns its path. OSError if that fails."""
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{FOLDER}{step:09d}"
    for number in count(1):
        with suppress(FileExistsError):
            folder = directory / (name if number == 1 else f"{name}-{number}")
            folder.mkdir()
            return folder


def prune(directory, keep, apart=()):
    """Delete all checkpoints but the last `keep` and the best one, and what ended jobs have left: folders that `is_own` alone.
    apart: folders that neither are deleted nor count as kept, since they could not be used."""
    found = [one for one in found_in(directory)[0] if one.folder not in apart and is_own(one.folder, one.step)]
    valued = [manifest for manifest in found if manifest.value is not None]
    kept = found[:keep] + ([min(valued, key=lambda manifest: manifest.value)] if valued else [])
    for manifest in found[keep:]:
        if manifest not in kept:
            remove(manifest.folder)
    for folder in Path(directory).iterdir():
        if is_own(folder) and folder / NAME not in contents(folder):
            remove(folder)


def contents(folder):
    """{path: whether it is a file of ours} of all that is in a folder. OSError if it is a link, or can not be read."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with os.scandir(descriptor) as entries:
            return {folder / one.name: bool(OWN_FILE.fullmatch(one.name)) and one.is_file(follow_symlinks=False)
                    for one in entries}  # fmt: skip
    finally:
        os.close(descriptor)


def is_own(folder, step=None):
    """Whether a folder has a name that `new_folder` gives, for this step if one is named, and nothing but files of ours."""
    name = OWN_FOLDER.fullmatch(folder.name)
    with suppress(OSError):
        return bool(name) and step in (None, int(name[1])) and all(contents(folder).values())
    return False


def remove(folder):
    """Delete our files in a folder, the manifest first, so that no half of one looks whole; then the folder, if it is empty."""
    with suppress(OSError):
        for path in sorted((path for path, own in contents(folder).items() if own), key=lambda path: path.name != NAME):
            path.unlink()
        folder.rmdir()


def lock(directory):
    """The Lock of a folder of checkpoints, which is made: one job alone writes there. OSError or ValueError as for a Lock."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    remedy = "wait for its end, or name another folder"
    return Lock(Path(directory) / LOCK, f"{directory} has the checkpoints of a training that runs", remedy)
