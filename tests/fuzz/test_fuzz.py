"""A few hundred fuzzed inputs of all targets, always the same ones; and that the harness sees what must not happen.

`python -m tests.fuzz` reads as many as one likes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.fuzz.bounded import Bounds, run
from tests.fuzz.target import Target

ROOT = Path(__file__).parents[2]


def raising(error):
    def read(path):
        raise error(f"{path} is bad")

    return read


def refusing(words):
    def read(path):
        raise ValueError(words.format(path=path))

    return read


def swallow(path):
    """Needs as much memory as the input says, in MiB."""
    return bytes(int(path.read_bytes()) << 20)


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (raising(TypeError), "TypeError in tests/fuzz/test_fuzz.py"),
        (raising(KeyError), "KeyError in tests/fuzz/test_fuzz.py"),
        (raising(SystemExit), "SystemExit in"),
        (json.load, "AttributeError in"),
        (swallow, "MemoryError in tests/fuzz/test_fuzz.py"),
        (refusing("it is bad"), "does not name the file"),
        (refusing("{path} " + "x" * 9000), None),  # the product shortens it
        (refusing("{path} is bad"), "a valid input is refused"),
        (lambda path: time.sleep(100), "waits for too long"),
        (lambda path: [None for _ in iter(int, 1)], "computes for more than"),
        (lambda path: os.kill(os.getpid(), signal.SIGSEGV), "ends the process by signal 11"),
    ],
)
def test_what_must_not_happen_is_reported(tmp_path, read, words):
    target = Target("made up", lambda: (b"400",), lambda content: st.just(b"4000"), read)
    waiting = 0.2 if words and words.startswith("waits") else 3600  # by the clock, where the limit is of the processor
    result = run(target, 2, 0, tmp_path, Bounds(0.3, waiting, 200 << 20))
    assert result.inputs == sum(result.counts.values()) == 4
    if words is None:
        assert result.counts["refused"] == 3
    else:
        assert any(found.startswith(words) for found in result.failures)
        (_, _, content), *_ = result.failures.values()
        assert content == b"400" or read is swallow


def test_inputs_that_are_read_or_refused_well_are_counted(tmp_path):
    def read(path):
        if path.read_bytes() != b"good":
            raise ValueError(f"{path} is bad:\n not good")

    def some(content):
        return st.sampled_from((b"good", b"bad"))

    target = Target("made up", lambda: (b"good",), some, read, examples=lambda: (b"bad", b"worse"))
    result = run(target, 40, 0, tmp_path)
    assert result.inputs == 40 and not result.failures
    assert result.counts["read"] > 5 and result.counts["refused"] > 5 and result.counts["failed"] == 0


SOME = (
    "mnist images",
    "ethylene zip",
    "image files",
    "table csv",
    "table npz",
    "owners",
    "machine file",
    "option net",
    "checkpoint shard that fits",
)


@pytest.mark.parametrize(("targets", "least"), [(SOME, 10), pytest.param((), 100, marks=pytest.mark.long)])
def test_every_target_reads_or_refuses_its_inputs(tmp_path, targets, least):
    command = [sys.executable, "-m", "tests.fuzz", "--examples", str(3 * least), "--seed", "0", "--out", str(tmp_path)]
    command += [word for name in targets for word in ("--target", name)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    name, inputs, refused, read, failed, _ = finished.stdout.splitlines()[-1].split()
    assert name == "all" and int(inputs) >= 3 * least and int(refused) > least and int(read) > least and int(failed) == 0
