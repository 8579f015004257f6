"""The claims and items of Grabaskas 2018: what decides them, and which way."""

import json
from functools import lru_cache
from pathlib import Path

from gridgrad.experiments.papers.cited import DERIVED, PRINTED, published
from gridgrad.experiments.papers.claims import CONTRADICTORY, DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.grabaskas2018 import automated
from gridgrad.experiments.papers.grabaskas2018 import claims as of_claims
from gridgrad.experiments.papers.grabaskas2018 import experiments as paper
from gridgrad.experiments.papers.grabaskas2018 import items as of_items
from gridgrad.experiments.papers.grabaskas2018.runs import PAPER, lines, parameters, runs
from gridgrad.experiments.papers.items import ALONE, BESIDE, deviation
from gridgrad.experiments.papers.page_words import FEW
from tests.experiments.made_up_runs import measured

KEPT_TABLES = Path("results/grabaskas2018/tables.json")


def findings(found=None):
    """{name of a claim: its Finding} for made-up runs."""
    tables = paper.tables({"runs": found, "machine": "a machine"}) if found else not_measured()
    return {claim.name: claim.finding for claim in of_claims.claims(tables)}


def verdicts(found=None):
    return {name: one.verdict for name, one in findings(found).items()}


@lru_cache
def not_measured():
    return paper.tables({})


def test_every_item_and_claim_is_there_without_and_with_kept_results():
    for tables in (not_measured(), paper.tables(json.loads(KEPT_TABLES.read_text()))):
        found = of_claims.claims(tables)
        assert len(found) == len(published(PAPER).claims) and 0 < sum(claim.main for claim in found) <= 8
        items = of_items.items(tables)
        assert len({item.name for item in items}) == len(items) and all(item.rows for item in items)
        assert all(len(claim.finding.numbers) <= FEW for claim in found if claim.main)  # so that the summary shows them
        for item in items:
            assert len({row.label for row in item.rows}) == len(item.rows), item.name
            assert all(row.label.count(": ") <= 1 for row in item.rows), item.name
            assert {row.cited.kind for row in item.rows if row.cited} <= {PRINTED, DERIVED}
    statuses = {item.name: item.status for item in items}
    assert {statuses[f"Table {name}"] for name in paper.TABLES if name[0] == "4"} == {BESIDE}
    assert {name for name, status in statuses.items() if status == ALONE} <= {automated.item().name}


def test_what_is_measured_decides_both_ways():
    no = verdicts()
    assert {no[name] for name in ("mnist_efficiency", "mnist_loss", "part_of_data", "growing", "model_accuracy")} == {OPEN}
    as_printed = verdicts(measured(seconds=like_the_thesis, accuracy=accuracies))
    other = verdicts(measured(seconds=lambda run: 1.0 / run.nodes**0.5, accuracy=lambda run: 50.0 + 20 * (run.nodes == 2)))
    decided = "mnist_efficiency", "part_of_data", "growing", "model_accuracy"
    assert {name: as_printed[name] for name in decided} == dict.fromkeys(decided, HOLDS)
    assert {other[name] for name in ("part_of_data", "model_accuracy")} == {DIFFERS}
    assert (other["shorter"], as_printed["shorter"]) == (HOLDS, DIFFERS)
    assert (other["mnist_efficiency"], other["growing"]) == (OPEN, OPEN)  # cores that share a memory; all alike
    slower = measured(seconds=lambda run: 1.0 if run.nodes == 1 or not run.net else 0.5 + parameters(run.net) / 1e8)
    assert verdicts(slower)["growing"] == DIFFERS
    numbers = findings(measured(accuracy=lambda run: 70.0 + run.nodes))["model_accuracy"].numbers
    assert numbers.startswith("here 1.00 points at most in 16 lines; in the thesis -22.5 to +23.1")


def test_a_mean_loss_of_accuracy_is_decided_by_all_trainings_of_its_table_each_of_which_counts_once():
    names, one, two = ("mnist_loss", "cifar_loss"), ["C.53", "C.56"], ["C.3", "C.8"]
    every, few = runs([1, 2, 4], full=True), [lines()[ref].run(whole=True) for ref in one + two]
    for accuracy, expected in ((accuracies, HOLDS), (lambda run: 50.0 + 20 * (run.nodes > 1), DIFFERS)):
        found = verdicts(measured(accuracy=accuracy, wanted=every))
        assert {found[name] for name in names} == {expected}
        assert {verdicts(measured(accuracy=accuracy, wanted=few))[name] for name in names} == {OPEN}
    found = findings(measured(accuracy=accuracies, wanted=few))
    assert found["mnist_loss"].numbers.startswith("-5.79 points, mean of C.56, C.62: -5.79; printed for these lines -5.74, for")
    assert "1 of 4 trainings of this table were run" in found["cifar_loss"].reason
    assert "mean of C.40, C.48: 50.0; C.56, C.62: 50.0" in findings(measured(lambda run: 2.0))["mnist_efficiency"].numbers


def test_claims_about_gpus_and_about_other_work_are_not_decided_by_cores():
    for seconds, change in (
        (like_the_thesis, "it rises here: 9.6, 29.8 s"),
        (lambda run: 4.0 / run.nodes, "it falls here: 4.0, 2.0 s"),
    ):
        found = findings(measured(seconds=seconds))
        assert found["gpu_nodes"].numbers.startswith(change)
        open_ones = "gpu_nodes", "batch_time", "cifar_efficiency", "preprocessing", "preprocessing_mnist"
        assert all(found[name].verdict == OPEN and found[name].numbers for name in open_ones)
    for item in of_items.items(paper.tables({"runs": measured(), "machine": "a machine"})):
        if item.name in ("Table 4.14", "Table 4.15", "Table 4.21", "Table 4.22", "Figure 4.2"):
            assert bool(deviation(item)) == (item.name in ("Table 4.14", "Table 4.21")), item.name
            assert ("Accuracies do compare, in % (printed)" in item.why) == (item.name in ("Table 4.15", "Table 4.22"))


