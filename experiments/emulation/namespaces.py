"""Linux namespaces: processes with a network, a host name, shared memory or process ids of their own.

Namespaces have no names here: each exists as long as a process runs in it, and disappears by itself.
"""

import ctypes
import os
import signal
import sys

from gridgrad.parallel.job.own_process import end_with_parent

NETWORK, NAME, MEMORY, MOUNTS, PROCESSES = 0x40000000, 0x04000000, 0x08000000, 0x00020000, 0x20000000  # linux/sched.h
RECURSIVE, PRIVATE = 0x4000, 0x40000  # linux/mount.h


def leave(*kinds):
    """Move this process into new namespaces of these kinds; with PROCESSES it is the next child that moves, as process 1."""
    _call("unshare", sum(kinds))
    if MOUNTS in kinds:
        _call("mount", b"none", b"/", None, RECURSIVE | PRIVATE, None)  # what is mounted from now on stays inside


def mount(kind, folder):
    """Mount a file system that needs no device, "proc" or "tmpfs", over `folder`."""
    _call("mount", kind.encode(), folder.encode(), kind.encode(), 0, None)


def _call(function, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def contained(body):
    """Run `body()` in a child that is process 1 of its own namespace; returns its exit status, 128 + the signal's number
    if one ended it.

    However this process or the child ends, even if killed, no process that the child started remains: the kernel ends all
    processes of a namespace with its process 1, and process 1 with its parent.
    """
    sys.stdout.flush()
    leave(PROCESSES)
    child = os.fork()
    if child == 0:
        end_with_parent()
        sys.exit(body())
    status = None
    try:
        status = os.waitpid(child, 0)[1]
    finally:
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
