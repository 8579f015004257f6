"""`reproduce grabaskas2018`: what the thesis prints, which runs belong to it, the job that runs them, small, and its claims."""

import json
import math
from functools import lru_cache
from pathlib import Path

import pytest

from gridgrad import datasets
from gridgrad.experiments.papers import grabaskas2018 as paper
from gridgrad.experiments.papers import grabaskas2018_automated as automated
from gridgrad.experiments.papers import grabaskas2018_items as of_items
from gridgrad.experiments.papers import grabaskas2018_usability as usability
from gridgrad.experiments.papers.cited import DERIVED, PRINTED, published
from gridgrad.experiments.papers.claims import DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.grabaskas2018_derived import overhead, twins
from gridgrad.experiments.papers.grabaskas2018_runs import CNNS, PAPER, Line, Run, gathered, lines, runs, runs_of, to_measure
from gridgrad.experiments.papers.items import ALONE, BESIDE
from gridgrad.nn import network_names
from gridgrad.parallel.performance.machine import read
from tests.experiments.programs import job, program

KEPT = Path("results/grabaskas2018/tables.json")


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
    for item in of_items.items(not_measured()):
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


def measured(seconds=lambda run: 2.0 / run.nodes, accuracy=lambda run: 50.0, wanted=None):
    """Made-up results of runs: those of a full measurement on 1 and 2 nodes, by default."""
    found = {}
    for run in wanted if wanted is not None else runs([1, 2], full=True):
        found[run.key] = {"seconds": seconds(run), "oversubscribed": run.nodes > 2, "processor": "a processor"}
        found[run.key] |= {"accuracy": accuracy(run)} if run.test else {}
    return found


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
        line = Line("X.1", method=method, **common, net=CNNS[name], seconds=1.0, n=10)
        run = Run(name, 2, 40, read=True) if method == "read" else line.run(whole)
        result = run.start(None)
        assert result["seconds"] > 0 and result["samples"] == 40 and ("accuracy" in result) == whole
        assert result["processor"] and (method == "read" or math.isfinite(result["loss"]))


def test_what_does_not_fit_is_refused():
    for options in (
        ["--dataset", "mnist"],
        ["--dataset", "mnist", "--net", "mlp3", "--period", "3", "--batch-size", "2"],
        ["--dataset", "airfoil", "--net", "mlp2"],
    ):
        finished = job(1, "gridgrad.experiments.papers.grabaskas2018_job", *options)
        assert finished.status == 2 and finished.stderr.count("\n") == 1, finished.stderr


# ----- items and claims


def verdicts(found=None):
    """{name of a claim: its verdict} for made-up runs."""
    tables = paper.tables({"runs": found, "machine": "a machine"}) if found else not_measured()
    return {claim.name: claim.verdict for claim in of_items.claims(tables)}


@lru_cache
def not_measured():
    return paper.tables({})


def test_every_item_and_claim_is_there_without_and_with_kept_results():
    for tables in (not_measured(), paper.tables(json.loads(KEPT.read_text()))):
        found = of_items.claims(tables)
        assert len(found) == len(published(PAPER).claims) and 0 < sum(claim.main for claim in found) <= 8
        items = of_items.items(tables)
        assert len({item.name for item in items}) == len(items) and all(item.rows for item in items)
        for item in items:
            assert len({row.label for row in item.rows}) == len(item.rows), item.name
            assert {row.cited.kind for row in item.rows if row.cited} <= {PRINTED, DERIVED}
    statuses = {item.name: item.status for item in items}
    assert {statuses[f"Table {name}"] for name in paper.TABLES if name[0] == "4"} == {BESIDE} and ALONE not in statuses.values()


