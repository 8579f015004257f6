"""mypy accepts the packages and the programs of the documents, in which calling an export without types is an error.

mypy does not look into editable installations: it reads a folder that is made like an installed package.
"""

import shutil
import subprocess
import sys

import pytest

from tests.api.exports import PACKAGES
from tests.docs.pages import ROOT, blocks

pytest.importorskip("mypy", reason="mypy is not installed: requirements.lock has it")

PROGRAMS = "docs/tutorial.py", "experiments/studies/usability/serial.py", "experiments/studies/usability/automatic.py"
PAGES = "README.md", "docs/training.md", "docs/protocols.md", "docs/figures.md"
EXAMPLES = {path.rpartition("/")[2].removesuffix(".py"): (ROOT / path).read_text() for path in PROGRAMS}
EXAMPLES |= {
    f"{page.rpartition('/')[2].removesuffix('.md')}_{number}": text
    for page in PAGES
    for number, text in enumerate(blocks(page, "python"))
}


WRONG = """from gridgrad.parallel import parse_grid
from gridgrad.parallel.placement.moves import elements_sent
parse_grid(4)
parse_grid('batch=2')['batch'].upper()
elements_sent(1, 2, 3, 4, 5)
"""


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """The lines of the errors that mypy finds in a folder with the packages and the examples."""
    folder = tmp_path_factory.mktemp("types")
    for name in ("gridgrad", "examples"):
        (folder / name).mkdir()
    for name in ("__init__.py", "py.typed"):
        shutil.copy(ROOT / "gridgrad" / name, folder / "gridgrad")
    for package in PACKAGES:
        (folder / package.replace(".", "/")).symlink_to(ROOT / package.removeprefix("gridgrad."))
    for name, text in (EXAMPLES | {"wrong": WRONG}).items():
        (folder / "examples" / f"{name}.py").write_text(text)
    words = ["--config-file", ROOT / "pyproject.toml", "--cache-dir", folder / "cache", "--no-error-summary"]
    names = [word for name in (*PACKAGES, "examples") for word in ("--package", name)]
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", *words, *names], cwd=folder, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return [line for line in ended.stdout.splitlines() if ": error: " in line]


@pytest.mark.parametrize("name", [*PACKAGES, *(f"examples.{name}" for name in EXAMPLES)])
def test_types_fit(errors, name):
    path = name.replace(".", "/")
    assert [line for line in errors if line.startswith((f"{path}/", f"{path}.py:"))] == []


def test_errors_are_found(errors):
    lines = [line for line in errors if line.startswith("examples/wrong.py:")]
    assert [line.split(":")[1] for line in lines] == ["3", "4", "5"] and "untyped function" in lines[2], lines
