"""Serial fractions and errors of predictions by term, on made-up measurements."""

import pytest

from gridgrad.experiments.scaling import model, predicted
from gridgrad.experiments.scaling.study import Study
from gridgrad.experiments.scaling.summary import rows
from gridgrad.parallel.prediction import machine
from tests.experiments.scaling import made_up_studies as made_up

CORI = machine.read("cori-haswell")
WIDE = {"ranks": [1, 2, 4], "nets": ["mlp:64,64,relu", "mlp:256,256,relu", "mlp:96,32,48,relu"], "schemes": ["batch", "model"]}


def test_the_fractions_of_amdahl_and_of_karp_and_flatt_are_those_that_were_put_in():
    speedup = lambda ranks, serial: 1 / (serial + (1 - serial) / ranks)  # noqa: E731
    for serial in (0.0, 0.1, 1.0, 1.7):
        assert model.karp_flatt(speedup(8, serial), 8) == pytest.approx(serial)
        assert model.amdahl([(1, 1.0), (2, speedup(2, serial)), (8, speedup(8, serial))]) == pytest.approx(serial)
    assert model.karp_flatt(1.0, 1) is model.amdahl([(1, 1.0)]) is None
    found = model.fractions(rows(made_up.records(lambda point, n: 0.2 + 0.8 / point.ranks)))
    assert [round(line["Amdahl: serial %"], 6) for line in found] == [20, 20]
    assert found[0]["Karp-Flatt, serial % on P ranks"] == "2: 20.0, 4: 20.0"


def test_errors_of_predictions_are_ordered_by_their_part_of_the_step():
    measured = made_up.records(lambda point, n: 0.01, repeats=1, **WIDE)
    study = Study(measured[0]["sweep"])
    for record in measured:
        record["communication"] = [{"layer": "gradients", "kind": "all-reduce", "calls": 1, "bytes": 0, "seconds": 0.0015}]
    priced = {"predicted": True, "terms": {"compute": 0.0075, "all-reduce of gradients": 0.0055, "all-gather": 0.001}}
    predictions = [made_up.record(study, point, **priced) for point in study.points]
    worst, *_, least = [line for line in model.errors(rows(measured + predictions)) if line["ranks"] == 4]
    assert worst["term"] == "all-reduce of gradients"
    assert (worst["ms measured"], worst["ms predicted"]) == pytest.approx((1.5, 5.5))
    assert worst["error, % of the step"] == "+40.0" and float(least["error, % of the step"]) == 0
    assert model.errors(rows(measured)) == []
    computing = [line for line in model.errors(rows(measured + predictions)) if line["term"] == "compute"]
    points = [(line["ranks"], line["network"], line["batch"], line["series"]) for line in computing]
    assert len(points) == len(set(points)) == len(study.points)  # one rank is in all series
    crowded = [record | {"oversubscribed": record["P"] == 4} for record in measured]
    assert {line["ranks"] for line in model.errors(rows(crowded + predictions))} == {1, 2}


def test_the_terms_of_a_prediction_add_up_to_the_step():
    made = list(predicted.records(Study(WIDE), CORI, (4,), 1))
    assert all(sum(one["terms"].values()) == pytest.approx(one["seconds_per_step"]["median"], rel=1e-4) for one in made)
    assert {name for one in made for name in one["terms"]} >= {"compute", "all-reduce of gradients", "all-gather"}


def test_terms_of_each_machine_and_without_seconds():
    measured = made_up.records(lambda point, n: 0.01, repeats=1, schemes=["batch"], ranks=[1, 2])
    for record in measured:
        record["communication"] = [{"layer": "loss", "kind": "all-reduce", "calls": 1, "bytes": 0, "seconds": None}]
    study = Study(measured[0]["sweep"])
    predictions = [made_up.record(study, point, predicted=True, machine=name, terms={"compute": seconds})
                   for name, seconds in (("a machine", 0.01), ("another", 0.02)) for point in study.points]  # fmt: skip
    found = model.errors(rows(measured + predictions))
    computing = {(line["ranks"], line["machine"]): line["ms predicted"] for line in found if line["term"] == "compute"}
    assert computing == {(ranks, name): ms for ranks in (1, 2) for name, ms in (("a machine", 10), ("another", 20))}
    assert {line["ms measured"] for line in found if line["term"] == "all-reduce"} == {0.0}


def test_a_law_that_does_not_fit_says_so():
    for power, fractions in ((2.0, "2: 700.0, 4: 2100.0"), (-2.0, "2: -50.0, 4: -25.0")):
        found = made_up.records(lambda point, n, power=power: point.ranks**power, schemes=["batch"])
        [line] = model.fractions(rows(found))
        assert line["Amdahl: serial %"] == "the law does not fit" and line["Karp-Flatt, serial % on P ranks"] == fractions


@pytest.mark.parametrize(("busy", "left_out"), [((1, 2, 4), (2, 4)), ((1,), (2, 4)), ((4,), (4,))])
def test_points_that_were_disturbed_are_left_out_of_the_fractions_and_named(busy, left_out):
    found = made_up.records(schemes=["batch"], nets=["mlp:8,relu"])
    found = [record | {"load": made_up.BUSY} if record["P"] in busy else record for record in found]
    title, words, serial = model.tables(rows(found))[0]
    assert title == "Serial fractions of strong scaling" and len(serial) == (2 not in left_out)
    named = "; ".join(f"mlp:8,relu, batch on {ranks} ranks" for ranks in left_out)
    assert words == f"Left out, as other programs disturbed their runs or those on 1 rank: {named}."


def test_the_parts_of_a_step_sum_to_its_median_where_other_steps_took_longer():
    slow = [record | {"time": {part: 3 * seconds for part, seconds in record["time"].items()}}
            for record in made_up.records(schemes=["batch"], ranks=[2])]  # fmt: skip
    [row] = rows(slow)
    assert sum(row.parts.values()) == pytest.approx(row.seconds.value) and row.parts["compute"] == pytest.approx(0.7 * 0.005)
    assert model.terms_of_row(row)["compute"] == pytest.approx(0.75 * 0.005)
