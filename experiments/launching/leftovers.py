"""What a job that fails leaves behind: processes, files in shared memory, and the folder of Open MPI's mpiexec.

This file is also a program, the caretaker of one job: a process of its own that notes which files in shared memory the job's
processes make, until its input ends. That is when whoever started the job closes it or dies, however it dies. Then it kills
what still runs of the job and deletes those files, which are the job's own, whatever else is there. It reads one file of the
project and imports no package, so that it starts in some 20 ms, and it sleeps until the kernel says that a file is made.
"""

import contextlib
import ctypes
import os
import platform
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":  # its arguments: the path of the file imported below, the mark of the job
    exec(Path(sys.argv[1]).read_text())
else:
    from gridgrad.parallel.job.own_process import LIBRARIES, MARK, OURS, SHARED_MEMORY, segments_of

CREATED, CLOSE_ON_EXEC = 0x100, 0o2000000  # of linux/inotify.h
# Seconds before each look at the processes after files were made: the process that made one may not have it open yet, as it is
# this program that the system lets run. Together they limit how often it looks, however many files are made.
PAUSES = 0.002, 0.01, 0.04
UNTOLD = 1.0  # seconds from one to the next where the kernel says nothing


def processes(mark):
    """The ids of the processes that run with the environment variable MARK=`mark`: those of one job."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def segments(mark):
    """{path: inode} of those that the processes of a job have."""
    return {path: inode for pid in processes(mark) for path, inode in segments_of(pid).items()}


def clean_up(mark, launcher, files):
    """Kill the processes of a job and delete its files: `files`, a {path: inode}, and those that its processes have now.
    launcher: the process id of its mpiexec, 0 if it is not known."""
    files, deadline = files | segments(mark), time.monotonic() + 10
    while (living := processes(mark)) and time.monotonic() < deadline:
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    # Open MPI's mpiexec leaves folders behind when it is killed. A later one that happens to get the same process id would not
    # start while they exist.
    folder = Path(tempfile.gettempdir())
    for session in (folder / f"ompi.{launcher}", folder / f"ompi.{platform.node()}.{os.getuid()}" / f"pid.{launcher}"):
        shutil.rmtree(session, ignore_errors=True)
    for path in (*files, *SHARED_MEMORY.glob(f"{OURS}{mark}_*")):
        with contextlib.suppress(OSError):
            if files.get(path) in (None, path.stat().st_ino):  # no other file has got its name
                path.unlink()


def watch(mark):
    """(id of mpiexec, {path: inode} of MPI's files that a job's processes have in shared memory) until this one's input ends.
    The input is the id."""
    made, launcher, files, look = [], 0, {}, True
    with contextlib.suppress(AttributeError, OSError):  # where the system does not say when a file is made there
        libc = ctypes.CDLL(None)
        descriptor = libc.inotify_init1(CLOSE_ON_EXEC)
        if descriptor >= 0 and libc.inotify_add_watch(descriptor, os.fsencode(SHARED_MEMORY), CREATED) >= 0:
            made = [descriptor]  # it can be read when a file has been made
    while True:
        if look:
            for pause in PAUSES:
                time.sleep(pause)
                files |= segments(mark)
        ready = select.select([0, *made], (), (), None if made else UNTOLD)[0]
        if 0 in ready:
            if not (said := os.read(0, 64)):
                return launcher, files
            launcher = int(said)
        names = os.read(*made, 1 << 16) if made and made[0] in ready else b""
        look = not ready or any(name.encode() in names for name in LIBRARIES)


if __name__ == "__main__":
    clean_up(sys.argv[2], *watch(sys.argv[2]))
