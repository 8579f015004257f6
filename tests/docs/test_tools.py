"""What docs/tools has for other tools: the test of ReFrame and the file of JUBE run, the package of Spack is well-formed."""

import ast
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
    for net, words, status in ((SHORT["net"], "PASSED", 0), ("mlp:none", "FAILED", 1)):
        options = [word for name, value in (SHORT | {"net": net}).items() for word in ("-S", f"{name}={value}")]
        ran = run([REFRAME, "--nocolor", "-c", TOOLS / "scaling_reframe.py", *options, "-n", "%series=batch", "-r"], tmp_path)
        assert words in ran.stdout and ran.returncode == status, ran.stdout + ran.stderr


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.skipif(not JUBE, reason="JUBE is not installed: apt install jube")
def test_jube_runs_the_file_and_finds_the_times(tmp_path):
    tree = ElementTree.parse(TOOLS / "scaling_jube.xml")
    for parameter in tree.iter("parameter"):
        parameter.text = (SHORT | {"series": "batch"}).get(parameter.get("name"), parameter.text)
    tree.write(tmp_path / "study.xml")
    ran = run([JUBE, "run", "-e", "study.xml", "-o", "jube_runs"], tmp_path)
    head, *lines = run([JUBE, "result", "jube_runs"], tmp_path).stdout.strip().splitlines()
    assert ran.returncode == 0 and head == "series,ranks,runs,ms_a_step[ms]", ran.stdout + ran.stderr
    assert [line.split(",")[:3] for line in lines] == [["batch", "1", "1"], ["batch", "2", "1"]]


def test_the_package_of_spack_needs_what_the_project_needs():
    repository = TOOLS / "spack_repo" / "gridgrad"
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


def records():
    """Runs of a made-up study with profiles."""
    layers = [{"layer": "0", "kind": "Linear", "forward": 1e-4, "gradients": 2e-4, "input_gradient": 0.0, "backward": 0.0}]
    return [one | {"layers": layers} for one in made_up.records(schemes=["batch"], ranks=[1, 2], repeats=2)]


def test_a_thicket_of_all_runs(tmp_path):
    pytest.importorskip("thicket", reason="pip install llnl-thicket")
    trees = tmp_path / "trees.json"
    trees.write_text(json.dumps(export.trees(records())))
    printed = run([sys.executable, TOOLS / "thickets.py", trees], tmp_path)
    lines = [re.split(r"\s{2,}", line) for line in printed.stdout.splitlines()]
    times = {name: [*map(float, values)] for name, *values in lines if len(values) == 2 and "=" not in values[0] and values[0]}
    assert times["step"] == [10, 5] and times["compute > Linear 0"] == [0.3, 0.3], printed.stdout + printed.stderr


def test_the_table_as_parquet(tmp_path):
    pandas, _ = (pytest.importorskip(name, reason=f"pip install {name}") for name in ("pandas", "pyarrow"))
    runs, out = tmp_path / "s.jsonl", tmp_path / "s.parquet"
    runs.write_text(lines_of(records()))
    printed = run([sys.executable, TOOLS / "parquet.py", runs, out], tmp_path)
    assert printed.stdout == f"4 rows written to {out}\n", printed.stderr
    frame = pandas.read_parquet(out)
    assert len(frame.columns) == len(tidy.table(records())[0]) and list(frame["ranks"]) == [1, 1, 2, 2]
