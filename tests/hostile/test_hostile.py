"""Some of the hostile cases, always the same ones; and that the judge sees what must not happen."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JUDGE = """
import mpi4py
mpi4py.rc.initialize = False
import os, sys, tempfile, time
from pathlib import Path
from tests.hostile.case import Case, judged
def refuse(words):
    raise ValueError(words)
with tempfile.TemporaryDirectory() as root:
    case = Case("made up", "one", lambda folder: (folder / "mine").write_text("a"), lambda folder: {read}, {right})
    print(*judged(case, Path(root)))
"""


@pytest.mark.parametrize(
    ("read", "right", "words"),
    [
        ("1", "lambda value, folder: value == 1", "read right"),
        ("refuse('no')", "None", "refused in one line no"),
        ("2", "lambda value, folder: value == 1", "wrong reads 2"),
        ("2", "None", "wrong is read as 2"),
        ("{}[1]", "None", "wrong KeyError"),
        ("refuse('a\\x1bb')", "None", "wrong prints"),
        ("os.remove('mine')", "None", "wrong is read"),
        ("os.remove('mine')", "lambda value, folder: True", "wrong deletes 'work/mine'"),
        ("open('.left', 'w')", "lambda value, folder: True", "wrong leaves 'work/.left' behind"),
        ("time.sleep(1000)", "None", "wrong hangs"),
        ("[None for _ in iter(int, 1)]", "None", "wrong computes"),
        ("bytes(1 << 40)", "None", "wrong MemoryError"),
        ("len(bytearray(600 << 20))", "lambda value, folder: True", "wrong touches"),
        ("__import__('subprocess').run(['mpiexec'])", "None", "wrong AssertionError"),
    ],
)
def test_the_judge_sees_it(read, right, words):
    script = JUDGE.replace("{read}", read).replace("{right}", right)
    finished = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert finished.stdout.startswith(words), finished.stdout + finished.stderr


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.long)])
def test_every_case_is_read_right_or_refused_in_one_line(every):
    command = [sys.executable, "-m", "tests.hostile", "--every", str(every)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert finished.returncode == 0, finished.stderr + finished.stdout
