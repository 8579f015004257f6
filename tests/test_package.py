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
IMPORT = """
import importlib, pkgutil, sys
import nn, parallel, datasets, experiments
import gridgrad
FOREIGN = nn, parallel, datasets, experiments
PEERS = "torch", "pydtnn", "mtkahypar"
sys.modules |= dict.fromkeys(PEERS)  # as if they were not installed
found = [module.name for module in pkgutil.walk_packages(gridgrad.__path__, "gridgrad.")]
for name in found:
    if not name.endswith("__main__") and not name.startswith("gridgrad.experiments.studies.usability."):  # these run at once
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            assert error.name.partition(".")[0] in PEERS, error
assert all(sys.modules[module.__name__] is module and module.foreign for module in FOREIGN)
taken = [name for name in sys.modules if name.startswith(("nn.", "parallel.", "datasets.", "experiments."))]
print(len(found) > 100, *taken, end="")
"""


def foreign_packages(folder):
    """Others that have the names of our folders."""
    for name in FOLDERS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("foreign = True\n")


def pip(*arguments):
    words = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", "--no-compile"]
    finished = subprocess.run([*words, *arguments], cwd="/", capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder in which gridgrad is installed from its source distribution, beside foreign packages."""
    folder = tmp_path_factory.mktemp("package")
    build = "import setuptools.build_meta as b, sys; b.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, folder], cwd=ROOT, capture_output=True, check=True, timeout=60)
    [sdist] = folder.glob("gridgrad-*.tar.gz")
    pip("--target", folder / "site", sdist)
    foreign_packages(folder / "site")
    return folder / "site"


@pytest.fixture
def outside(site, tmp_path, monkeypatch):
    """In another folder than the sources, with that one on Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("GRIDGRAD_KERNELS", "plain")  # otherwise the first run would measure them


def test_the_package_has_every_file_and_takes_one_name(site):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {path.name for path in site.iterdir()} - {*FOLDERS, "bin", "__pycache__"} == {
        "gridgrad",
        f"gridgrad-{version}.dist-info",
    }
    ours = {path.relative_to(ROOT) for name in FOLDERS for path in (ROOT / name).rglob("*.*") if path.suffix != ".pyc"}
    ours |= {Path(path.name) for path in (ROOT / "gridgrad").glob("*.*")}
    assert {path.relative_to(site / "gridgrad") for path in (site / "gridgrad").rglob("*.*") if path.suffix != ".pyc"} == ours


def test_others_keep_the_names_of_our_folders(outside):
    finished = python("-c", IMPORT)
    assert (finished.returncode, finished.stdout) == (0, "True"), finished.stderr


@pytest.mark.mpi
def test_the_command_of_the_package_starts_ranks_that_train(outside, site):
    words = [site / "bin" / "gridgrad", "launch", "2", *TRAIN.split()]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (finished.returncode, finished.stderr) == (0, "") and Path("report.json").exists()


def test_without_an_mpi_library_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("MPI4PY_LIBMPI", str(tmp_path / "libmpi.so"))
    finished = python("-m", "gridgrad", "check")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("gridgrad: error: there is no MPI library: ") and finished.stderr.count("\n") == 1
