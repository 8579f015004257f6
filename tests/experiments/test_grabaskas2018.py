"""`reproduce grabaskas2018`: what the thesis prints, which runs belong to it, and the job that runs them, small."""

import json
import math

import pytest

from gridgrad import datasets
from gridgrad.experiments.papers.cited import DERIVED, published
from gridgrad.experiments.papers.grabaskas2018 import experiments as paper
from gridgrad.experiments.papers.grabaskas2018 import items as of_items
from gridgrad.experiments.papers.grabaskas2018 import usability
from gridgrad.experiments.papers.grabaskas2018.derived import overhead, twins
from gridgrad.experiments.papers.grabaskas2018.runs import (
    CNNS,
    PAPER,
    AppendixLine,
    GrabaskasRun,
    gathered,
    lines,
    runs,
    runs_of,
    to_measure,
)
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.prediction.machine import read
from tests.experiments.made_up_runs import measured
from tests.experiments.programs import job, program


def test_the_numbers_of_the_thesis_are_all_there():
    assert [len([ref for ref in lines() if ref[0] == appendix]) for appendix in "CD"] == [67, 41]
    for line in lines().values():
        if line.nodes > 1 and isinstance(line.single.seconds, float):
            expected = 100 * line.single.seconds / line.seconds / line.nodes
            assert line.cited("efficiency").value == pytest.approx(expected, abs=0.0051), line.ref
    tables = published(PAPER).tables
    for program_, (table, _) in usability.PROGRAMS.items():  # its lines of code add up to its totals
        rows = tables[table].lines()
        totals = [tables["totals"].cited(name, program_).value for name in ("N1", "N2")]
        assert totals == [sum(row[kind] for row in rows) for kind in ("operators", "operands")]
    assert lines()["C.4"].samples == 16_000 and lines()["C.7"].samples == 32_000 and lines()["C.7"].passes == 5
    assert lines()["C.40"].cited("efficiency", "Table 4.14").place == "Table 4.14; Appendix C"
    assert lines()["C.36"].cited("efficiency") is None and lines()["D.91"].cited("efficiency").value == "#VALUE!"


def test_what_is_derived_is_computed_by_its_formula():
    assert usability.effort_of_totals("Manual SGD Train()").value == pytest.approx(34917, abs=1)
    assert usability.complexity("Manual Backward()").value == 12 * 12 * 30  # lines, calls, operands of Table 4.9
    assert usability.complexity("Automated Backward()").value == 2 * 2 * 19
    assert usability.our_complexity("data") == 2 * 1 * 7
    assert overhead(lines()["C.37"]).value == pytest.approx((215.147 - 168.685 / 2) / 300)
    assert len(twins()) == 26 and all(auto.version == "auto" and manual.version == "manual" for auto, manual in twins())
    for item in of_items.items(paper.tables({})):
        for row in item.rows:
            if row.cited and row.cited.kind == DERIVED:
                assert row.cited.formula.value(*row.cited.inputs) == row.cited.value, (item.name, row.label)


def test_the_nets_are_those_of_appendix_b():
    size = lambda spec, shape: network_names.build(spec, shape, 10).size  # noqa: E731
    assert size("mlp2", 1024) == size(lines()["D.94"].net, 1024) == 2_119_690
    assert size("mlp3", 1024) == size(lines()["D.97"].net, 1024) == 4_207_626
    assert size("mnist-cnn", (32, 32, 1)) == size("mnist-cnn", (28, 28, 1)) == 169_506
    assert size("cifar-cnn", (32, 32, 3)) == 114_838
    assert lines()["D.82"].net == "mlp:8192,8192,tanh" and lines()["D.106"].net == "mnist-cnn"


def test_lines_that_are_one_to_us_share_a_run():
    whole = lambda ref: lines()[ref].run(whole=True)  # noqa: E731
    assert whole("C.40") == whole("C.48") and whole("C.40").test  # auto and manual
    assert len({whole(f"C.{i}") for i in (33, 34, 35, 36)}) == 1  # n on one node
    short = lambda ref: lines()[ref].run(whole=False)  # noqa: E731
    assert short("D.71") == short("D.84")  # CPU and GPU
    assert lines()["D.101"].single.ref == "D.97" and lines()["C.10"].single.ref == "C.2"
    backward = whole("C.59")
    assert (backward.batch_size, backward.lr, backward.grid, backward.steps) == (400, pytest.approx(0.04), "batch=4", 150)
    local = short("C.42")
    assert local.period == 1000 and local.samples == 4 * local.steps == 8000 and not local.test
    assert short("D.101").plan == "in,redundant,in"  # a layer that is not split is computed by every node


@pytest.mark.parametrize("full", [False, True])
def test_a_line_and_its_single_node_are_measured_alike(full):
    wanted = set(runs([1, 2, 4], full))
    for line in lines().values():
        kinds = [whole for whole in (True, False) if line.run(whole) in wanted]
        assert kinds and all(line.single.run(whole) in wanted for whole in kinds), line.ref
    assert not full or all(run.test or run.read for run in wanted)
    assert {run.nodes for run in runs([1, 2])} == {1, 2}
    assert len(runs_of([lines()["C.40"], lines()["C.48"], lines()["C.36"]])) == 4  # two trainings, and two readings


def test_a_short_measurement_is_of_few_runs(monkeypatch):
    monkeypatch.setattr(datasets, "prepare", lambda *_: None)
    few, all_of = (to_measure(size, [1, 2], None) for size in ("short", "usual"))
    assert {part.name for part in few} < {part.name for part in all_of}
    assert sum(part.seconds for part in few) < 100


