"""Whatever a new user types is answered: by what was asked for, or by one line that says what is wrong."""

import shlex

import pytest

from gridgrad.parallel.job.launch import Finished, mpiexec
from tests.experiments.command_lines import cases
from tests.experiments.programs import program

FILES = {
    "mine.csv": "a,b,price\n" + "".join(f"{i},{i * i % 7},{3 * i + 1}.5\n" for i in range(200)),
    "ragged.csv": "a,b\n1,2\n3\n",
    "text.txt": "to be or not to be\n",
    "mine.toml": 'speed = "fast"\n',
    "mine.py": "print('hello')\n",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The folder in which all of them are typed, one after another."""
    folder = tmp_path_factory.mktemp("typed")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "folder").mkdir()
    return folder


def alone(words):
    """A Finished of `gridgrad WORDS`."""
    ended = program("gridgrad", *words)
    return Finished(ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "status", "words", "text"), list(cases()))
def test_it_is_answered(ranks, status, words, text, here, monkeypatch):
    monkeypatch.chdir(here)
    monkeypatch.setenv("GRIDGRAD_DATA", str(here / "data"))
    finished = mpiexec(ranks, ["-m", "gridgrad", *shlex.split(words)], 120) if ranks > 1 else alone(shlex.split(words))
    said = finished.stdout + finished.stderr
    assert finished.status == status and text in said and "Traceback" not in said, said
    if status:
        errors = [line for line in finished.stderr.splitlines() if ": error: " in line]
        assert len(errors) == 1 and text in errors[0], said
    assert said or "--quiet" in words


def test_there_are_many():
    assert len({words for _, _, words, _ in cases()}) >= 250
