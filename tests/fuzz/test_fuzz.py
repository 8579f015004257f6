"""A few hundred fuzzed inputs of all targets, always the same ones; and that the harness sees what must not happen."""

import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import strategies as st

from tests.fuzz.bounded import READ, REFUSED, ROOT, WRONG, Bounds
from tests.fuzz.target import Target, run


def refuses(words, error=ValueError):
    def read(path):
        raise error(words.format(path=path))

    return read


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (refuses("{path} is bad", KeyError), "KeyError in tests/fuzz/test_fuzz.py"),
        (refuses("it is bad"), "does not name the file"),
        (refuses("{path} is bad"), "a valid input is refused"),
        (lambda path: time.sleep(100), "hangs"),
        (lambda path: os.kill(os.getpid(), signal.SIGSEGV), "is ended by signal 11"),
    ],
)
def test_what_must_not_happen_is_reported(tmp_path, read, words):
    target = Target("made up", lambda: (b"valid",), lambda content: st.just(b"damaged"), read)
    result = run(target, 2, 0, tmp_path, Bounds(0.3, 0.2 if words == "hangs" else 3600, 200 << 20))
    assert any(found.startswith(words) for found in result.failures), result
    assert result.inputs == 4 and result.failures.popitem()[1][2] == b"valid"


SOME = "mnist images", "ethylene zip", "image files", "table csv", "table npz", "machine file", "owners", "option net"


@pytest.mark.parametrize(("targets", "examples"), [(SOME, 40), pytest.param((), 300, marks=pytest.mark.long)])
def test_every_target_reads_or_refuses_its_inputs(tmp_path, targets, examples):
    command = [sys.executable, "-m", "tests.fuzz", "--examples", str(examples), "--seed", "0", "--out", str(tmp_path)]
    command += [word for name in targets for word in ("--target", name)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert READ in finished.stdout and REFUSED in finished.stdout and WRONG not in finished.stdout
