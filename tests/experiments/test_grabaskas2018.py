"""`reproduce grabaskas2018`: what the thesis prints, which runs belong to it, and the job that runs them, small."""

import math

import pytest

from gridgrad import datasets
from gridgrad.experiments.papers import grabaskas2018 as module
from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.grabaskas2018_lines import (
    CNNS,
    AppendixLine,
    GrabaskasRun,
    gathered,
    lines,
    runs,
    runs_of,
    to_measure,
)
from gridgrad.experiments.papers.paper import paper_of
from gridgrad.nn.zoo import network_names
from tests.experiments.programs import job

PAPER = paper_of("grabaskas2018")


def measured(seconds=lambda run: 2.0 / run.nodes, accuracy=lambda run: 50.0, wanted=None):
    """Made-up results of runs: those of a full measurement on 1 and 2 nodes, by default."""
    found = {}
    for run in wanted if wanted is not None else runs([1, 2], full=True):
        found[run.key] = {"seconds": seconds(run), "oversubscribed": run.nodes > 2, "processor": "a processor"}
        found[run.key] |= {"accuracy": accuracy(run)} if run.test else {}
    return found


def test_the_numbers_of_the_thesis_are_all_there():
    assert [len([ref for ref in lines() if ref[0] == appendix]) for appendix in "CD"] == [67, 41]
    tables = PAPER.known.tables
    for program, (table, _) in module.PROGRAMS.items():  # its lines of code add up to its totals
        totals = [tables["totals"].cited(name, program).value for name in ("N1", "N2")]
        assert totals == [sum(row[kind] for row in tables[table].lines()) for kind in ("operators", "operands")]
    assert lines()["C.4"].samples == 16_000 and lines()["C.7"].samples == 32_000 and lines()["C.7"].passes == 5
    assert lines()["C.40"].cited("efficiency", "Table 4.14").place == "Table 4.14; Appendix C"
    assert module.effort_of_totals("Manual SGD Train()").value == pytest.approx(34917, abs=1)
    first, *_ = module.equation()
    assert first["printed"].value == 12 * 12 * 30  # lines, calls, operands of Table 4.9
    assert module.overhead("C.37").value == pytest.approx((215.147 - 168.685 / 2) / 300)


def test_the_nets_are_those_of_appendix_b():
    size = lambda spec, shape: network_names.build(spec, shape, 10).size  # noqa: E731
    assert size("mlp2", 1024) == size(lines()["D.94"].net, 1024) == 2_119_690
    assert size("mlp3", 1024) == size(lines()["D.97"].net, 1024) == 4_207_626
    assert size("mnist-cnn", (32, 32, 1)) == 169_506 and size("cifar-cnn", (32, 32, 3)) == 114_838


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


def test_an_efficiency_is_of_two_runs_of_a_kind():
    line = lines()["D.98"]
    of = lambda *some: module.training(line, {run.key: one for run, one in some})  # noqa: E731
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


def test_measurements_decide_claims_and_stand_in_tables():
    tables = module.tables({"runs": measured(), "machine": "a machine"})
    rows = {row["ref"]: row for row in tables["Appendix C"] + tables["Appendix D"]}
    assert rows["C.40"]["efficiency, measured"] == pytest.approx(100) and rows["C.40"]["how"] == "whole"
    assert rows["C.21"]["pre-processing, measured"] == 1.0
    verdicts = {claim.name: claim.verdict for claim in PAPER.claims(tables)}
    expected = {"shorter": HOLDS, "mnist_efficiency": HOLDS, "model_accuracy": HOLDS, "part_of_data": HOLDS, "growing": OPEN,
                "synchronised": DIFFERS, "effort_sgd": CONTRADICTORY}  # fmt: skip
    assert {name: verdicts[name] for name in expected} == expected
    slow = module.tables({"runs": measured(seconds=lambda run: float(run.nodes)), "machine": "a machine"})
    assert {claim.name: claim.verdict for claim in PAPER.claims(slow)}["shorter"] == DIFFERS
    nothing = {claim.name: claim for claim in PAPER.claims(module.tables())}
    assert nothing["shorter"].verdict == OPEN and "gridgrad reproduce grabaskas2018" in nothing["shorter"].finding.reason
    assert len(PAPER.items(module.tables())) == 20


def test_a_short_measurement_is_of_few_runs(monkeypatch):
    monkeypatch.setattr(datasets, "prepare", lambda *_: None)
    few, all_of = (to_measure(size, [1, 2], None) for size in ("short", "usual"))
    assert {part.name for part in few} < {part.name for part in all_of} and sum(part.seconds for part in few) < 100
    wanted = set(runs([1, 2, 4], True))
    assert all(line.run(True) in wanted and line.single.run(True) in wanted for line in lines().values())


def test_runs_of_several_processors_are_refused():
    found = measured(wanted=runs_of([lines()["C.56"]]))
    next(iter(found.values()))["processor"] = "another one"
    for use in (gathered, lambda runs: module.tables({"runs": runs, "machine": "both"})):
        with pytest.raises(ValueError, match="several processors, a processor and another one: measure all of them on one"):
            use(found)


def test_a_prediction_is_of_the_network_and_the_single_node():
    share, sent = module.step_of(lines()["C.56"])  # 169,506 gradients of 4 bytes at 118 MB/s
    assert (share, sent) == (pytest.approx(0.5, rel=0.02), pytest.approx(169_506 * 4 / 118e6, rel=0.2))
    of = {ref: module.step_of(lines()[ref])[1] for ref in ("D.98", "D.101", "D.104")}
    assert of["D.104"] < min(of["D.98"], of["D.101"])  # the fewer layers are split, the less is sent


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
    finished = job(1, "gridgrad.experiments.papers.grabaskas2018_job", "--dataset", "mnist")
    assert finished.status == 2 and finished.stderr.count("\n") == 1, finished.stderr