def test_what_is_measured_decides_both_ways():
    no = verdicts()
    assert {no[name] for name in ("mnist_efficiency", "mnist_loss", "part_of_data", "gpu_nodes", "growing")} == {OPEN}
    as_printed = verdicts(measured(seconds=like_the_thesis, accuracy=accuracies))
    other = verdicts(measured(seconds=lambda run: 1.0 / run.nodes**0.5, accuracy=lambda run: 50.0 + 20 * (run.nodes == 2)))
    decided = ("mnist_efficiency", "mnist_loss", "cifar_loss", "part_of_data", "batch_time", "gpu_nodes", "growing", "cnn",
               "preprocessing", "preprocessing_mnist", "preprocessing_times")  # fmt: skip
    assert {name: as_printed[name] for name in decided} == dict.fromkeys(decided, HOLDS)
    assert {name: other[name] for name in ("mnist_efficiency", "mnist_loss", "gpu_nodes", "cnn")} == dict.fromkeys(
        ("mnist_efficiency", "mnist_loss", "gpu_nodes", "cnn"), DIFFERS
    )
    assert (other["shorter"], as_printed["shorter"]) == (HOLDS, DIFFERS)
    assert as_printed["cifar_efficiency"] == other["cifar_efficiency"] == OPEN  # there is no such GPU
    tables = paper.tables({"runs": measured(accuracy=lambda run: 70.0 + run.nodes), "machine": "a machine"})
    numbers = next(claim.finding.numbers for claim in of_items.claims(tables) if claim.name == "model_accuracy")
    assert numbers.endswith("here 1.00 points at most in 16 lines")


def like_the_thesis(run):
    """Seconds of a run as the thesis prints them; the CNN is the faster network on 2 nodes too."""
    if run.read:
        return {("mnist", 1): 1.0, ("mnist", 2): 1.25, ("cifar10", 1): 37.0, ("cifar10", 2): 25.0}[run.dataset, run.nodes]
    if run.nodes == 2 and run.net == "mnist-cnn" and run.grid == "model=2":
        return 7.0
    printed = [line.seconds for line in lines().values() if line.run(whole=True) == run]
    return next((seconds for seconds in printed if isinstance(seconds, float)), 100.0)  # two have words instead


def accuracies(run):
    """Accuracies in percent that the thesis would call as its own."""
    if run.dataset == "cifar10":
        return {32_000: 47.71 - 5.34 * (run.nodes == 2), 16_000: 42.0, 8_000: 34.0}[run.samples]
    return 98.0 - 0.93 * (run.nodes == 2) - 10 * (run.net != "mnist-cnn")


def test_printed_numbers_that_contradict_each_other_are_named():
    found = verdicts()
    assert {found[name] for name in ("effort_sgd", "mean_efficiency", "loss_sign", "synchronised", "cifar_backward",
                                     "one_iteration", "same_overhead", "constant_overhead")} == {DIFFERS}  # fmt: skip
    assert {found[name] for name in ("speedups", "half_convolution", "easier_than_gpu")} == {HOLDS}


def study(same, chosen=0.9, net="mlp3", grid="model=2", processor="a processor"):
    """A made-up report of the study with one case."""
    ratio = lambda middle: {"median": middle, "lower": 0.98 * middle, "upper": 1.02 * middle}  # noqa: E731
    row = {"net": net, "grid": grid, "batch_size": 64, "ratio": {"the same": ratio(same), "chosen": ratio(chosen)}}
    return {"ranks": 2, "hosts": 1, "cores": 2, "oversubscribed": False, "link": "one machine", "rows": [row],
            "versions": {"processor": processor}}  # fmt: skip


def test_the_hypothesis_is_decided_by_the_slowest_case_of_the_thesis_networks(tmp_path, monkeypatch):
    kept = tmp_path / "automation.json"
    monkeypatch.setattr(automated, "RESULTS", kept)
    assert {verdicts()[name] for name in ("no_loss", "model_as_manual")} == {OPEN}
    for reports, expected in (
        ([study(1.01), study(1.5, net="airfoil")], (HOLDS, HOLDS)),
        ([study(1.01), study(1.2, net="cifar-cnn", grid="batch=2")], (DIFFERS, HOLDS)),
        ([study(1.3)], (DIFFERS, DIFFERS)),
        ([study(1.0, net="airfoil")], (OPEN, OPEN)),
    ):
        kept.write_text(json.dumps(reports))
        found = verdicts()
        assert (found["no_loss"], found["model_as_manual"]) == expected
    item = automated.item()
    assert item.status == ALONE or item.status == BESIDE
    assert [row.measured for row in item.rows if row.measured] == [1.0, 0.9] and item.processor == "a processor"
    kept.write_text(json.dumps([study(1.0), study(1.0, processor="another")]))
    with pytest.raises(ValueError, match="of several processors"):
        automated.item()
