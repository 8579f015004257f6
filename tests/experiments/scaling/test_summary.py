"""The rows of a study, its statistics, its table and its tidy table, and what its model says, from made-up records."""

from itertools import product

import pandas
import pytest
from scipy.stats import quantile_test

from gridgrad.experiments.scaling import model, predicted, table, tidy
from gridgrad.experiments.scaling.statistics import interval_of
from gridgrad.experiments.scaling.study import Study
from gridgrad.experiments.scaling.summary import is_busy_alone, rows
from gridgrad.parallel.prediction import machine
from tests.experiments.scaling import made_up_studies as made_up


def by_place(records):
    return {(row.series, row.scaling, row.ranks): row for row in rows(records)}


def test_intervals_of_medians_are_between_the_ranks_of_the_tables():
    # David and Nagaraja 2003, and every table of the sign test: n, and the rank of the ends for 95 %
    for count, rank in ((6, 1), (9, 2), (25, 8)):
        found = interval_of(range(1, count + 1))
        assert (found.low, found.high) == (rank, count + 1 - rank) and found.sure
        assert (found.low, found.high) == tuple(quantile_test(range(1, count + 1)).confidence_interval(0.95))
    assert not any(interval_of(range(1, count + 1)).sure for count in range(1, 6))
    mean = interval_of([98.0, 98.2, 98.6], "accuracy")  # that of Student
    assert mean.value == pytest.approx(98.2667, abs=1e-4) and mean.high - mean.value == pytest.approx(0.7590, abs=1e-3)


def test_speedups_are_over_one_rank_and_efficiencies_over_the_ranks():
    found = by_place(made_up.records(lambda point, n: (8.0 + n % 3) / point.ranks**0.5))
    assert list(found) == [(series, "strong", ranks) for series in ("batch", "model") for ranks in (1, 2, 4)]
    row = found["batch", "strong", 4]
    assert row.seconds.value == 4.5 and (row.seconds.low, row.seconds.high) == (4.0, 5.0)
    assert row.speedup.value == pytest.approx(2) and (row.speedup.low, row.speedup.high) == (8 / 5, 10 / 4)
    assert row.efficiency.value == pytest.approx(0.5) and found["batch", "strong", 1].speedup.value == 1
    assert (row.bytes, row.memory) == (3000.0, 2**26)
    assert row.communication == pytest.approx(0.25) and len(row.runs) == 6

    weak = by_place(made_up.records(lambda point, n: 1.0 if point.ranks == 1 else 1.25, scaling=["weak"]))["batch", "weak", 4]
    assert (weak.batch, weak.speedup.value, weak.efficiency.value) == pytest.approx((400, 3.2, 0.8))  # in samples a second


def test_busy_runs_are_left_out_unless_there_are_no_others():
    study = Study({"ranks": [1, 2], "schemes": ["batch"]})
    one, two = study.points
    records = [made_up.record(study, one, n, 1.0) for n in range(6)]
    records += [made_up.record(study, two, n, s, load=made_up.BUSY if n % 2 else None) for n, s in enumerate([1, 9] * 3)]
    row = by_place(records)["batch", "strong", 2]
    assert (row.seconds.value, row.busy, len(row.runs), is_busy_alone(row)) == (1, 3, 3, False)
    row = by_place([record | {"load": made_up.BUSY} for record in records])["batch", "strong", 2]
    assert (row.seconds.value, row.busy, len(row.runs), is_busy_alone(row)) == (5, 6, 6, True)


def test_predictions_stand_beside_what_was_measured():
    records = made_up.records(schemes=["batch"])
    study = Study(records[0]["sweep"])
    priced = [made_up.record(study, point, 0, 0.02 / point.ranks, predicted=True) for point in study.points]
    assert [(row.is_predicted, row.predicted) for row in rows(records + priced)] == [
        (False, 0.02), (False, 0.01), (False, 0.005), (True, None), (True, None), (True, None)
    ]  # fmt: skip
    _, *lines = table.text(records + priced).splitlines()
    assert [line.split()[2:5] for line in lines[:3]] == [[f"batch={p},model=1", str(p), "100"] for p in (1, 2, 4)]
    assert all(row.speedup is row.efficiency is None for row in rows(made_up.records(ranks=[2, 4])))  # none is on one rank