def test_tables_from_a_measurement(tmp_path, monkeypatch):
    found = measured(wanted=runs([1, 2, 4]))
    monkeypatch.setattr(paper, "predicted_step_seconds", lambda *_, single_seconds, **__: single_seconds / 2)
    tables = paper.tables({"runs": found, "machine": "a machine"})
    rows = {row["ref"]: row for row in tables["Appendix C"] + tables["Appendix D"]}
    assert rows["C.40"]["efficiency, measured"] == pytest.approx(100) and rows["C.40"]["how"] == "whole"
    assert rows["C.40"]["s, predicted"] == pytest.approx(174.365 / 2)
    assert rows["C.40"]["efficiency, predicted"] == pytest.approx(100)
    assert rows["C.44"]["efficiency, measured"] is None and rows["C.44"]["how"].endswith("oversubscribed")
    assert rows["D.72"]["s, measured"] == pytest.approx(10_000 / 158) and rows["D.72"]["how"] == "scaled from 158 steps"
    assert rows["D.91"]["efficiency, published"] == "#VALUE!" and rows["D.91"]["s, predicted"] is None
    assert rows["C.21"]["pre-processing, measured"] == 1.0
    assert (rows["C.21"]["s, published"], tables["4.19"][1]["speedup, published"]) == (185.40, 1.49)
    text = paper.as_markdown(tables)
    assert all(f"## {name}" in text for name in ("Table 4.13", "Table 4.19", "Table 4.23", "Appendix D"))
    (tmp_path / "tables.json").write_text(json.dumps(tables))
    finished = program("reproduce", "grabaskas2018", "--tables-only", "--out", tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "a machine" in (tmp_path / "tables.md").read_text()
    assert json.loads((tmp_path / "tables.json").read_text())["runs"] == found


def test_an_efficiency_is_of_two_runs_of_a_kind():
    line = lines()["D.98"]
    of = lambda *some: paper.training(line, {run.key: one for run, one in some})  # noqa: E731
    result = lambda seconds, **more: {"seconds": seconds, "oversubscribed": False} | more  # noqa: E731
    whole, short = line.run(whole=True), line.run(whole=False)
    alone, alone_short = line.single.run(whole=True), line.single.run(whole=False)
    mixed = of((short, result(1.0)), (alone, result(20.0, accuracy=77.0)))
    assert mixed["efficiency, measured"] is None and mixed["s, measured"] == pytest.approx(2000 / 237)
    scaled = of((short, result(1.0)), (alone, result(20.0)), (alone_short, result(1.5)))
    assert scaled["efficiency, measured"] == pytest.approx(75)
    both = of((short, result(1.0)), (whole, result(16.0, accuracy=77.5)), (alone, result(20.0)), (alone_short, result(1.5)))
    assert both["efficiency, measured"] == pytest.approx(62.5)
    assert (both["s, measured"], both["accuracy, measured"], both["how"]) == (16.0, 77.5, "whole")
    untimed = of((whole, {"accuracy": 77.5, "oversubscribed": False}), (short, result(1.0)), (alone_short, result(1.5)))
    assert untimed["accuracy, measured"] == 77.5 and untimed["efficiency, measured"] == pytest.approx(75)
    assert untimed["how"] == "scaled from 237 steps, the accuracy of a whole run"


def test_runs_of_several_processors_are_refused():
    found = measured(wanted=runs_of([lines()["C.56"]]))
    assert gathered(found)["machine"].endswith("cores of a processor")
    next(iter(found.values()))["processor"] = "another one"
    for use in (gathered, lambda runs: paper.tables({"runs": runs, "machine": "both"})):
        with pytest.raises(ValueError, match="several processors, a processor and another one: measure all of them on one"):
            use(found)


def test_a_prediction_is_of_the_network_and_the_single_node():
    machine = read(paper.MACHINE)
    training = "mnist-cnn", (32, 32, 1), 10, 200
    step = lambda grid, seconds: paper.predicted_step_seconds(*training, grid, "fewest-bytes", machine, seconds)  # noqa: E731
    assert step("batch=1", 3.0) == pytest.approx(3.0)
    sent = step("batch=2", 0.0)  # 169,506 gradients of 4 bytes at 118 MB/s
    assert sent == pytest.approx(169_506 * 4 / 118e6, rel=0.2)
    assert step("batch=2", 3.0) - sent == pytest.approx(1.5, rel=0.02)


def test_layers_that_every_node_computes_are_predicted_so():
    """The fewer layers are split, the less is sent, and the more is computed; no gradients are."""
    seconds = {ref: paper.predicted(lines()[ref]) for ref in ("D.98", "D.101", "D.104")}
    assert max(seconds.values()) < lines()["D.101"].seconds
    sent = {ref: paper.predicted_step_seconds(line.net, 1024, 10, 1, line.grid, line.plan, read(paper.MACHINE), 0.0)
            for ref in seconds for line in [lines()[ref]]}  # fmt: skip
    assert sent["D.104"] < min(sent["D.98"], sent["D.101"])


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
    for method in methods:
        whole = method == "Train()"
        line = AppendixLine("X.1", method=method, **common, net=CNNS[name], seconds=1.0, n=10)
        run = GrabaskasRun(name, 2, 40, read=True) if method == "read" else line.run(whole)
        result = run.start(None)
        assert result["seconds"] > 0 and result["samples"] == 40 and ("accuracy" in result) == whole
        assert result["processor"] and (method == "read" or math.isfinite(result["loss"]))


def test_what_does_not_fit_is_refused():
    for options in (
        ["--dataset", "mnist"],
        ["--dataset", "mnist", "--net", "mlp3", "--period", "3", "--batch-size", "2"],
        ["--dataset", "airfoil", "--net", "mlp2"],
    ):
        finished = job(1, "gridgrad.experiments.papers.grabaskas2018.job", *options)
        assert finished.status == 2 and finished.stderr.count("\n") == 1, finished.stderr
