"""The rows of a study, its table and its tidy table, from made-up records."""

import csv
import io

import pytest

from gridgrad.experiments.scaling import table, tidy
from gridgrad.experiments.scaling.records import tags
from gridgrad.experiments.scaling.study import Study
from gridgrad.experiments.scaling.summary import is_busy_alone, rows
from tests.experiments.scaling import made_up_studies as made_up


def by_place(records):
    return {(row.series, row.scaling, row.ranks): row for row in rows(records)}


def test_speedups_are_over_one_rank_and_efficiencies_over_the_ranks():
    found = by_place(made_up.records(lambda point, n: (8.0 + n % 3) / point.ranks**0.5))
    assert list(found) == [(series, "strong", ranks) for series in ("batch", "model") for ranks in (1, 2, 4)]
    row = found["batch", "strong", 4]
    assert row.seconds.value == 4.5 and (row.seconds.low, row.seconds.high) == (4.0, 5.0)
    assert row.speedup.value == pytest.approx(2) and (row.speedup.low, row.speedup.high) == (8 / 5, 10 / 4)
    assert row.efficiency.value == pytest.approx(0.5) and found["batch", "strong", 1].speedup.value == 1
    assert (row.bytes, row.memory) == (3000.0, 2**26)
    assert row.communication == pytest.approx(0.25) and len(row.runs) == 6


def test_weak_scaling_counts_samples_a_second():
    found = by_place(made_up.records(lambda point, n: 1.0 if point.ranks == 1 else 1.25, scaling=["weak"], schemes=["batch"]))
    assert found["batch", "weak", 4].batch == 400 and found["batch", "weak", 4].speedup.value == pytest.approx(3.2)
    assert found["batch", "weak", 4].efficiency.value == pytest.approx(0.8)


def test_strong_and_weak_scaling_of_one_study_share_the_run_on_one_rank():
    found = by_place(made_up.records(scaling=["strong", "weak"], schemes=["batch"]))
    assert len(found) == 6 and found["batch", "strong", 1].runs == found["batch", "weak", 1].runs


@pytest.mark.parametrize(
    ("busy", "expected"), [((), False), ((0,), False), ((0, 1, 2, 3, 4), False), ((0, 1, 2, 3, 4, 5), True)]
)
def test_a_point_is_busy_if_no_other_run_counts(busy, expected):
    load = lambda record: made_up.BUSY if record["repeat"] in busy else {"verdict": None}  # noqa: E731
    records = [record | {"load": load(record)} for record in made_up.records(schemes=["batch"])]
    assert all(is_busy_alone(row) == expected and row.busy == len(busy) for row in rows(records))


def test_busy_runs_are_left_out_unless_there_are_no_others():
    study = Study({"ranks": [1, 2], "schemes": ["batch"]})
    one, two = study.points
    records = [made_up.record(study, one, n, 1.0) for n in range(6)]
    records += [made_up.record(study, two, n, s, load=made_up.BUSY if n % 2 else None) for n, s in enumerate([1, 9] * 3)]
    row = by_place(records)["batch", "strong", 2]
    assert (row.seconds.value, row.busy, len(row.runs)) == (1, 3, 3)
    row = by_place([record | {"load": made_up.BUSY} for record in records])["batch", "strong", 2]
    assert (row.seconds.value, row.busy, len(row.runs)) == (5, 6, 6)


def test_a_failed_point_is_a_row_with_its_reason():
    study = Study({"ranks": [1, 2], "schemes": ["batch"]})
    one, two = study.points
    failed = {"net": two.settings["net"], "dataset": "airfoil", "P": 2, "grid": two.settings["grid"], "failed": "no memory"}
    failed |= {"point": two.settings, "repeat": 0, "took": 1.0, "environment": made_up.ENVIRONMENT, **tags(study, two)}
    records = [made_up.record(study, one), failed]
    row = by_place(records)["batch", "strong", 2]
    assert row.seconds is row.speedup is None and row.failed == "no memory" and row.parts == {}
    assert table.text(records).splitlines()[2].endswith("failed: no memory")
    assert [line["failed"] for line in csv.DictReader(io.StringIO(tidy.text(records)))] == ["", "no memory"]


def test_predictions_stand_beside_what_was_measured_and_alone():
    records = made_up.records(schemes=["batch"])
    study = Study(records[0]["sweep"])
    predicted = [made_up.record(study, point, 0, 0.02 / point.ranks, predicted=True) for point in study.points]
    found = rows(records + predicted)
    assert [(row.is_predicted, row.predicted) for row in found] == [(False, 0.02), (False, 0.01), (False, 0.005)] + [
        (True, None)
    ] * 3
    assert "predicted ms" in table.text(records + predicted) and "ms a step, predicted" in table.text(predicted)