def test_runs_on_different_machines_are_rows_of_their_own_and_say_in_what_they_differ():
    other = made_up.ENVIRONMENT | {"processor": "another", "cores": 8}
    slow = [record | {"environment": other} for record in made_up.records(lambda point, n: 0.1 / point.ranks, ranks=[1, 2])]
    found = by_place(made_up.records(schemes=["batch"]) + slow)
    fast_name, slow_name = "batch (processor a processor, cores 4)", "batch (processor another, cores 8)"
    assert {series for series, *_ in found} == {fast_name, slow_name, "model"}  # which only one of them has
    one, two = found[fast_name, "strong", 2], found[slow_name, "strong", 2]
    assert (one.seconds.value, two.seconds.value) == (0.005, 0.05) and one.speedup.value == two.speedup.value == 2
    alone = [record for record in slow if record["P"] == 2]  # a speedup is over a run on the same machine
    assert by_place(made_up.records(schemes=["batch"]) + alone)[slow_name, "strong", 2].speedup is None


SERIES = [{"name": "plain", "grid": "batch=*"}, {"name": "lossy", "grid": "batch=*", "reduction": "powersgd:1"}]


def test_the_ratio_to_a_baseline_is_of_runs_with_the_same_number():
    seconds = lambda point, repeat: (1 + repeat) * (3.0 if "powersgd" in point.settings["reduction"] else 2.0)  # noqa: E731
    found = made_up.records(seconds, schemes=[], ranks=[2, 4], series=SERIES, baseline="plain")
    assert [(row.series, row.ratio.value, row.ratio.low, row.ratio.high) for row in rows(found)] == (
        [("plain", 1, 1, 1)] * 2 + [("lossy", 1.5, 1.5, 1.5)] * 2
    )
    assert {row["ratio_to_baseline"] for row in tidy.table(found) if row["series"] == "lossy"} == {1.5}
    found = [one for one in found if one["repeat"] != 2 or one["curves"][0][1] == "plain"]
    assert [row.ratio.count for row in rows(found)] == [6, 6, 5, 5]


# ----- the tidy table


def test_the_tidy_table_has_a_row_a_run_of_a_curve_which_pandas_reads_with_its_types(tmp_path):
    *made, last = made_up.records(repeats=1, nesterov=True, shares="1,1", lr=[1, 0.5], cuts=["2", "auto"])
    failed = last | {"failed": "no memory", "seconds_per_step": None, "time": None, "bytes": None, "peak_memory": None}
    records, path = [*made, failed, made[0] | {"predicted": True}], tmp_path / "s.csv"
    path.write_text(tidy.text(records))
    frame, found = pandas.read_csv(path).convert_dtypes(), tidy.table(records)
    assert len(found) == len(frame) == sum(len(record["curves"]) for record in records)
    assert {(row["lr"], row["cuts"]) for row in found if row["ranks"] == 2} == set(product((1, 0.5), ("2", "auto")))
    kinds = {"ranks": "Int64", "step_s": "Float64", "busy": "boolean", "nesterov": "boolean", "shares": "string"}
    assert {name: str(frame.dtypes[name]) for name in kinds} == kinds
    assert list(frame["step_s"].fillna(-1)) == [-1 if row["step_s"] in (None, "") else row["step_s"] for row in found]


def test_no_cell_is_a_command_for_a_spreadsheet_or_a_terminal():
    cells = {"=1+1": "'=1+1", "-x\x1b[2J": "'-x\\x1b[2J", "a\tb": "a\\tb", "\udcff→": "\\udcff→", "a b": "a b", -1: -1}
    assert {value: tidy.harmless(value) for value in cells} == cells


# ----- serial fractions, and errors of predictions by term


def test_the_fractions_of_amdahl_and_of_karp_and_flatt_are_those_that_were_put_in():
    speedup = lambda ranks, serial: 1 / (serial + (1 - serial) / ranks)  # noqa: E731
    for serial in (0.0, 0.1, 1.7):
        assert model.karp_flatt(speedup(8, serial), 8) == pytest.approx(serial)
        assert model.amdahl([(2, speedup(2, serial)), (8, speedup(8, serial))]) == pytest.approx(serial)
    [(_, _, found)] = model.tables(rows(made_up.records(lambda point, n: 0.2 + 0.8 / point.ranks)))
    assert [round(line["Amdahl: serial %"], 6) for line in found] == [20, 20]


def test_the_terms_of_a_prediction_add_up_to_the_step():
    study = Study({"ranks": [1, 2, 4], "nets": ["mlp:64,64,relu", "mlp:96,32,48,relu"], "schemes": ["batch", "model"]})
    made = list(predicted.records(study, machine.read("cori-haswell"), (4,), 1))
    assert all(sum(one["terms"].values()) == pytest.approx(one["seconds_per_step"]["median"], rel=1e-4) for one in made)
    assert {name for one in made for name in one["terms"]} >= {"compute", "all-reduce of gradients", "all-gather"}
