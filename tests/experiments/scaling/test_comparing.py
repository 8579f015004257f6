"""What a sweep compares: a metric, ratios to a baseline, repeats with seeds, and series that take turns in one job."""

import json

import pytest

from gridgrad.experiments import sweep
from gridgrad.experiments.scaling import environment, records, runs, table, tidy
from gridgrad.experiments.scaling.statistics import interval_of
from gridgrad.experiments.scaling.study import Study
from gridgrad.experiments.scaling.summary import rows
from gridgrad.nn.measured import in_turns
from gridgrad.parallel.prediction import machine as machines
from tests.experiments.scaling import made_up_studies as made_up

SAME = "bytes", "final_loss", "params_digest"
SERIES = [{"name": "plain", "grid": "batch=*"},
          {"name": "lossy", "grid": "batch=*", "reduction": "powersgd:1", "why": "It sends less."}]  # fmt: skip


def test_settings_that_say_nothing_together_are_refused():
    for settings, words in (
        ({"baseline": "other"}, "baseline other: there is no such series, but plain; lossy"),
        ({"metric": "speed"}, "one of seconds, accuracy, loss, bytes, memory"),
        ({"epochs": 3}, "epochs are for metric"), ({"epochs": 3, "steps": 9, "metric": "loss"}, "say the same"),
        ({"seeds": [0, 1], "seed": 4}, "leave seed out"), ({"turns": True, "metric": "memory"}, "leave turns out"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            Study({"series": SERIES} | settings)


def test_the_ratio_to_a_baseline_is_of_runs_with_the_same_number(tmp_path):
    seconds = lambda point, repeat: (1 + repeat) * (3.0 if "powersgd" in point.settings["reduction"] else 2.0)  # noqa: E731
    found = made_up.records(seconds, schemes=[], ranks=[2, 4], series=SERIES, baseline="plain")
    ratios = {(row.series, row.ranks): row.ratio for row in rows(found)}
    assert {key: (one.value, one.low, one.high) for key, one in ratios.items()} == {
        ("plain", 2): (1, 1, 1), ("plain", 4): (1, 1, 1), ("lossy", 2): (1.5, 1.5, 1.5), ("lossy", 4): (1.5, 1.5, 1.5),
    }  # fmt: skip
    assert "ratio to plain" in table.text(found) and "1.5 - 1.5" in table.text(found)
    assert {row["ratio_to_baseline"] for row in tidy.table(found) if row["series"] == "lossy"} == {1.5}
    mine = [SERIES[0], SERIES[1] | {"baseline": "plain"}]
    found = made_up.records(seconds, schemes=[], ranks=[2], series=mine)
    assert {row.series: row.ratio and row.ratio.value for row in rows(found)} == {"plain": None, "lossy": 1.5}
    found = made_up.records(seconds, schemes=[], ranks=[2, 4], series=SERIES, baseline="plain")
    found = [one for one in found if one["repeat"] != 2 or one["curves"][0][1] == "plain"]
    assert [row.ratio.count for row in rows(found)] == [6, 6, 5, 5]


def test_other_metrics_are_in_the_table_and_end_the_repeats():
    study = Study({"ranks": [2], "series": SERIES, "metric": "bytes", "baseline": "plain"})
    found = [
        made_up.record(study, point, bytes={"all-reduce": sent}) for point, sent in zip(study.points, (4e6, 1e6), strict=True)
    ]
    assert study.repeats == study.most_repeats == 1
    plain, lossy = table.text(found).splitlines()[1:3]
    assert " 2 " in plain and " 0.5 " in lossy and " 0.25 " in lossy and "most repeats" in lossy


def test_a_mean_over_seeds_has_the_interval_of_student():
    mean = interval_of([98.0, 98.2, 98.6], "accuracy")
    assert mean.value == pytest.approx(98.2667, abs=1e-4) and mean.high - mean.value == pytest.approx(0.7590, abs=1e-3)
    assert interval_of([98.0], "accuracy").sure is False and interval_of([98.0, 98.0], "loss").half_width == 0


def made_up_runs(asked):
    """A stand-in for `records_of` that notes what it was asked for."""

    def records_of(group, repeat, timeout, seed, turns):
        asked.append(([point.settings.get("reduction") for point in group], repeat, seed))
        how = {"environment": environment.here(), "seed": seed} | ({"turns": True} if turns else {})
        return [made_up.record(Study({}), point, repeat, test_accuracy=90.0 + (seed or 0)) | how for point in group]

    return records_of


def test_each_repeat_has_its_seed_and_other_seeds_do_not_compare(monkeypatch, tmp_path):
    asked, out = [], tmp_path / "s.jsonl"
    monkeypatch.setattr(sweep.runs, "records_of", made_up_runs(asked))
    given = {"ranks": [2], "series": SERIES, "metric": "accuracy", "epochs": 2}
    assert sweep.sweep(Study(given | {"seeds": [3, 5]}), out) == (4, 4)
    assert {(repeat, seed) for _, repeat, seed in asked} == {(0, 3), (1, 5)}
    assert "--seed" not in Study(given | {"seeds": [3, 5]}).points[0].words and "accuracy %" in table.text(records.read(out))
    assert sweep.sweep(Study(given | {"seeds": [3, 5, 6]}), out) == (2, 6)
    assert sweep.sweep(Study(given | {"seeds": [4, 5]}), out) == (2, 4)  # 5 was there, and 3 is kept beside
    assert sweep.sweep(Study(given | {"seeds": [3, 5, 6]}), out) == (0, 6)


def test_series_that_take_turns_are_one_job_a_round(monkeypatch, tmp_path):
    asked, out, given = [], tmp_path / "s.jsonl", {"ranks": [1, 2, 4], "series": SERIES}
    monkeypatch.setattr(sweep.runs, "records_of", made_up_runs(asked))
    assert sweep.sweep(Study(given), out) == (30, 30)
    asked.clear()
    assert sweep.sweep(Study(given | {"turns": True}), out) == (30, 30)  # the others were not measured so
    assert sorted(len(of) for of, *_ in asked) == [1] * 6 + [2] * 12
    hosts = [SERIES[0], SERIES[1] | {"hosts": 2}]
    assert [len(group) for group in Study(given | {"series": hosts, "turns": True}).groups] == [1, 1, 1, 1, 1]


def test_trials_take_turns_in_an_order_that_rotates():
    order = []
    trials = [lambda n=n: order.append(n) or n for n in range(3)]
    assert in_turns(trials, 3, first=1).tolist() == [[0, 1, 2]] * 3 and order == [1, 2, 0, 2, 0, 1, 0, 1, 2]
    order.clear()
    in_turns(trials, 2)
    assert order == [0, 1, 2, 0, 1, 2]


def test_what_a_study_says_of_itself_is_shown_before_it_is_run():
    study, cori = Study({"ranks": [2], "series": SERIES, "about": "Two sums of gradients."}), machines.read("cori-haswell")
    assert table.estimate(study, cori).splitlines()[:2] == ["Two sums of gradients.", "lossy: It sends less."]
    epochs = Study({"ranks": [1], "series": SERIES, "metric": "loss", "epochs": 2, "nets": ["mlp:8,relu"]})
    assert "1 point, 1 to 1 runs" in table.estimate(epochs, cori)


@pytest.mark.mpi
def test_trainings_that_take_turns_are_the_same_as_each_alone():
    series = [
        {"name": "PowerSGD", "grid": "batch=*", "reduction": "powersgd:1"},
        {"name": "pipeline", "grid": "stage=*", "pipeline": "gpipe", "micro_batches": 2},
        {"name": "shares", "grid": "model=*", "shares": "2,1", "handicap": "1=2", "plan": "out"},
        {"name": "workers", "grid": "batch=*", "protocol": "server:asp"},
        {"name": "short", "grid": "batch=*", "steps": 7},
    ]
    study = Study({"nets": ["mlp:16,16,relu"], "ranks": [2], "series": series, "steps": 12, "turns": True})
    [group] = study.groups
    together = runs.records_of(group, 3, 60, turns=True)
    assert [one.get("failed") for one in together] == [None] * 5, together[0]["failed"]
    assert all(one["turns"] and one["repeat"] == 3 and one["peak_memory"] is None for one in together)
    assert [one["timed_steps"] for one in together] == [7, 7, 7, 7, 2]
    for point, one in zip(group[:3], together, strict=False):
        [alone] = runs.records_of((point,), 0, 60)
        assert [one[name] for name in SAME] == [alone[name] for name in SAME], point
    assert json.dumps(together)


def test_a_script_in_place_of_train_is_compared_with_it():
    """Parallelism by hand is the same training: also of columns of weights, and of both."""
    for axes in ("batch=*", "model=*", "batch=*,model=2"):
        series = [{"name": "by hand", "grid": axes, "program": "by_hand.py"}, {"name": "chosen", "grid": axes}]
        study = Study({"nets": ["mlp:16,16,relu"], "ranks": [2], "series": series, "steps": 12, "schedule": "constant",
                       "dataset": "random:8,3,64", "batch_size": 9, "turns": True, "dtype": "float64"})  # fmt: skip
        study.check()
        assert [len(group) for group in study.groups] == [1, 1]
        hand, ours = (runs.records_of(group, 0, 60, turns=True)[0] for group in study.groups)
        assert hand["final_loss"] == pytest.approx(ours["final_loss"], rel=1e-10), axes
    with pytest.raises(ValueError, match="there is no script nothing.py"):
        Study({"nets": ["mlp:16,relu"], "series": [series[0] | {"program": "nothing.py"}], "ranks": [2]}).check()