def test_without_one_rank_there_is_no_speedup_and_without_timed_steps_no_row():
    found = rows(made_up.records(ranks=[2, 4]))
    assert all(row.speedup is row.efficiency is None for row in found)
    assert "add 1 to the ranks" in table.text(made_up.records(ranks=[2, 4]))
    assert "more --steps" in table.text(made_up.records(lambda point, n: None))


def test_a_series_without_a_grid_of_its_own_is_not_shown():
    records = made_up.records(ranks=[1, 2], schemes=["batch", "2d"])
    assert {row.series for row in rows(records)} == {"batch"}
    assert {row.series for row in rows(made_up.records(ranks=[1], schemes=["batch", "2d"]))} == {"batch", "2d"}


def test_the_table_has_a_row_a_point_and_says_what_one_should_know():
    head, *lines = table.text(made_up.records(ranks=[1, 2, 8], schemes=["batch"], repeats=3)).splitlines()
    assert head.split("  ")[0] == "network" and "scaling" not in head and "remark" in head
    assert [line.split()[2:5] for line in lines[:3]] == [[f"batch={p},model=1", str(p), "100"] for p in (1, 2, 8)]
    assert lines[2].endswith("oversubscribed") and lines[3].startswith("3 points had fewer than 6") and "8 ranks" in lines[4]


def test_the_tidy_table_has_a_row_a_run_of_a_curve_and_units_in_its_names():
    records = made_up.records(repeats=2)
    found = list(csv.DictReader(io.StringIO(tidy.text(records))))
    assert len(found) == 2 * (2 * 3)  # the runs on one rank belong to both series
    four = [row for row in found if row["ranks"] == "4" and row["series"] == "model"]
    assert [(row["repeat"], row["step_s"], row["sent_by_all_ranks_bytes"]) for row in four] == [
        (n, "0.0025", "3000.0") for n in "01"
    ]
    assert four[0]["processor"] == "a processor" and four[0]["plan"] == "fewest-bytes" and four[0]["predicted"] == "False"


def test_the_run_on_one_rank_belongs_to_all_series_that_are_compared_with_it():
    made = made_up.records(grids=["batch=*,model=2", "model=4"], schemes=["batch"])
    found = by_place(made)
    assert [ranks for series, _, ranks in found if series == "batch=*,model=2"] == [1, 2, 4]
    assert [ranks for series, _, ranks in found if series == "model=4"] == [1, 4]
    assert found["model=4", "strong", 1].runs == found["batch", "strong", 1].runs


def test_runs_on_different_machines_are_rows_of_their_own_and_say_in_what_they_differ():
    other = made_up.ENVIRONMENT | {"processor": "another", "cores": 8}
    slow = [record | {"environment": other} for record in made_up.records(lambda point, n: 0.1 / point.ranks, ranks=[1, 2])]
    found = by_place(made_up.records(schemes=["batch"]) + slow)
    fast_name, slow_name = "batch (processor a processor, cores 4)", "batch (processor another, cores 8)"
    assert {series for series, *_ in found} == {fast_name, slow_name, "model"}  # which only one of them has
    one, two = found[fast_name, "strong", 2], found[slow_name, "strong", 2]
    assert (one.seconds.value, two.seconds.value) == (0.005, 0.05) and one.speedup.value == two.speedup.value == 2
    text = table.text(made_up.records(schemes=["batch"]) + slow)
    assert fast_name in text and slow_name in text
    alone = [record for record in slow if record["P"] == 2]  # a speedup is over a run on the same machine
    assert by_place(made_up.records(schemes=["batch"]) + alone)[slow_name, "strong", 2].speedup is None


def test_predictions_for_different_machines_are_rows_of_their_own():
    records = made_up.records(schemes=["batch"])
    study = Study(records[0]["sweep"])
    predicted = [
        made_up.record(study, point, 0, seconds, predicted=True, machine=name)
        for name, seconds in (("a machine", 0.02), ("another", 0.04))
        for point in study.points
    ]
    found = rows(records + predicted)
    assert {(row.series, row.seconds.value) for row in found if row.is_predicted} == {
        ("batch (a machine)", 0.02), ("batch (another)", 0.04)}  # fmt: skip
    assert {(row.series, row.predicted) for row in found if not row.is_predicted} == {("batch", None)}  # of which of both?
    assert {row.predicted for row in rows(records + predicted[:3]) if not row.is_predicted} == {0.02}
