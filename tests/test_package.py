"""The installed form: one package gridgrad, made of a source distribution, beside others that are called nn or datasets."""

import ast
import importlib.util
import json
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.common.programs import programs, source
from parallel.job.launch import mpiexec
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
    if not name.endswith("__main__") and not name.startswith("gridgrad.experiments.usability."):  # these run at once
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
from gridgrad.experiments.plots import figures
for name in programs.programs():
    sys.stdout.flush()
    child = os.fork()
    if not child:
        sys.argv = ["gridgrad", name, "--help"]
        command.main()
        os._exit(0)  # where --help has not ended the process
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(f"{name} ended with {status}")
"""


def setup_module_of_root():
    spec = importlib.util.spec_from_file_location("gridgrad_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rewritten = setup_module_of_root().rewritten


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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from nn import Linear", "from gridgrad.nn import Linear"),
        ("from nn.conv import (\n    a,\n    b as c,\n)", "from gridgrad.nn.conv import (\n    a,\n    b as c,\n)"),
        ("from \\\n  nn.conv import a", "from \\\n  gridgrad.nn.conv import a"),
        ("x = 'é'; from nn import a  # é", "x = 'é'; from gridgrad.nn import a  # é"),
        ("import nn.conv as c", "import gridgrad.nn.conv as c"),
        ("import datasets", "import gridgrad.datasets as datasets"),
        ("import nn.conv", "import gridgrad.nn.conv, gridgrad.nn as nn"),
        ("import os, nn, sys", "import os, gridgrad.nn as nn, sys"),
        ("def f():\n    import parallel", "def f():\n    import gridgrad.parallel as parallel"),
        ("if x:\n\tfrom experiments import *", "if x:\n\tfrom gridgrad.experiments import *"),
    ],
)
def test_an_import_of_ours_is_rewritten(before, after):
    assert rewritten(before.encode()).decode() == after


@pytest.mark.parametrize(
    "source",
    [
        "from . import nn",
        "from .nn import conv",
        "from torch import nn",
        "import torch.nn as nn",
        "import nnx, datasets_of_mine.nn",
        "from datasets2 import nn",
        "'''from nn import Linear'''\nx = 'import datasets'  # from nn import Linear",
        "",
    ],
)
def test_all_else_stays_as_it_is(source):
    assert rewritten(source.encode()).decode() == source


def test_a_rewritten_import_binds_the_same_names(tmp_path, monkeypatch):
    for folder in ("nn", "gridgrad/nn"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").write_text("")
        (tmp_path / folder / "conv.py").write_text("here = __name__\n")
    source = "import nn.conv, nn.conv as c\nfrom nn.conv import here as h\nfound = [nn.conv.here, c.here, h]\n"
    monkeypatch.chdir(tmp_path)
    for text, name in ((source, "nn.conv"), (rewritten(source.encode()).decode(), "gridgrad.nn.conv")):
        assert python("-c", f"{text}print(*found)").stdout.split() == [name] * 3


def test_the_package_has_every_file_with_its_lines_and_takes_one_name(site):
    installed = {path.name for path in site.iterdir()} - {*FOLDERS, "bin", "__pycache__"}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert installed == {"gridgrad", f"gridgrad-{version}.dist-info"}
    assert (site / f"gridgrad-{version}.dist-info" / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    ours = {path.relative_to(ROOT): path for name in FOLDERS for path in (ROOT / name).rglob("*.*") if path.suffix != ".pyc"}
    assert {Path("datasets/airfoil_self_noise.dat"), Path("experiments/settings/speedup.toml")} <= ours.keys()
    for relative, path in ours.items():
        there = (site / "gridgrad" / relative).read_bytes()
        assert there == (rewritten(path.read_bytes()) if path.suffix == ".py" else path.read_bytes()), relative
        assert there.count(b"\n") == path.read_bytes().count(b"\n")
    files = {path.relative_to(site / "gridgrad") for path in (site / "gridgrad").rglob("*.*") if path.suffix != ".pyc"}
    assert files == {*ours, Path("__init__.py"), Path("__main__.py")}


def test_no_module_of_the_package_imports_or_starts_one_of_a_folder(site):
    for path in (site / "gridgrad").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            words = [ast.unparse(word).strip("f'\"") for word in getattr(node, "elts", ())]
            started = [word for before, word in pairwise(words) if before == "-m" and word.startswith("experiments.")]
            assert not started, f"{path}, line {node.lineno}: as_module of experiments.common.programs names programs"
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & {*FOLDERS}, f"{path}, line {node.lineno}"


def test_others_keep_the_names_of_our_folders(outside):
    finished = python("-c", IMPORT)
    assert finished.returncode == 0, finished.stderr
    count, *taken = finished.stdout.split()
    assert int(count) > 300 and taken == []


@pytest.mark.mpi
def test_the_package_trains_as_the_folder_does(outside, monkeypatch):
    alone, two = [*TRAIN, "--report"], [*TRAIN, "--grid", "model=2", "--report"]
    for words in (["train", *alone, "alone.json"], ["launch", "2", "train", *two, "launched.json"]):
        finished = python("-m", "gridgrad", *words)
        assert (finished.returncode, finished.stderr) == (0, "")
    finished = mpiexec(2, ["-m", "gridgrad.experiments.train", *two, "module.json"], 60)
    assert (finished.status, finished.stderr) == (0, "")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for ranks, options, names in ((1, alone, ["alone"]), (2, two, ["launched", "module"])):
        finished = folder_job(ranks, "experiments.train", *options, "folder.json")
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
    assert finished.stdout.splitlines() == ["a module of the user"] * 2, finished.stderr


def test_the_command_lists_all_programs(site, outside):
    listed = subprocess.run([site / "bin" / "gridgrad"], capture_output=True, text=True, timeout=60)
    assert (listed.returncode, listed.stderr) == (0, "")
    lines = [line.strip() for line in listed.stdout.splitlines() if line.startswith("  ")]
    assert [line.partition(" ")[0] for line in lines if not line.startswith("gridgrad ")] == list(programs())
    assert all(len(line) < 110 for line in listed.stdout.splitlines())


@pytest.mark.long
def test_each_program_says_its_options(outside):
    finished = python("-c", HELPS)
    assert finished.returncode == 0 and finished.stderr == ""
    for name in programs():
        assert f"usage: {name} " in finished.stdout and f"\n{name} ended with 0\n" in finished.stdout, name
    assert "experiments." not in finished.stdout


@pytest.mark.parametrize("name", ["trian", "common.options", "common.programs", "../train", "papers", "__main__", ""])
def test_what_is_no_program_has_no_source(name):
    assert source(name) == ""


@pytest.mark.mpi
def test_what_is_no_program_is_refused_once(outside):
    finished = python("-m", "gridgrad", "trian")
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == "gridgrad: error: there is no program trian (see --help)\n"
    ranks = mpiexec(2, ["-m", "gridgrad", "trian"], 60)
    assert ranks.status == 2 and ranks.stderr.count(finished.stderr) == 1


def test_the_version_is_that_of_the_settings(outside):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert python("-c", "import gridgrad; print(gridgrad.__version__)").stdout == f"{version}\n"
    assert python("-m", "gridgrad", "--version").stdout == f"gridgrad {version}\n"


def test_an_editable_installation_is_refused(tmp_path):
    finished = pip("--target", tmp_path, "--editable", ROOT)
    assert finished.returncode == 1
    assert "To change its sources, run the programs from this folder" in finished.stdout + finished.stderr
