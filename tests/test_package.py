"""The installed form: one package gridgrad, made of a source distribution, beside others that are called nn or datasets."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="77", reason="building needs setuptools, which requirements.lock has")

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = "nn", "parallel", "datasets", "experiments"
TRAIN = "train --dataset airfoil --net mlp:16,tanh --steps 5 --quiet --reduction plain --grid model=2 --report report.json"


def run(*words, **options):
    finished = subprocess.run(words, capture_output=True, text=True, timeout=120, **options)
    return finished.returncode, finished.stdout, finished.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder in which gridgrad is installed from its source distribution, beside others with the names of our folders."""
    folder = tmp_path_factory.mktemp("package")
    build = "import setuptools.build_meta as b, sys; b.build_sdist(sys.argv[1])"
    assert run(sys.executable, "-c", build, folder, cwd=ROOT)[0] == 0
    [sdist] = folder.glob("gridgrad-*.tar.gz")
    options = "--no-index", "--no-deps", "--no-build-isolation", "--no-compile", "--target", folder / "site"
    status, printed, errors = run(sys.executable, "-m", "pip", "install", *options, sdist, cwd="/")
    assert status == 0, printed + errors
    for name in FOLDERS:
        (folder / "site" / name).mkdir()
        (folder / "site" / name / "__init__.py").touch()
    return folder / "site"


def test_the_package_has_every_file_and_takes_one_name(site):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {path.name for path in site.iterdir()} - {*FOLDERS, "bin", "__pycache__"} == {
        "gridgrad",
        f"gridgrad-{version}.dist-info",
    }
    ours = {path.relative_to(ROOT) for name in FOLDERS for path in (ROOT / name).rglob("*.*") if path.suffix != ".pyc"}
    ours |= {Path(path.name) for path in (ROOT / "gridgrad").glob("*.*")}
    assert {path.relative_to(site / "gridgrad") for path in (site / "gridgrad").rglob("*.*") if path.suffix != ".pyc"} == ours


@pytest.mark.mpi
def test_the_installed_command_starts_ranks_that_train_whatever_else_has_the_names_of_our_folders(site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("GRIDGRAD_KERNELS", "plain")  # otherwise the first run would measure them
    status, _, errors = run(site / "bin" / "gridgrad", "launch", "2", *TRAIN.split())
    assert (status, errors) == (0, "") and Path("report.json").exists()


def test_without_an_mpi_library_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("MPI4PY_LIBMPI", str(tmp_path / "libmpi.so"))
    status, printed, errors = run(sys.executable, "-m", "gridgrad", "check")
    assert (status, printed, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("gridgrad: error: there is no MPI library: ")
