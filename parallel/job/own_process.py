"""What the process of a rank does about its own end, and the names by which the launcher knows what is left of a job."""

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

LINK = "GRIDGRAD_LINK"  # the environment variable in which the user names the network between the hosts
MARK = "GRIDGRAD_JOB"  # the environment variable that identifies the processes of one job
SHARED_MEMORY = Path("/dev/shm")
OURS = "gridgrad_"  # how the names of our files there begin; then comes the mark of the job
LIBRARIES = "mpich_shm_", "mpich_vci_", "mpich_shar_", "ucx_shm_", "sm_segment.", "vader_segment."  # how those of MPI do


def end_with_parent():
    """On Linux, ask the kernel to end this process when the one that started it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG


def segments_of(pid):
    """{path: inode} of MPI's files in shared memory that a process has open or maps."""
    names = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):  # before those that are mapped: a file is closed when it has been mapped
            with contextlib.suppress(OSError):
                names.add(os.readlink(entry.path))
        names |= {f"/{line.partition('/')[2]}" for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()}
    found = {}
    for path in map(Path, names):
        if path.parent == SHARED_MEMORY and path.name.startswith(LIBRARIES):
            with contextlib.suppress(OSError):  # it has been deleted
                found[path] = path.stat().st_ino
    return found


def remove_own_segments():
    """Delete MPI's shared-memory files of this process, the only rank of its job, which has mapped them."""
    for path in segments_of(os.getpid()):
        path.unlink(missing_ok=True)
