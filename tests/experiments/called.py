"""Calling what programs do, in this process."""

import contextlib
import signal
import sys

import numpy as np

from gridgrad.experiments.common.programs import module
from gridgrad.experiments.launching.start_ranks import PASSED_ON


@contextlib.contextmanager
def signals_kept():
    """Signals mean afterwards what they meant before; what a process is to ignore, those that it starts ignore as well."""
    before = {number: signal.getsignal(number) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_main(monkeypatch, name, *arguments):
    """Call the main function of a program or study with these arguments: `run_main(monkeypatch, "explain", "--ranks", 4)`."""
    program = module(name)
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    monkeypatch.setattr(program, "run", lambda main: main(), raising=False)  # which would end this process after an error
    with np.errstate(), signals_kept():  # programs change them
        program.main()
