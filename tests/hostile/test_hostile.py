"""Some of the hostile cases, always the same ones; and that the judge sees what must not happen."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.bounded import ROOT
from tests.hostile import case


@pytest.mark.parametrize(
    ("read", "right", "words"),
    [
        (lambda folder: 1, lambda value, folder: value == 1, "read right"),
        (lambda folder: 2, lambda value, folder: value == 1, "wrong: is read as 2"),
        (lambda folder: sys.exit("no error"), None, "wrong: ends with status"),
        (lambda folder: Path("mine").unlink(), lambda value, folder: True, "wrong: deletes 'work/mine'"),
        (lambda folder: Path("../outside/a").touch(), lambda value, folder: True, "wrong: leaves 'outside/a' behind"),
        (lambda folder: len(b"x" * (300 << 20)), lambda value, folder: True, "wrong: touches"),
    ],
)
def test_the_judge_sees_it(read, right, words, tmp_path, monkeypatch):
    monkeypatch.setattr(case, "ALLOWED", 64 << 20)
    one = case.Case("made up", "one", lambda folder: (folder / "mine").write_text("a"), read, right)
    outcome, said, *_ = case.judged(one, tmp_path)
    assert f"{outcome}{': ' * bool(said)}{said}".startswith(words)


@pytest.mark.parametrize("every", [25, pytest.param(1, marks=pytest.mark.long)])
def test_every_case_is_read_right_or_refused_in_one_line(every):
    command = [sys.executable, "-m", "tests.hostile", "--every", str(every)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert finished.returncode == 0, finished.stderr + finished.stdout
