"""The first thing that a program does: streams that are closed or have no reader, odd characters, and Ctrl-C."""

import os
import subprocess
import sys
import time

import pytest

from gridgrad import startup

PRINTS = """
import os, sys
from gridgrad.startup import listen
listen()
listen()
first = os.open(os.devnull, os.O_RDONLY)
print("before \\x1b[31m\\u2192 \\udcff\\x9b\\r\\tafter", flush=True)
print("said \\x1b[2J\\r\\u2192", file=sys.stderr)
sys.exit(7 if first > 2 else "the number of a stream was given to a file")
"""
IMPORTS = """
import signal, sys
sys.orig_argv[:] = ["python", "-m", "gridgrad.experiments.train"]
import gridgrad.experiments.common.command
signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>/dev/full", "| true; exit ${PIPESTATUS[0]}"])
def test_streams_that_are_closed_or_not_read_are_no_error(closed):
    finished = subprocess.run(["bash", "-c", f'"$0" -c "$1" {closed}', sys.executable, PRINTS], capture_output=True, text=True)
    assert finished.returncode == 7 and "Traceback" not in finished.stderr


def test_a_reader_that_is_slow_gets_all():
    text, (reads, writes) = f"print('x' * {1 << 20}, flush=True)\n", os.pipe()
    os.set_blocking(writes, False)
    process = subprocess.Popen([sys.executable, "-c", PRINTS.replace("sys.exit", f"{text}sys.exit")], stdout=writes)
    os.close(writes)
    time.sleep(0.3)
    with open(reads, "rb") as file:
        assert file.read().endswith(b"x" * (1 << 20) + b"\n") and process.wait() == 7


def test_control_characters_do_not_reach_a_terminal_and_any_locale_can_show_what_is_printed(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    finished = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True)
    assert finished.stdout == b"before \\x1b[31m\\u2192 \\udcff\\x9b\\r\tafter\n"
    assert finished.stderr == b"said \\x1b[2J\r\\u2192\n"


def test_what_an_import_lacks_is_said_in_a_line():
    assert "no MPI library" in startup.said_of(RuntimeError("cannot load MPI library"))
    for error in (MemoryError(), ImportError("failed to map segment from shared object")):
        assert "not enough memory" in startup.said_of(error)
    assert startup.said_of(ImportError("no module named x")) is startup.said_of(ValueError("libmpi")) is None


def test_ctrl_c_while_a_program_is_imported_is_a_line():
    finished = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert (finished.returncode, finished.stdout, finished.stderr) == (130, "", "gridgrad: interrupted\n")
