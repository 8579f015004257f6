"""The worked examples of docs/extending: each page is a program, whose assertions compare with serial training."""

import shutil

import pytest

from gridgrad.experiments.launching.start_ranks import mpiexec
from tests.docs.pages import ROOT, blocks, changed, changes, program

pytestmark = pytest.mark.mpi
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GRIDGRAD_KERNELS": "plain"}  # no table of kernels is measured
CASES = ("layer", 1), ("protocol", 3), ("schedule", 3), ("axis", 4), ("plan", 4)  # page, ranks


def folder_of(name, path):
    """The folder at this path, with the program of a page and the code that it extends, with the lines that it changes."""
    page = f"docs/extending/{name}.md"
    package = path / "gridgrad"
    package.mkdir()
    shutil.copy(ROOT / "gridgrad" / "__init__.py", package)
    for folder in ("nn", "parallel"):
        shutil.copytree(ROOT / folder, package / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for changed_file, hunks in changes(page):
        (package / changed_file).write_text(changed((package / changed_file).read_text(), hunks))
    (path / "example.py").write_text(program(page))
    return path


def test_all_pages_are_here():
    assert {path.stem for path in (ROOT / "docs" / "extending").glob("*.md")} == {name for name, _ in CASES}


@pytest.mark.parametrize(("name", "ranks"), CASES)
def test_the_example_equals_serial_training(name, ranks, tmp_path, monkeypatch):
    monkeypatch.chdir(folder_of(name, tmp_path))
    ended = mpiexec(ranks, ["-m", "mpi4py", "example.py"], 120, ENVIRONMENT | {"PYTHONPATH": str(tmp_path)})
    assert ended.status == 0, ended.stdout + ended.stderr
    for text in blocks(f"docs/extending/{name}.md", "text"):
        assert [line for line in text.splitlines() if line not in ended.stdout] == []
