"""An exception that nobody catches on one rank of a user's own script ends the whole job, with that rank's traceback.

Python would end that process alone, and the others would wait for it in their next collective for ever. Programs that go
through `parallel.job.run.run` need no hook: that catches what they raise. `sys.exit` on one rank is no exception to Python's
hooks: a script that wants to end early raises.
"""

import os
import sys
import threading
import time
import traceback

from mpi4py import MPI

from parallel.job.run import DRAIN

_installed = []  # the hooks that were there before ours


def end_job_when_uncaught():
    """Install the hook, once, where there are other ranks: not in a serial run, an interactive interpreter or under pytest."""
    if _installed or not MPI.Is_initialized() or MPI.COMM_WORLD.size == 1 or _is_interactive() or _is_pytest():
        return
    _installed.extend((sys.excepthook, threading.excepthook))
    sys.excepthook, threading.excepthook = _in_main_thread, _in_thread


def _in_main_thread(kind, error, trace):
    before, default = _installed[0], sys.__excepthook__
    _end_job(kind, error, trace, None if before is default else lambda: before(kind, error, trace))


def _in_thread(arguments):
    if arguments.exc_type is SystemExit:  # ends only its thread, in silence
        return
    before, default = _installed[1], threading.__excepthook__
    chained = None if before is default else lambda: before(arguments)
    _end_job(arguments.exc_type, arguments.exc_value, arguments.exc_traceback, chained)


def _end_job(kind, error, trace, before):
    """Say what happened and on which rank, call the hook that was there `before`, if any, and end all ranks."""
    active = not MPI.Is_finalized()
    try:
        rank = MPI.COMM_WORLD.rank if active else "?"
        lines = "".join(traceback.format_exception(kind, error, trace)).splitlines()
        sys.stderr.write("".join(f"[rank {rank}] {line}\n" for line in lines))
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
    """Whether pytest is the program that runs: it reports what is raised, and a test may raise on purpose in a thread."""
    program = sys.argv[0] if sys.argv else ""
    return os.path.basename(program) in ("pytest", "py.test") or program.endswith(os.path.join("pytest", "__main__.py"))
