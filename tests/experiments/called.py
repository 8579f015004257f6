"""Calling what programs do, in this process."""

import sys

import numpy as np

from gridgrad.experiments.common.programs import module


def run_main(monkeypatch, name, *arguments):
    """Call the main function of a program or study with these arguments: `run_main(monkeypatch, "explain", "--ranks", 4)`."""
    program = module(name)
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    monkeypatch.setattr(program, "run", lambda main: main(), raising=False)  # which would end this process after an error
    with np.errstate():  # programs change it
        program.main()