def like_the_thesis(run):
    """Seconds of a run as the thesis prints them."""
    if run.read:
        return {("mnist", 1): 1.0, ("mnist", 2): 1.25, ("cifar10", 1): 37.0, ("cifar10", 2): 25.0}[run.dataset, run.nodes]
    printed = [line.seconds for line in lines().values() if line.run(whole=True) == run]
    return next((seconds for seconds in printed if isinstance(seconds, float)), 100.0)  # two have words instead


def accuracies(run):
    """Accuracies in percent as the thesis prints them, where its algorithms are those of the claims."""
    if run.grid.startswith("model"):
        return 88.0 - 0.93 * (run.nodes == 2)
    return next(line.cited("accuracy").value for line in lines().values() if line.run(whole=True) == run)


def test_printed_numbers_that_contradict_each_other_are_named():
    found = verdicts()
    assert {found[name] for name in ("effort_sgd", "mean_efficiency", "loss_sign", "one_iteration")} == {CONTRADICTORY}
    assert {found[name] for name in ("synchronised", "cifar_backward", "same_overhead", "constant_overhead", "batch_accuracy",
                                     "cnn", "gpu_fewer")} == {DIFFERS}  # fmt: skip
    assert {found[name] for name in ("speedups", "half_convolution", "easier_than_gpu", "preprocessing_times",
                                     "preprocessing_manual")} == {HOLDS}  # fmt: skip


def test_counts_of_our_programs_decide_both_ways(tmp_path, monkeypatch):
    not_measured()  # of the file that is kept
    kept, names = tmp_path / "usability.json", ("complexity", "times_easier", "lines", "goals")
    monkeypatch.setattr(paper, "USABILITY", kept)
    assert {findings()[name].verdict for name in names} == {OPEN}
    for effort, lines_, expected in ((1, 1, HOLDS), (90, 90, DIFFERS)):
        one = {"effort": effort, "time": effort / 18, "lines": lines_}
        ours = {"data": one, "model": one} | dict.fromkeys(("by_hand_data", "by_hand_model"), dict.fromkeys(one, 100))
        kept.write_text(json.dumps({"programs": ours}))
        found = findings()
        assert {found[name].verdict for name in names} == {expected} and "results/usability.json" in found["lines"].reason
    for damaged in ("{half a fi", json.dumps({"programs": {"data": {"effort": "much"}}}), "[]"):
        kept.write_text(damaged)
        found = findings()
        assert all(found[name].verdict == OPEN and "does not hold what decides this" in found[name].reason for name in names)
        assert paper.used("4.20", {"lines": "lines"}, {}) == paper.tables({})["4.20"]


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
        ([study(1.035)], (HOLDS, HOLDS)),  # the lower quartile is 1.014
        ([study(1.01), study(1.2, net="cifar-cnn", grid="batch=2")], (DIFFERS, HOLDS)),
        ([study(1.3)], (DIFFERS, DIFFERS)),
        ([study(1.0, chosen=1.1)], (DIFFERS, DIFFERS)),
        ([study(1.0, net="airfoil")], (OPEN, OPEN)),
        ([study(1.3) | {"oversubscribed": True, "ranks": 4}], (OPEN, OPEN)),
        ([study(1.0), study(1.3) | {"oversubscribed": True, "ranks": 4}], (HOLDS, HOLDS)),
        ([study(1.0), study(1.0, processor="another")], (OPEN, OPEN)),
        ([{"rows": [{}]}], (OPEN, OPEN)),
    ):
        kept.write_text(json.dumps(reports))
        found = verdicts()
        assert (found["no_loss"], found["model_as_manual"]) == expected
    kept.write_text(json.dumps([study(1.0), study(1.1)]))
    assert findings()["no_loss"].numbers == (
        "with the algorithms of the version by hand 1.00 to 1.10 times as long (1 of 2 cases lose), with those that "
        "`parallelize` chooses 0.90 to 0.90 times (0 lose)"
    )


def test_the_hypothesis_as_an_item(tmp_path, monkeypatch):
    kept = tmp_path / "automation.json"
    monkeypatch.setattr(automated, "RESULTS", kept)
    kept.write_text(json.dumps([study(1.1), study(1.3, net="airfoil")]))
    item = automated.item()
    assert item.status == ALONE or item.status == BESIDE
    assert [row.measured for row in item.rows if row.measured] == [1.1, 0.9, 1.3, 0.9] and item.processor == "a processor"
    assert "1 of 1 cases of the thesis' networks lose: mlp3, model=2, batch 64 (1.1 times as long)." in item.why
    assert "airfoil, which is not the thesis', 1 of 1 do." in item.why and "four ranks" in item.reason
    shared = study(1.3, grid="batch=2,model=2") | {"oversubscribed": True, "ranks": 4}
    kept.write_text(json.dumps([study(1.0), shared]))
    item = automated.item()
    assert "0 of 1 cases of the thesis' networks lose" in item.why and "whose ranks share cores decide nothing" in item.reason
    kept.write_text(json.dumps([study(1.0), study(1.0, processor="another")]))
    refused = automated.item()
    assert not any(row.measured for row in refused.rows) and "of several processors, a processor and another" in refused.reason
