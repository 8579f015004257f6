"""What a job leaves behind when it is killed: processes, shared-memory files, and the folder of Open MPI's mpiexec.

`take_care` is the caretaker of one job, in a process of its own. It notes which shared-memory files the processes of the job
have, until its input ends. That is when whoever started the job closes it or dies, however it dies. Then the caretaker kills
what still runs, and deletes those files: they are the job's own, whatever else is there. This file imports nothing of the
project, so that a caretaker starts in some 20 ms. The kernel says when a file is made (inotify), so that it hardly ever looks.
"""

import contextlib
import ctypes
import os
import platform
import re
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path

MARK = "GRIDGRAD_JOB"  # the environment variable that identifies the processes of one job
SHARED_MEMORY = Path("/dev/shm")
OURS = "gridgrad_"  # what the names of our files there begin with; then comes the mark of the job
LIBRARIES = re.compile(r"mpich_(shm|vci)_[0-9a-f]+_\d+|mpich_shar_tmp\w{6}|(sm|vader)_segment\.\S+")  # the names of MPI's
CREATED, CLOSE_ON_EXEC, NO_WAITING = 0x100, 0o2000000, 0o4000  # of linux/inotify.h
LONGEST = 10.0  # seconds from one look at the processes to the next, where nothing is made


def processes(mark):
    """The ids of the processes that run with the environment variable MARK=`mark`: those of one job."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def kill_processes(mark):
    """Kill every process of a job and wait, for at most 10 seconds, until they are gone."""
    deadline = time.monotonic() + 10
    while (living := processes(mark)) and time.monotonic() < deadline:
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def segments_of(pid):
    """The paths of MPI's shared-memory files that a process has open or maps."""
    found, prefix = set(), f"{SHARED_MEMORY}/"
    with contextlib.suppress(OSError):
        # First those that are open: a file that is closed meanwhile is mapped already.
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry.path))
        with open(f"/proc/{pid}/maps", errors="replace") as maps:
            found |= {line.split(None, 5)[5].rstrip("\n") for line in maps if prefix in line}
    return {Path(name) for name in found if name.startswith(prefix) and LIBRARIES.fullmatch(name.removeprefix(prefix))}


def remove_session(pid):
    """Delete the session folders that Open MPI's mpiexec, with the process id `pid`, left behind when it was killed.

    A later mpiexec that happens to get the same process id would not start while they exist.
    """
    folder = Path(tempfile.gettempdir())
    for session in (folder / f"ompi.{pid}", folder / f"ompi.{platform.node()}.{os.getuid()}" / f"pid.{pid}"):
        shutil.rmtree(session, ignore_errors=True)


def made_there():
    """A descriptor that can be read whenever a file has been made in shared memory; None where the system has no inotify."""
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        made = libc.inotify_init1(CLOSE_ON_EXEC | NO_WAITING)
        if made >= 0 and libc.inotify_add_watch(made, os.fsencode(SHARED_MEMORY), CREATED) >= 0:
            return made
    return None


def watch(mark, launcher=0):
    """Note the shared-memory files of a job until its input ends; returns (their paths, the id of mpiexec that was read)."""
    made, found, said, began, look = made_there(), set(), b"", time.monotonic(), True
    while True:
        for pid in processes(mark) if look else ():
            found |= segments_of(pid)
        pause = min(max((time.monotonic() - began) / 10, 0.1), LONGEST)
        ready = select.select([0] if made is None else [0, made], (), (), pause)[0]
        names = os.read(made, 1 << 16) if made in ready else b""
        look = not ready or b"mpich_" in names or b"_segment." in names
        if 0 in ready:
            if not (read := os.read(0, 64)):
                return found, int(said or launcher)
            said += read


def take_care(mark):
    """Be the caretaker of the job with this mark."""
    found, launcher = watch(mark)
    for pid in processes(mark):  # where it was killed just now
        found |= segments_of(pid)
    kill_processes(mark)
    remove_session(launcher)
    for path in {*found, *SHARED_MEMORY.glob(f"{OURS}{mark}_*")}:
        with contextlib.suppress(OSError):
            path.unlink()
