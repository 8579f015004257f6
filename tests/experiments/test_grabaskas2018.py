"""`reproduce grabaskas2018`: what was published, which runs belong to it, and the job that runs them, small."""

import json
import math

import pytest

from gridgrad import datasets
from gridgrad.experiments.papers import grabaskas2018, grabaskas2018_runs
from gridgrad.experiments.papers.grabaskas2018_runs import Line, Run, lines, published, runs, single
from gridgrad.nn import network_names
from gridgrad.parallel.performance.machine import read
from tests.experiments.programs import job, program


def test_what_was_published_agrees_with_itself():
    assert [len([ref for ref in lines() if ref[0] == appendix]) for appendix in "CD"] == [67, 41]
    for line in lines().values():
        one = single(line)
        if line.nodes > 1 and isinstance(one.seconds, float):
            assert line.efficiency == pytest.approx(100 * one.seconds / line.seconds / line.nodes, abs=0.02), line.ref
    accuracies = {nodes: set() for nodes in (1, 2, 4)}
    for line in lines().values():
        if (line.dataset, line.method) == ("mnist", "Train()"):
            accuracies[line.nodes].add(line.accuracy)
    assert accuracies == {1: {98.27}, 2: {98.03}, 4: {97.40}}  # as the notes say: n changes nothing
    efforts = {name: effort for name, effort, _ in published()["table_4_13"]}
    effort = lambda n1, n2, N1, N2: (N1 + N2) * math.log2(n1 + n2) * n1 / 2 * N2 / n2  # noqa: E731
    assert effort(26, 14, 65, 30) == pytest.approx(efforts["Manual Backward()"], rel=1e-3)
    assert effort(7, 11, 21, 19) == pytest.approx(efforts["Automated SGD Train()"], rel=1e-3)
    assert round(effort(29, 21, 104, 56)) == 34917


def test_the_nets_are_those_of_appendix_b():
    size = lambda spec, shape: network_names.build(spec, shape, 10).size  # noqa: E731
    assert size("mlp2", 1024) == size(lines()["D.94"].net, 1024) == 2_119_690
    assert size("mlp3", 1024) == size(lines()["D.97"].net, 1024) == 4_207_626
    assert size("mnist-cnn", (32, 32, 1)) == size("mnist-cnn", (28, 28, 1)) == 169_506
    assert size("cifar-cnn", (32, 32, 3)) == 114_838
    assert lines()["D.82"].net == "mlp:8192,8192,tanh" and lines()["D.106"].net == "mnist-cnn"


def test_lines_that_are_one_to_us_share_a_run():
    assert lines()["C.40"].run() == lines()["C.48"].run() and lines()["C.40"].run().test  # auto and manual
    assert len({lines()[f"C.{i}"].run() for i in (33, 34, 35, 36)}) == 1  # n on one node
    assert lines()["D.71"].run() == lines()["D.84"].run()  # CPU and GPU
    assert single(lines()["D.101"]).ref == "D.97" and single(lines()["C.10"]).ref == "C.2"
    backward = lines()["C.59"].run()
    assert (backward.batch_size, backward.lr, backward.grid, backward.steps) == (400, pytest.approx(0.04), "batch=4", 150)
    local = lines()["C.42"].run()
    assert local.period == 1000 and local.samples == 4 * local.steps == 8000 and not local.test
    assert all(run.test or run.read for run in runs([1, 2, 4], full=True)) and {run.nodes for run in runs([1, 2])} == {1, 2}


