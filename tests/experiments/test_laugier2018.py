"""Laugier et al. 2018: what its formulas and its model give, and that items and claims come out of any measurement."""

import json
from pathlib import Path

import pytest

from gridgrad.experiments.papers import laugier2018
from gridgrad.experiments.papers.cited import DERIVED
from gridgrad.experiments.papers.claims import DIFFERS, HOLDS, OPEN
from gridgrad.experiments.papers.items import KEPT, MEASURED
from gridgrad.experiments.papers.paper import paper_of
from gridgrad.experiments.papers.parts import SHORT, USUAL
from gridgrad.experiments.scaling import records
from gridgrad.parallel.job.run import UserError
from tests.experiments.figures import is_figure

PAPER, RESULTS = paper_of("laugier2018"), Path("results/laugier2018")
ONE_NODE, APART, LOGGED = laugier2018.CHOICES


def case(source, hidden, speedup, kind="measured"):
    made = {"source": source, "hidden": hidden, "ranks": 2, "place": "here", "kind": kind}
    return laugier2018.labelled(made, (speedup, 0.99 * speedup, 1.01 * speedup), "on 2 ranks")


def test_volumes_are_those_of_the_formulas_by_hand():
    weights = 16 * 1024 + 2 * 1024**2 + 1024 * 2
    assert laugier2018.sent(1024, 3, 2, 1) == pytest.approx((weights + 3 * 1024 + 2) * 4)
    item = next(item for item in PAPER.items(laugier2018.tables()) if item.name == "Sections 5 to 7")
    derived = {row.label: row.cited for row in item.rows if row.cited}
    batch, model = derived["4 ranks, batch=4,model=1"], derived["4 ranks, batch=1,model=4"]
    assert batch.value == pytest.approx(2 * 4 / 3 * weights * 4 / 1e6) and batch.place == "section 5"
    assert model.value == pytest.approx(3 * 100 * 4 / 3 * (16 + 3 * 1024 + 2) * 4 / 1e6) and model.kind == DERIVED


def test_a_step_is_that_of_the_cost_model_and_more_with_the_settings_of_the_code():
    for name, node in ((ONE_NODE, 32), (APART, 1)):
        for size, batch, model in ((512, 1, 1), (512, 32, 1), (512, 1, 32), (512, 8, 4)):
            cost = laugier2018.cost_of(size, 3, node, batch, model)
            assert sum(laugier2018.step(size, batch, model, name)) == pytest.approx(cost.seconds, rel=1e-3)
    # One hidden layer of 2 units on one rank: it packs 100 outputs of each layer, 16 + 2 gradients of inputs a sample, all
    # weights, and what it gets; it hands itself the minibatch.
    numbers = 100 * (2 + 2) * 2 + 100 * (16 + 2) * 2 + (17 * 2 + 3 * 2) * 2 + 100 * 18 * 2
    computing, sending = laugier2018.step(2, 1, 1, LOGGED)
    assert sending == pytest.approx(numbers * 55e-9) and computing > 4 * 2.5e-4


def test_the_order_is_reversed_without_what_the_code_shows_and_nearly_right_with_it():
    for kind, size, printed in (("batch", 1024, 5.8), ("batch", 512, 5.8), ("model", 1024, 1.2), ("2-D over batch", 512, 0.99)):
        curves = {name: laugier2018.curve(kind, size, name) for name in laugier2018.CHOICES}
        found = {name: curve[32] if kind == "batch" else max(curve.values()) for name, curve in curves.items()}
        assert printed / 1.25 < found[LOGGED] < printed * 1.25
        for name in (ONE_NODE, APART):
            assert found[name] < printed / 2 if kind == "batch" else found[name] > 2 * printed


def test_a_claim_is_decided_where_both_depths_agree():
    deep, shallow, low, unclear = case("a", 3, 1.5), case("b", 1, 1.2), case("b", 1, 0.9), case("b", 1, 1.0)
    logged = case("c", 1, 1.2, "derived")

    def agreed(*cases):
        return laugier2018.agreed(cases, [True if c["range"][0] > 1 else False if c["range"][1] < 1 else None for c in cases])

    assert agreed(deep, shallow)["holds"] and agreed(deep, logged)["holds"] and agreed(deep, logged)["kind"] == "measured"
    assert agreed(deep, shallow)["numbers"].startswith("a: 1.5 (1.48 to 1.52) on 2 ranks")
    assert agreed(case("a", 3, 0.8), low)["holds"] is False
    for cases, why in (((deep, low), "the cases disagree"), ((deep, unclear), "no case is clear with 1 hidden"),
                       ((unclear,), "no case is clear"), ((logged,), "nothing was measured")):  # fmt: skip
        assert agreed(*cases)["holds"] is None and agreed(*cases)["why"].startswith(why)


@pytest.mark.parametrize("made", [{}, json.loads((RESULTS / "tables.json").read_text())])
def test_all_items_and_claims_come_out(made, monkeypatch, tmp_path):
    tables = laugier2018.tables(made)
    assert laugier2018.tables(tables) == tables and len(PAPER.items(tables)) == 10
    found = {claim.name: claim.verdict for claim in PAPER.claims(tables)}
    assert found["method_one"] == found["bandwidth"] == DIFFERS and found["batch_peak"] == OPEN
    assert found["model_gains_with_size"] == (HOLDS if made else OPEN)
    assert all(row.label.count(": ") <= 1 for item in PAPER.items(tables) for row in item.rows)
    monkeypatch.chdir(tmp_path)  # where nothing is kept
    assert not [claim for claim in PAPER.claims(tables) if claim.finding.kind == KEPT]
    assert len(PAPER.items(tables)) == 10


def test_the_runs_that_are_kept_give_the_speedups_that_are_kept(tmp_path):
    reports = records.read(RESULTS / "airfoil.jsonl")
    found = laugier2018.tables(laugier2018.gathered({str(number): one for number, one in enumerate(reports)}, tmp_path))
    kept = {(row["net"], row["grid"]): row for row in json.loads((RESULTS / "tables.json").read_text())["speedups"]
            if row["data"] == "airfoil"}  # fmt: skip
    for row in found["speedups"]:
        assert row["speedup"] == pytest.approx(kept[row["net"], row["grid"]]["speedup"])
    assert {row["net"] for row in found["counted"]} == {row["net"] for row in found["speedups"]}
    claims = {claim.name: claim.finding for claim in PAPER.claims(found)}
    assert claims["compute_below_messages"].kind == MEASURED and "messages" in claims["compute_below_messages"].numbers
    assert is_figure(tmp_path / "airfoil.png")
    other = reports[0] | {"dataset": "other", "versions": reports[0]["versions"] | {"processor": "another"}}
    with pytest.raises(ValueError, match="measure both again"):
        laugier2018.gathered({"a": reports[0], "b": other}, tmp_path)


def test_each_run_of_the_sweeps_is_a_part(monkeypatch):
    monkeypatch.setattr(laugier2018, "ethylene", lambda _: "ethylene-synthetic")
    short, usual = (laugier2018.to_measure(form, [1, 2], None) for form in (SHORT, USUAL))
    names = [part.name for part in usual]
    assert len(set(names)) == len(names) == 1 + 2 * 5 * 3 * 3 + 2  # data sets, networks, points, repeats; scatters
    assert {part.name for part in short} < set(names) and len(short) == 1 + 5 * 3 * (2 + 1) + 2
    monkeypatch.setattr(laugier2018.runs, "records_of", lambda *_, **__: [{"failed": "no memory"}])
    with pytest.raises(UserError, match="mlp:32,32,32,relu on batch=1,model=1: no memory"):
        usual[1].run()
