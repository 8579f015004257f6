"""The manifest of a checkpoint: the file that makes it whole, and by which alone it is known.

A checkpoint is a folder with a file of each rank and `manifest.json`, which names all other files with their sizes and SHA-256.
The manifest is written last, and appears by renaming. So a folder without a manifest was left by a job that ended while it was
writing the checkpoint, and a folder whose files are not those of its manifest is damaged. Neither is ever read.
"""

import hashlib
import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gridgrad.nn.files.json_text import content_of
from gridgrad.nn.files.limits import read_limited
from gridgrad.parallel.checkpoint.shard_file import sha256
from gridgrad.parallel.job.run import one_line

NAME = "manifest.json"
FORMAT = "gridgrad checkpoint 1"
FOLDER = "step-"


@dataclass(frozen=True)
class Manifest:
    """step: how many steps of training the checkpoint has. saved: the time when it was written, in seconds of the epoch.
    value: what is compared to find the best checkpoint, lower being better; None if there is nothing. workers: how many copies
    of the network there are. files: [{"name", "size", "sha256"}]. settings: what the program that trains wants to know again,
    what JSON can hold. folder: where it was found."""

    step: int
    saved: float
    value: float | None
    workers: int
    files: list
    settings: dict
    folder: Path

    @staticmethod
    def read(folder):
        """The manifest in a folder. ValueError, which names the file, if it is not whole; OSError if it can not be read."""
        path = Path(folder) / NAME
        text = read_limited(path)
        try:
            content = content_of(text)
            named = content.pop("sha256")
            whole = content.pop("format") == FORMAT and named == digest(content | {"format": FORMAT})
            whole = whole and are_files(content["files"]) and content.keys() | {"folder"} == Manifest.__annotations__.keys()
            numbers = (content["step"], 0), (content["workers"], 1)
            whole = whole and all(type(number) is int and number >= least for number, least in numbers)
            whole = whole and isinstance(content["saved"], int | float) and isinstance(content["settings"], dict)
            whole = whole and isinstance(content["value"], int | float | None)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
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
        with open(beside, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        synchronise(self.folder)
        os.replace(beside, self.folder / NAME)
        synchronise(self.folder)
        synchronise(self.folder.parent)

    def wrong_size(self, entry):
        """What is wrong with the size of one of the files, in words; an empty text if nothing is."""
        path = self.folder / entry["name"]
        try:
            found = path.stat().st_size
            return "" if found == entry["size"] else f"{path} has {found} bytes instead of {entry['size']}"
        except OSError as error:
            return one_line(error)

    def damage(self, entry):
        """What is wrong with one of the files, in words; an empty text if nothing is. It is read as a whole."""
        path = self.folder / entry["name"]
        try:
            wrong = self.wrong_size(entry)
            return f"{path} is not what was written" if not wrong and sha256(path) != entry["sha256"] else wrong
        except OSError as error:
            return one_line(error)


def digest(content):
    """The SHA-256 of what a manifest says."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def are_files(files):
    """Whether a list from a manifest names files in its own folder."""
    return isinstance(files, list) and files and all(
        isinstance(entry["name"], str) and entry["name"] == os.path.basename(entry["name"]) not in ("", ".", "..")
        and type(entry["size"]) is int and entry["size"] >= 0 and isinstance(entry["sha256"], str)
        for entry in files
    )  # fmt: skip


def synchronise(folder):
    """Wait until the disk has the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def found_in(directory):
    """([Manifest, ..] of the checkpoints in a folder, the newest first; [what was passed over, in words]).

    The newest is the one that was saved last. After a damaged one was passed over, that need not be the one of most steps.
    """
    found, passed_over = [], []
    for path in sorted(Path(directory).glob(f"*/{NAME}")):
        try:
            found.append(Manifest.read(path.parent))
        except (OSError, ValueError) as error:
            passed_over.append(one_line(error))
    return sorted(found, key=lambda manifest: (manifest.saved, manifest.step), reverse=True), passed_over


def time_to_save(directory):
    """The time to write into a new manifest: now, or later if the clock is behind the newest one in the folder."""
    found, _ = found_in(directory)
    return max([time.time(), *(manifest.saved + 1e-3 for manifest in found[:1])])


def new_folder(directory, step):
    """Make a new folder for a checkpoint; returns its path. OSError if that fails."""
    directory.mkdir(parents=True, exist_ok=True)
    number, name = 1, f"{FOLDER}{step:09d}"
    while True:
        try:
            folder = directory / (name if number == 1 else f"{name}-{number}")
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1


def prune(directory, keep):
    """Delete all checkpoints but the last `keep` and the best one, and what ended jobs have left."""
    found, _ = found_in(directory)
    valued = [manifest for manifest in found if manifest.value is not None]
    kept = found[:keep] + ([min(valued, key=lambda manifest: manifest.value)] if valued else [])
    for manifest in found[keep:]:
        if manifest not in kept:
            remove(manifest.folder)
    for folder in Path(directory).glob(f"{FOLDER}*"):
        if folder.is_dir() and not (folder / NAME).exists():
            remove(folder)


def remove(folder):
    """Delete a checkpoint, the manifest first, so that no half of one is ever taken for a whole one."""
    with suppress(OSError):
        (folder / NAME).unlink(missing_ok=True)
        shutil.rmtree(folder)
