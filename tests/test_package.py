"""The installed form: one package gridgrad, made of a source distribution, beside others that are called nn or datasets."""

import json
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from gridgrad.experiments.common.programs import FRONT, STUDY, studies
from gridgrad.experiments.launching.start_ranks import mpiexec
from tests.experiments.programs import job as folder_job

pytest.importorskip("setuptools", minversion="77", reason="building needs setuptools, which requirements.lock has")

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = "nn", "parallel", "datasets", "experiments"
TRAIN = ("--dataset", "airfoil", "--net", "mlp:16,tanh", "--steps", "5", "--quiet", "--reduction", "plain")
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
print(len(found), *sorted(name for name in sys.modules if name.startswith(("nn.", "parallel.", "datasets.", "experiments."))))
"""
HELPS = """
import os, sys
from gridgrad.experiments.common import command, programs, report, train_setup
from gridgrad.experiments.plots import style
for name in (*programs.FRONT, *(f"study {name}" for name in programs.studies())):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        sys.argv = ["gridgrad", *name.split(), "--help"]
        command.main()
        os._exit(0)  # where --help has not ended the process
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(f"{name} ended with {status}")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder in which gridgrad is installed from its source distribution, and foreign packages that have our names."""
    folder = tmp_path_factory.mktemp("package")
    build = "import setuptools.build_meta as b, sys; b.build_sdist(sys.argv[1])"
    said = subprocess.run([sys.executable, "-c", build, folder], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    [sdist] = folder.glob("gridgrad-*.tar.gz")
    installed = pip("--target", folder / "site", sdist)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    for name in FOLDERS:
        (folder / "site" / name).mkdir()
        (folder / "site" / name / "__init__.py").write_text("foreign = True\n")
    return folder / "site"


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", "--no-compile"]
    return subprocess.run([*command, *arguments], cwd="/", capture_output=True, text=True, timeout=120)


@pytest.fixture
def outside(site, tmp_path, monkeypatch):
    """In another folder than the sources, with that one on Python's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GRIDGRAD_KERNELS", "plain")  # otherwise the first run would measure them
    return tmp_path


