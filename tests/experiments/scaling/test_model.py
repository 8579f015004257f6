"""Serial fractions, errors of predictions by term, and a machine fitted to few ranks, on made-up measurements."""

import numpy as np
import pytest

from gridgrad.experiments.scaling import fit, laws, predicted, records, terms
from gridgrad.experiments.scaling.study import Study
from gridgrad.experiments.scaling.summary import rows
from gridgrad.experiments.studies import scaling_model
from gridgrad.parallel.prediction import machine
from tests.experiments.programs import program
from tests.experiments.scaling import made_up_studies as made_up

CORI = machine.read("cori-haswell")
OF_DATA = {"features": 4, "outputs": 1}
WIDE = {"ranks": [1, 2, 4], "nets": ["mlp:64,64,relu", "mlp:256,256,relu", "mlp:96,32,48,relu"], "schemes": ["batch", "model"]}


def test_the_fractions_of_amdahl_and_of_karp_and_flatt_are_those_that_were_put_in():
    speedup = lambda ranks, serial: 1 / (serial + (1 - serial) / ranks)  # noqa: E731
    for serial in (0.0, 0.1, 1.0, 1.7):
        assert laws.karp_flatt(speedup(8, serial), 8) == pytest.approx(serial)
        assert laws.amdahl([(1, 1.0), (2, speedup(2, serial)), (8, speedup(8, serial))]) == pytest.approx(serial)
    assert laws.karp_flatt(1.0, 1) is laws.amdahl([(1, 1.0)]) is None
    found = laws.fractions(rows(made_up.records(lambda point, n: 0.2 + 0.8 / point.ranks)))
    assert [round(line["Amdahl: serial %"], 6) for line in found] == [20, 20]
    assert found[0]["Karp-Flatt, serial % on P ranks"] == "2: 20.0, 4: 20.0"


def test_errors_of_predictions_are_ordered_by_their_part_of_the_step():
    measured = made_up.records(lambda point, n: 0.01, repeats=1, **WIDE)
    study = Study(measured[0]["sweep"])
    for record in measured:
        record["communication"] = [{"layer": "gradients", "kind": "all-reduce", "calls": 1, "bytes": 0, "seconds": 0.0015}]
    priced = {"predicted": True, "terms": {"compute": 0.0075, "all-reduce of gradients": 0.0055, "all-gather": 0.001}}
    predictions = [made_up.record(study, point, **priced) for point in study.points]
    worst, *_, least = [line for line in terms.errors(rows(measured + predictions)) if line["ranks"] == 4]
    assert (worst["term"], worst["ms measured"], worst["ms predicted"]) == ("all-reduce of gradients", 1.5, 5.5)
    assert worst["error, % of the step"] == "+40.0" and least["error, % of the step"] == "+0.0"
    assert terms.errors(rows(measured)) == []


def test_the_terms_of_a_prediction_add_up_to_the_step():
    made = list(predicted.records(Study(WIDE), CORI, (4,), 1))
    assert all(sum(one["terms"].values()) == pytest.approx(one["seconds_per_step"]["median"], rel=1e-4) for one in made)
    assert {name for one in made for name in one["terms"]} >= {"compute", "all-reduce of gradients", "all-gather"}


def as_if(constants, noise=0.0, **settings):
    """Rows whose seconds are the counts of their terms times these constants."""
    rng = np.random.default_rng(3)
    found = made_up.records(lambda point, n: 1.0, **WIDE | settings)
    found = [record | OF_DATA for record in found]
    counts = {records.key_of(row.runs[0]): fit.counts_of(row) for row in rows(found)}
    for record in found:
        seconds = float(constants @ counts[records.key_of(record)]) * float(np.exp(noise * rng.standard_normal()))
        record["seconds_per_step"] = {"median": seconds}
    return rows(found)


def test_a_machine_that_is_one_is_found_and_predicts_more_ranks():
    constants = np.array([1e-6, 2e-10, 1e-10, 5e-6, 1e-9, 0, 0])
    found, lines = fit.forecast(as_if(constants), 2)
    assert len(lines) == 3 * 2 and all(abs(line["error %"]) < 0.1 and line["within"] for line in lines)
    assert found.spread < 1e-6


def test_noise_widens_the_interval_and_the_truth_is_within():
    constants = np.array([1e-6, 2e-10, 1e-10, 5e-6, 1e-9, 0, 0])
    found, lines = fit.forecast(as_if(constants, noise=0.05), 2)
    assert found.spread > 0.005 and all(line["within"] for line in lines)
    assert all(line["from"] < line["ms predicted"] < line["to"] for line in lines)
    assert (found.constants >= 0).all()


def test_ranks_on_hosts_of_their_own_send_between_nodes():
    series = [{"name": "hosts", "grid": "batch=*", "hosts": 4}]
    measured = [record | OF_DATA for record in made_up.records(series=series, schemes=[])]
    for row in (row for row in rows(measured) if row.ranks > 1):
        counts = dict(zip(fit.TERMS, fit.counts_of(row), strict=True))
        assert counts["rounds in a node"] == counts["bytes in a node"] == 0 < counts["bytes between nodes"]


def test_too_few_points_are_no_machine_and_are_said_so(tmp_path):
    with pytest.raises(ValueError, match="2 points are too few to fit a machine: at least 3 are needed"):
        fit.fit(as_if(np.ones(7), nets=["mlp:8,relu"], schemes=["batch"], ranks=[1, 2]))
    path = tmp_path / "s.jsonl"
    path.write_text(records.lines(made_up.records(nets=["mlp:8,relu"], schemes=["batch"])))
    finished = program("study", "scaling-model", path, "--out", tmp_path / "m.md")
    assert finished.returncode == 0 and "No machine was fitted: 0 points are too few" in finished.stdout, finished.stderr
    assert (
        (tmp_path / "m.md").read_text().startswith("# What the points of a sweep say\n\n## Serial fractions of strong scaling")
    )
    path.write_text(records.lines(made_up.records(ranks=[1])))
    assert "No machine was fitted" in scaling_model.document(rows(records.read(path)), 2, 5)
