"""Ctrl-C while a program starts: one line and the exit status 130, where Python would print the traceback of an import.

It needs nothing but what Python has loaded, and stands outside the packages, whose import takes most of the start.
"""

import os
import signal

STATUS = 130
RANKS = "PMI_RANK", "OMPI_COMM_WORLD_RANK"  # the variables of launchers, by which one of several ranks speaks


def listen():
    """From now on end this process so, until `run` or `run_launcher` of `parallel/job/run.py` takes over."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background ignores the signal
        signal.signal(signal.SIGINT, _end)


def _end(number, frame):
    if all(os.environ.get(name, "0") == "0" for name in RANKS):
        os.write(2, b"gridgrad: interrupted\n")
    os._exit(STATUS)