def test_tables_from_a_measurement(tmp_path, monkeypatch):
    found = {run.key: {"seconds": 2.0 / run.nodes, "oversubscribed": run.nodes > 2} for run in runs([1, 2, 4])}
    monkeypatch.setattr(grabaskas2018, "predicted_step_seconds", lambda *_, single_seconds, **__: single_seconds / 2)
    measured = {"runs": found, "machine": "a machine", "full": False}
    tables = grabaskas2018.tables(measured)
    rows = {row["ref"]: row for row in tables["Appendix C"] + tables["Appendix D"]}
    assert rows["C.40"]["efficiency, measured"] == pytest.approx(100) and rows["C.40"]["how"] == "whole"
    assert rows["C.40"]["s, predicted"] == pytest.approx(174.365 / 2) and rows["C.40"][
        "efficiency, predicted"
    ] == pytest.approx(100)
    assert rows["C.44"]["efficiency, measured"] is None and rows["C.44"]["how"].endswith("oversubscribed")
    assert rows["D.72"]["s, measured"] == pytest.approx(10_000 / 158) and rows["D.72"]["how"] == "scaled from 158 steps"
    assert rows["D.91"]["efficiency, published"] == "#VALUE!" and rows["D.91"]["s, predicted"] is None
    assert rows["C.21"]["pre-processing, measured"] == 1.0
    text = grabaskas2018.as_markdown(tables)
    assert all(f"## {name}" in text for name in ("Table 4.13", "Table 4.19", "Table 4.23", "Appendix D"))
    (tmp_path / "tables.json").write_text(json.dumps(tables))
    finished = program("reproduce", "grabaskas2018", "--tables-only", "--out", tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "a machine" in (tmp_path / "tables.md").read_text()
    assert json.loads((tmp_path / "tables.json").read_text())["runs"] == found


def test_a_prediction_is_of_the_network_and_the_single_node():
    machine = read(grabaskas2018.MACHINE)
    job = "mnist-cnn", (32, 32, 1), 10, 200
    step = lambda grid, seconds: grabaskas2018.predicted_step_seconds(*job, grid, "fewest-bytes", machine, seconds)  # noqa: E731
    assert step("batch=1", 3.0) == pytest.approx(3.0)
    sent = step("batch=2", 0.0)  # 169,506 gradients of 4 bytes at 118 MB/s
    assert sent == pytest.approx(169_506 * 4 / 118e6, rel=0.2)
    assert step("batch=2", 3.0) - sent == pytest.approx(1.5, rel=0.02)


def test_tables_without_a_measurement(tmp_path):
    finished = program("reproduce", "grabaskas2018", "--tables-only", "--json", tmp_path / "t.json", "--out", tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "Nothing measured yet" in finished.stdout and not (tmp_path / "tables.md").exists()
    assert json.loads((tmp_path / "t.json").read_text())["4.14"][0]["s, published"] == 174.365


@pytest.mark.parametrize("name, methods", [("mnist", ["Train()", "model"]), ("cifar10", ["Backward()", "read"])])
def test_runs_on_two_ranks(name, methods):
    try:
        datasets.load(name)
    except (OSError, ValueError):
        pytest.skip(f"no {name} that was converted: set GRIDGRAD_DATA, and train on it once")
    common = {"dataset": name, "device": "CPU", "version": "auto", "nodes": 2, "passes": 1, "samples": 40}
    numbers = {"seconds": 1.0, "accuracy": 1.0, "efficiency": 1.0, "net": grabaskas2018_runs.CNNS[name], "n": 10}
    for method in methods:
        whole = method == "Train()"
        run = Run(name, 2, 40, read=True) if method == "read" else Line("X.1", method=method, **common, **numbers).run(whole)
        result = run.start(None)
        assert result["seconds"] > 0 and result["samples"] == 40 and ("accuracy" in result) == whole
        assert method == "read" or math.isfinite(result["loss"])


def test_what_does_not_fit_is_refused():
    for options in (
        ["--dataset", "mnist"],
        ["--dataset", "mnist", "--net", "mlp3", "--period", "3", "--batch-size", "2"],
        ["--dataset", "airfoil", "--net", "mlp2"],
    ):
        finished = job(1, "gridgrad.experiments.papers.grabaskas2018_job", *options)
        assert finished.status == 2 and finished.stderr.count("\n") == 1, finished.stderr
