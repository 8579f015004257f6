"""What is left of jobs: processes with a mark in their environment, shared memory, and half-written checkpoints."""

import re
import time
from contextlib import suppress
from pathlib import Path

from gridgrad.parallel.checkpoint.manifest import FOLDER
from gridgrad.parallel.checkpoint.manifest import NAME as MANIFEST
from gridgrad.parallel.job.own_process import LIBRARIES, SHARED_MEMORY


def whole_in(folder):
    """The names of the folders of checkpoints that have a manifest."""
    return {path.parent.name for path in folder.glob(f"{FOLDER}*/{MANIFEST}")}


def half_written_in(folder):
    """The names of the folders of checkpoints without a manifest. One that gets its manifest meanwhile is not among them."""
    return {path.name for path in folder.glob(f"{FOLDER}*")} - whole_in(folder)


def processes_with(variable):
    """{id: environment} of the processes that have this environment variable, NAME=VALUE."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            if variable in environment:
                found[int(entry.name)] = environment
    return found


def segments_of(rank):
    """The shared-memory files that a rank maps: a set of paths."""
    with suppress(OSError):
        found = re.findall(rf"{SHARED_MEMORY}/\S+$", Path(f"/proc/{rank}/maps").read_text(), re.MULTILINE)
        return {Path(name) for name in found}
    return set()


def orphaned_segments(since):
    """MPI's shared-memory files that changed after the time `since`, and that no process maps: a set of paths."""
    found = {path for path in SHARED_MEMORY.iterdir() if path.name.startswith(LIBRARIES) and changed(path) >= since}
    return found.difference(*(segments_of(entry.name) for entry in Path("/proc").glob("[0-9]*"))) if found else found


def changed(path):
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def remove_orphaned_segments(since):
    """Delete those that are still orphaned at a second look: a job that just starts has not mapped its own yet."""
    if first := orphaned_segments(since):
        time.sleep(0.3)
        for path in first & orphaned_segments(since):
            path.unlink(missing_ok=True)
