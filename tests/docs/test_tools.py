"""What docs/tools has for other tools: the test of ReFrame and the file of JUBE run, the package of Spack is well-formed."""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from gridgrad.experiments.scaling import export, tidy
from gridgrad.experiments.scaling.records import lines as lines_of
from tests.docs.pages import ROOT
from tests.experiments.scaling import made_up_studies as made_up

TOOLS = ROOT / "docs" / "tools"
REFRAME = shutil.which("reframe", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
JUBE = shutil.which("jube")
SHORT = {"steps": "6", "repeats": "1", "net": "mlp:8,relu"}


def run(words, folder):
    """A command in a folder of its own, with the command gridgrad of this environment."""
    beside = folder / "bin"
    beside.mkdir(exist_ok=True)
    if not (beside / "gridgrad").exists():
        (beside / "gridgrad").write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m gridgrad "$@"\n')
        (beside / "gridgrad").chmod(0o755)
    path = os.pathsep.join([str(beside), str(Path(sys.executable).parent), os.environ["PATH"]])
    there = os.environ | {"PATH": path, "TMPDIR": str(folder), "HOME": str(folder)}  # where the tools write their logs
    return subprocess.run(words, cwd=folder, env=there, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def reframe(folder, **variables):
    """The output of ReFrame's run of the test, with these variables instead of its own."""
    options = [word for name, value in variables.items() for word in ("-S", f"{name}={value}")]
    words = [REFRAME, "--nocolor", "-c", TOOLS / "scaling_reframe.py", *options, "-n", "%series=batch", "-r"]
    return run(words, folder)


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.skipif(not REFRAME, reason="ReFrame is not installed: pip install reframe-hpc")
def test_the_test_of_reframe_passes_and_fails(tmp_path):
    good = reframe(tmp_path, **SHORT)
    assert "PASSED" in good.stdout and "Ran 1/1 test case(s)" in good.stdout and good.returncode == 0, good.stdout + good.stderr
    assert re.findall(r"P: (sent_on_\d): (\S+) bytes", good.stdout) == [("sent_on_1", "0"), ("sent_on_2", "408.0")]
    bad = reframe(tmp_path, **SHORT | {"net": "mlp:none"})
    assert "FAILED" in bad.stdout and bad.returncode == 1, bad.stdout + bad.stderr


def jube(folder, **parameters):
    """JUBE's run of the file, with these parameters instead of its own: (its output, the rows of its result)."""
    tree = ElementTree.parse(TOOLS / "scaling_jube.xml")
    for parameter in tree.iter("parameter"):
        parameter.text = parameters.get(parameter.get("name"), parameter.text)
    tree.write(folder / "study.xml")
    ran = run([JUBE, "run", "-e", "study.xml", "-o", "jube_runs"], folder)
    return ran, run([JUBE, "result", "jube_runs"], folder).stdout.strip().splitlines()


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.skipif(not JUBE, reason="JUBE is not installed: apt install jube")
def test_jube_runs_the_file_and_finds_the_times(tmp_path):
    ran, (head, *lines) = jube(tmp_path, **SHORT, series="batch")
    assert ran.returncode == 0 and head == "series,ranks,runs,ms_a_step[ms]", ran.stdout + ran.stderr
    assert [line.split(",")[:3] for line in lines] == [["batch", "1", "1"], ["batch", "2", "1"]]
    assert all(float(line.split(",")[3]) > 0 for line in lines)
    failed, _ = jube(tmp_path, **SHORT | {"net": "mlp:none"}, series="batch", ranks="1")
    assert failed.returncode != 0, failed.stdout


def test_the_package_of_spack_needs_what_the_project_needs():
    repository = TOOLS / "spack_repo" / "gridgrad"
    assert re.fullmatch(r"repo:\n  namespace: gridgrad\n  api: v2\.0\n", (repository / "repo.yaml").read_text())
    tree = ast.parse((repository / "packages" / "py_gridgrad" / "package.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    said = {
        name: [call.args[0].value for call in calls if call.func.id == name] for name in ("depends_on", "version", "license")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {f"py-{word.replace('>=', '@')}:" for word in project["project"]["dependencies"]}
    needed |= {f"py-{word.replace('>=', '@')}:" for word in project["build-system"]["requires"]}
    needed |= {"mpi", f"python@{project['project']['requires-python'].removeprefix('>=')}:"}
    assert set(said["depends_on"]) == needed
    assert said["version"] == [project["project"]["version"]] and said["license"] == [project["project"]["license"]]
    [package] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert package.name == "PyGridgrad" and ast.get_docstring(package).rstrip(".") == project["project"]["description"]


def test_the_extra_has_no_package_that_excludes_the_numpy_of_the_project():
    """Extra-P wants NumPy 1: where it is in the extra, nothing can install both."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["tools"]
    names = {re.match(r"[\w-]+", word).group() for word in extra}
    assert names == {"llnl-hatchet", "llnl-thicket", "pyarrow", "reframe-hpc"}


def records():
    """Runs of a made-up study with profiles."""
    layers = [{"layer": "0", "kind": "Linear", "forward": 1e-4, "gradients": 2e-4, "input_gradient": 0.0, "backward": 0.0}]
    return [one | {"layers": layers} for one in made_up.records(schemes=["batch"], ranks=[1, 2], repeats=2)]


def missing(*names):
    """The mark of a test that needs these modules, by the packages that have them."""
    absent = [package for module, package in names if importlib.util.find_spec(module) is None]
    return pytest.mark.skipif(bool(absent), reason=f"not installed: pip install {' '.join(absent)}")


@missing(("thicket", "llnl-thicket"))
def test_a_thicket_of_all_runs(tmp_path):
    trees = tmp_path / "trees.json"
    trees.write_text(json.dumps(export.trees(records())))
    printed = run([sys.executable, TOOLS / "thickets.py", trees], tmp_path)
    lines = [re.split(r"\s{2,}", line) for line in printed.stdout.splitlines()]
    times = {name: [*map(float, values)] for name, *values in lines if len(values) == 2 and "=" not in values[0] and values[0]}
    assert times["step"] == [10, 5] and times["compute > Linear 0"] == [0.3, 0.3], printed.stdout + printed.stderr


@missing(("pandas", "pandas"), ("pyarrow", "pyarrow"))
def test_the_table_as_parquet(tmp_path):
    import pandas

    runs, out = tmp_path / "s.jsonl", tmp_path / "s.parquet"
    runs.write_text(lines_of(records()))
    printed = run([sys.executable, TOOLS / "parquet.py", runs, out], tmp_path)
    assert printed.stdout == f"4 rows written to {out}\n", printed.stderr
    frame = pandas.read_parquet(out)
    kinds = {"ranks": "Int64", "predicted": "boolean", "network": "string", "step_s": "Float64", "hosts": "object"}
    assert {name: str(frame.dtypes[name]) for name in kinds} == kinds and len(frame.columns) == len(tidy.table(records())[0])
    assert list(frame["ranks"]) == [1, 1, 2, 2] and frame["failed"].isna().all()
