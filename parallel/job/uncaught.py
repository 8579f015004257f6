"""A hook for scripts that do not use `gridgrad.parallel.job.run.run`: an uncaught exception on one rank ends the whole job.

Python alone would end only the process that raised, and the other ranks would wait for it in their next collective for
ever. The hook prints the traceback with the rank and aborts the job. Python does not call it for `sys.exit`: a script that
ends early on one rank must raise an exception instead.
"""

import os
import sys
import threading
import time
import traceback

from mpi4py import MPI

from gridgrad.parallel.job.run import DRAIN, print_of_rank

_installed: list[tuple] = []  # the hooks of sys and threading that ours replaced; empty until it is installed


def end_job_when_uncaught():
    """Install the hook, once. It is not installed in a serial run, in an interactive interpreter or under pytest."""
    if _installed or not MPI.Is_initialized() or MPI.COMM_WORLD.size == 1 or _is_interactive() or _is_pytest():
        return
    _installed.extend((sys.excepthook, threading.excepthook))
    sys.excepthook, threading.excepthook = _in_main_thread, _in_thread


def _in_main_thread(kind, error, trace):
    before, default = _installed[0], sys.__excepthook__
    _end_job(kind, error, trace, None if before is default else lambda: before(kind, error, trace))


def _in_thread(arguments):
    if arguments.exc_type is SystemExit:  # it ends only its thread, and Python prints nothing
        return
    before, default = _installed[1], threading.__excepthook__
    chained = None if before is default else lambda: before(arguments)
    _end_job(arguments.exc_type, arguments.exc_value, arguments.exc_traceback, chained)


def _end_job(kind, error, trace, before):
    """Print the traceback with the rank, call the hook that ours replaced (`before`, if not None), and end all ranks."""
    active = not MPI.Is_finalized()
    try:
        rank = MPI.COMM_WORLD.rank if active else "?"
        print_of_rank(rank, "".join(traceback.format_exception(kind, error, trace)))
        if before is not None:
            before()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        if active:
            time.sleep(DRAIN)
            MPI.COMM_WORLD.Abort(130 if issubclass(kind, KeyboardInterrupt) else 1)


def _is_interactive():
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _is_pytest():
    """Whether the program is pytest, which reports exceptions itself and in which a test may raise in a thread on purpose."""
    program = sys.argv[0] if sys.argv else ""
    return os.path.basename(program) in ("pytest", "py.test") or program.endswith(os.path.join("pytest", "__main__.py"))