def python(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


def test_the_package_has_every_file_and_takes_one_name(site):
    installed = {path.name for path in site.iterdir()} - {*FOLDERS, "bin", "__pycache__"}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert installed == {"gridgrad", f"gridgrad-{version}.dist-info"}
    assert (site / f"gridgrad-{version}.dist-info" / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    ours = {path.relative_to(ROOT): path for name in FOLDERS for path in (ROOT / name).rglob("*.*") if path.suffix != ".pyc"}
    assert {Path("datasets/airfoil_self_noise.dat"), Path("experiments/settings/speedup.toml")} <= ours.keys()
    for relative, path in ours.items():
        assert (site / "gridgrad" / relative).read_bytes() == path.read_bytes(), relative
    ours |= {Path(path.name): path for path in (ROOT / "gridgrad").glob("*.*")}
    files = {path.relative_to(site / "gridgrad") for path in (site / "gridgrad").rglob("*.*") if path.suffix != ".pyc"}
    assert files == ours.keys()


def test_others_keep_the_names_of_our_folders(outside):
    finished = python("-c", IMPORT)
    assert finished.returncode == 0, finished.stderr
    count, *taken = finished.stdout.split()
    assert int(count) > 250 and taken == []


@pytest.mark.mpi
def test_the_package_trains_as_the_folder_does(outside, monkeypatch):
    alone, two = [*TRAIN, "--report"], [*TRAIN, "--grid", "model=2", "--report"]
    for words in (["train", *alone, "alone.json"], ["launch", "2", "train", *two, "launched.json"]):
        finished = python("-m", "gridgrad", *words)
        assert (finished.returncode, finished.stderr) == (0, "")
    finished = mpiexec(2, ["-m", "gridgrad.experiments.train", *two, "module.json"], 60)
    assert (finished.status, finished.stderr) == (0, "")
    monkeypatch.delenv("PYTHONPATH")
    for ranks, options, names in ((1, alone, ["alone"]), (2, two, ["launched", "module"])):
        finished = folder_job(ranks, "train", *options, "folder.json")
        assert finished.status == 0, finished.stderr
        wanted = json.loads(Path("folder.json").read_text())
        for name in names:
            found = json.loads(Path(f"{name}.json").read_text())
            assert found["P"] == ranks and found["params_digest"] == wanted["params_digest"]
            assert found["versions"] == wanted["versions"] and found["versions"]["gridgrad"]


@pytest.mark.long
@pytest.mark.mpi
def test_a_program_of_the_package_starts_others(outside):
    options = "--nets mlp:8,relu --ranks 1,2 --schemes batch --steps 5 --repeats 1 --out s.jsonl"
    finished = python("-m", "gridgrad", "sweep", *options.split())
    assert finished.returncode == 0 and len(Path("s.jsonl").read_text().splitlines()) == 2, finished.stderr
    Path("mine.py").write_text("print('a module of the user')\n")
    finished = python("-m", "gridgrad", "launch", "2", "mine")
    assert finished.stdout.count("a module of the user") == 2, finished.stderr  # lines of several ranks may run together


def test_the_command_lists_all_programs(site, outside):
    listed = subprocess.run([site / "bin" / "gridgrad"], capture_output=True, text=True, timeout=60)
    assert (listed.returncode, listed.stderr) == (0, "")
    lines = [line.strip() for line in listed.stdout.splitlines() if line.startswith("  ")]
    names = [line.partition(" ")[0] for line in lines if not line.startswith("gridgrad ")]
    assert names == [*FRONT, STUDY, "help", "completion"]
    assert all(len(line) < 110 for line in listed.stdout.splitlines())


@pytest.mark.long
def test_each_program_says_its_options(outside):
    finished = python("-c", HELPS)
    assert finished.returncode == 0 and finished.stderr == ""
    for name in (*FRONT, *(f"{STUDY} {name}" for name in studies())):
        assert f"usage: gridgrad {name} " in finished.stdout and f"\n{name} ended with 0\n" in finished.stdout, name
    assert "experiments." not in finished.stdout


def test_the_studies_are_listed_with_their_questions(outside):
    listed = python("-m", "gridgrad", "study")
    lines = [line.strip() for line in listed.stdout.splitlines() if line.startswith("  ") and "gridgrad study" not in line]
    questions = dict(line.split(maxsplit=1) for line in lines)
    assert list(questions) == studies() and all("?" in question for question in questions.values())


@pytest.mark.mpi
def test_what_is_no_program_is_refused_once(outside):
    finished = python("-m", "gridgrad", "trian")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == "gridgrad: error: there is no program trian (did you mean train?) (see gridgrad --help)\n"
    ranks = mpiexec(2, ["-m", "gridgrad", "trian"], 60)
    assert ranks.status == 2 and ranks.stderr.count(finished.stderr) == 1


def test_the_version_is_that_of_the_settings(outside):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert python("-c", "import gridgrad; print(gridgrad.__version__)").stdout == f"{version}\n"
    assert python("-m", "gridgrad", "--version").stdout == f"gridgrad {version}\n"


@pytest.mark.mpi
@pytest.mark.long
def test_an_editable_installation_in_a_venv_with_packages_of_our_names(tmp_path, monkeypatch):
    """In which there are nn, parallel, datasets and experiments of others, and this environment's libraries."""
    venv.create(tmp_path / "venv", with_pip=False)
    [packages] = (tmp_path / "venv" / "lib").glob("*/site-packages")
    (packages / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # without what .pth files there would import
    finished = pip("--target", packages, "--editable", ROOT)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    for name in FOLDERS:
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("foreign = True\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    command = [tmp_path / "venv" / "bin" / "python", "-c", IMPORT]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("words", [["check"], ["train", "--help"]], ids=" ".join)
def test_without_an_mpi_library_one_line_says_so(words, tmp_path, monkeypatch):
    monkeypatch.setenv("MPI4PY_LIBMPI", str(tmp_path / "libmpi.so"))
    finished = python("-m", "gridgrad", *words)
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr.startswith("gridgrad: error: there is no MPI library: ") and finished.stderr.count("\n") == 1
