"""The program `sweep`: in which order points run and how often, interruptions, failures, parts, and a small real study."""

import os
import random
import re
import signal

import pytest

from gridgrad.experiments import sweep
from gridgrad.experiments.scaling import environment, records, runs
from gridgrad.experiments.scaling.runs import BUSY, ENOUGH, FAILED, REPEATED, rounds, settled
from gridgrad.experiments.scaling.study import Study
from gridgrad.parallel.job.run import UserError
from tests.experiments.programs import run_main
from tests.experiments.scaling import made_up_studies as made_up

pytestmark = pytest.mark.mpi  # it starts jobs

SERIES = [{"name": "plain", "grid": "batch=*"}, {"name": "lossy", "grid": "batch=*", "reduction": "powersgd:1"}]
SMALL = {"ranks": [1, 2], "schemes": ["batch"]}

# ----- when a point has been measured often enough, and in which order points are measured

STUDY = Study({"ranks": [1, 2, 4], "schemes": ["batch", "model"], "nets": ["a", "b"], "repeats": 6, "most_repeats": 9})


def made(*seconds, **more):
    """Runs of a point of STUDY."""
    return [made_up.record(STUDY, STUDY.points[0], number, value, **more) for number, value in enumerate(seconds)]


def test_a_point_is_settled_by_a_narrow_interval_by_a_limit_or_by_a_failure():
    narrow, wide = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98], [1.0, 1.2, 0.9, 1.0, 1.02, 0.98]
    assert settled(made(*narrow[:5]), STUDY) is None and settled(made(*narrow), STUDY) == ENOUGH
    assert settled(made(*wide), STUDY) is None and settled(made(*wide, 1.1, 1, 0.8), STUDY) == REPEATED
    assert settled(made(1.0) + made(None, failed="no memory"), STUDY) == FAILED
    assert settled(made(*[None] * 5), STUDY) is None and settled(made(*[None] * 6), STUDY) == REPEATED  # too few steps
    quiet, busy = made(*[1.0] * 6), made(*[3.0] * 9, load=made_up.BUSY)
    assert settled(busy + quiet[:5], STUDY) is None and settled(busy + quiet, STUDY) == ENOUGH
    assert settled(busy + busy, STUDY) == BUSY


def test_all_points_run_once_before_any_is_repeated_and_only_those_that_are_not_sure_beyond_the_least():
    done, order, rng = [], [], random.Random(1)
    for [point] in rounds(STUDY.groups, STUDY, done):
        order.append(point)
        done.append(made_up.record(STUDY, point, seconds=rng.uniform(0.5, 1.5) if point.ranks == 4 else 1.0))
    count = len(STUDY.points)
    turns = [tuple(order[i : i + count]) for i in range(0, 6 * count, count)]
    assert all(len(set(turn)) == count for turn in turns) and len(set(turns)) > 1
    assert {point: order.count(point) for point in STUDY.points} == {
        point: 9 if point.ranks == 4 else 6 for point in STUDY.points
    }


# ----- with runs that are made up


@pytest.fixture
def made_up_runs(monkeypatch):
    """Runs take no time; a list of the points that were run. A test may set `fails` and `after` of it; `jobs`: their sizes."""

    class Runs(list):
        fails = after = staticmethod(lambda point: None)
        jobs = []

    done = Runs()

    def records_of(group, repeat, timeout, seed, turns):
        done.jobs.append(len(group))
        how = ({"turns": True} if turns else {}) | ({"seed": seed} if seed is not None else {})
        return [record_of(point, repeat) | how for point in group]

    def record_of(point, repeat):
        done.after(point)
        done.append(point)
        reason = done.fails(point)
        more = {"failed": reason, "seconds_per_step": None} if reason else {}
        return made_up.record(Study({}), point, repeat, test_accuracy=90.0, environment=environment.here(), **more)

    monkeypatch.setattr(sweep.runs, "records_of", records_of)
    return done


def test_a_sweep_that_is_done_does_nothing_and_one_that_was_cut_off_goes_on(made_up_runs, tmp_path):
    study, out = Study(SMALL), tmp_path / "s.jsonl"
    sweep.sweep(study, out)
    whole = out.read_text()
    out.write_text("".join(whole.splitlines(keepends=True)[:-1]) + '{"half')
    assert sweep.sweep(study, out) == (1, 12) and out.read_text() == whole
    assert sweep.sweep(study, out) == (0, 12) and out.read_text() == whole
    assert sweep.sweep(Study(SMALL | {"ranks": [1, 2, 4]}), out) == (6, 18)


@pytest.mark.parametrize("last", range(3))
def test_what_does_not_compare_is_kept_beside_and_comes_back_however_the_sweep_stops(made_up_runs, tmp_path, monkeypatch, last):
    out, others = tmp_path / "s.jsonl", tmp_path / "s.jsonl.others"
    ten, twenty = (Study(SMALL | {"steps": steps}) for steps in (10, 20))
    sweep.sweep(ten, out)
    first = records.read(out)
    assert not others.exists() and sweep.sweep(twenty, out) == (12, 12) and records.read(others) == first
    write, writes = runs.write_text, []

    def stops(path, text):
        if len(writes) == last:
            raise KeyboardInterrupt
        writes.append(path)
        write(path, text)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(runs, "write_text", stops)
        sweep.sweep(ten, out)
    held = {records.identity(one) for name in (out, others) for one in records.read(name)}
    assert {records.identity(one) for one in first} <= held and len(held) == 24
    assert sweep.sweep(ten, out) == (0, 12) and records.read(out) == first and len(records.read(others)) == 12


def test_measuring_anew_keeps_each_old_run_until_the_new_one_is_there(made_up_runs, tmp_path):
    study, out = Study(SMALL), tmp_path / "s.jsonl"
    sweep.sweep(study, out)
    old, made_up_runs.after = records.read(out), lambda point: 1 / (len(made_up_runs) < 17)
    with pytest.raises(ZeroDivisionError):
        sweep.sweep(study, out, anew=True)
    assert len(made_up_runs) == 17 and list(map(records.identity, records.read(out))) == list(map(records.identity, old))
    made_up_runs.after = lambda point: None
    assert sweep.sweep(study, out, anew=True) == (12, 12) and len(records.read(out)) == 12


def test_a_sweep_goes_on_after_a_failure_says_it_in_one_line_and_tries_it_again(made_up_runs, tmp_path, monkeypatch, capsys):
    made_up_runs.fails = lambda point: "no memory" if point.ranks == 2 else None
    out = tmp_path / "s.jsonl"
    words = "sweep", "--ranks", "1,2,4", "--schemes", "batch", "--out", out
    with pytest.raises(UserError, match="^1 point failed, as the table says; the first: no memory$"):
        run_main(monkeypatch, *words)
    assert "failed: no memory" in capsys.readouterr().out and len(records.read(out)) == 13
    made_up_runs.fails = lambda point: None
    assert sweep.sweep(Study(SMALL | {"ranks": [1, 2, 4]}), out) == (6, 18)


def test_each_run_is_in_the_file_at_once_and_a_signal_keeps_what_is_done(made_up_runs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "s.jsonl"

    def after(point):
        assert len(records.read(out)) == len(made_up_runs)
        if len(made_up_runs) == 5:
            os.kill(os.getpid(), signal.SIGUSR1)

    made_up_runs.after = after
    with pytest.raises(SystemExit) as ended:
        run_main(monkeypatch, "sweep", "--nets", "mlp:8,relu", "--ranks", "1,2", "--out", out)
    assert ended.value.code == 75 and "the same command line goes on from here" in capsys.readouterr().err
    assert len(records.read(out)) == 5


def test_parts_are_every_nth_point_and_are_gathered_without_dropping_runs(made_up_runs, tmp_path):
    study, files = Study({"ranks": [1, 2, 4]}), [tmp_path / f"{i}.jsonl" for i in range(1, 5)]
    assert len(study.points) == 6
    parts = [sweep.sweep(study, file, part=(i, 4)) for i, file in enumerate(files, 1)]
    assert parts == [(12, 12), (12, 12), (6, 6), (6, 6)]
    out = tmp_path / "all.jsonl"
    assert sweep.gather([*files, files[0]], out) == f"36 runs written to {out}"
    assert sweep.gather(files[:3], tmp_path / "some.jsonl").count("; 6 runs missing, such as ") == 1
    with pytest.raises(ValueError, match="has runs that none of these files has"):
        sweep.gather(files[:3], out)
    assert len(records.read(out)) == 36


def test_each_repeat_has_its_seed_and_series_that_take_turns_are_one_job_a_round(made_up_runs, tmp_path):
    out, given = tmp_path / "s.jsonl", {"ranks": [1, 2], "series": SERIES, "metric": "accuracy", "epochs": 2, "turns": True}
    assert sweep.sweep(Study(given | {"seeds": [3, 5]}), out) == (6, 6) and sorted(made_up_runs.jobs) == [1, 1, 2, 2]
    assert {(one["repeat"], one["seed"]) for one in records.read(out)} == {(0, 3), (1, 5)}
    assert sweep.sweep(Study(given | {"seeds": [4, 5]}), out) == (3, 6)  # 5 is there, and 3 does not compare


def test_bad_sweeps_are_refused_before_anything_runs_and_a_dry_run_runs_nothing(made_up_runs, tmp_path, monkeypatch, capsys):
    words = "sweep", "--ranks", "1,2", "--nets", "mlp:8,relu", "--out", tmp_path / "s.jsonl"
    for more, message in (
        ("--vary lr=0.1 --vary lr=0.2", "lr"), ("--vary reductoin=plain", "did you mean reduction"), ("none.toml", "none.toml"),
        ("--out /proc/no/s.jsonl", "/proc/no"), ("--part 5/4", "at most 4"), ("--shape 4", "--predict"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=re.escape(message)) as error:
            run_main(monkeypatch, *words, *more.split())
        assert "\n" not in str(error.value)
    run_main(monkeypatch, *words, "--dry-run")
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("3 points, 18 to 36 runs") and "nothing was run" in last
    assert not made_up_runs and list(tmp_path.iterdir()) == []


# ----- real runs, small


def test_a_sweep_measures_and_predicts_each_point(tmp_path, monkeypatch):
    out = tmp_path / "s.jsonl"
    options = "--nets", "mlp:8,8,relu", "--ranks", "1,2", "--steps", 8, "--repeats", 1, "--machine", "cori-haswell"
    run_main(monkeypatch, "sweep", *options, "--csv", out.with_suffix(".csv"), "--out", out)
    measured, predicted = ([one for one in records.read(out) if bool(one.get("predicted")) == kind] for kind in (False, True))
    grids = {"batch=1,model=1", "batch=2,model=1", "batch=1,model=2"}
    assert {one["grid"] for one in measured} == {one["grid"] for one in predicted} == grids
    assert len({round(one["final_loss"], 5) for one in measured}) == 1, "every grid trains the same network"
    assert all(one["core"]["reference_products_per_step"] * one["core"]["reference_seconds"] > 0 for one in measured)
    assert out.with_suffix(".csv").is_file() and out.with_suffix(".html").is_file()


def test_trainings_that_take_turns_are_the_same_as_each_alone():
    series = [{"name": "PowerSGD", "grid": "batch=*", "reduction": "powersgd:1"},
              {"name": "shares", "grid": "model=*", "shares": "2,1", "handicap": "1=2", "plan": "out"}]  # fmt: skip
    [group] = Study({"nets": ["mlp:16,16,relu"], "ranks": [2], "series": series, "steps": 12, "turns": True}).groups
    for point, together in zip(group, runs.records_of(group, 3, 60, turns=True), strict=True):
        [alone] = runs.records_of((point,), 0, 60)
        names = "bytes", "final_loss", "params_digest"
        assert [together[name] for name in names] == [alone[name] for name in names], point


def test_a_run_that_fails_or_takes_too_long_is_a_record_with_its_reason():
    study = Study({"nets": ["mlp:8,relu"], "ranks": [1], "batch_size": 10**6})
    failed = runs.records_of(study.points[:1], 3, 60)[0]
    assert "--batch-size 1000000 is larger than the data" in failed["failed"] and failed["repeat"] == 3
    slow = runs.records_of(Study({"nets": ["mlp:8,relu"], "ranks": [1], "steps": 10**7}).points, 0, 3)[0]
    assert slow["failed"] == "took longer than --timeout 3 s and was ended"


def test_parallelism_by_hand_is_the_same_training():
    series = [{"name": "by hand", "grid": "model=*", "program": "by_hand.py"}, {"name": "chosen", "grid": "model=*"}]
    study = Study({"nets": ["mlp:16,16,relu"], "ranks": [2], "series": series, "steps": 12, "schedule": "constant",
                   "dataset": "random:8,3,64", "batch_size": 9, "turns": True, "dtype": "float64"})  # fmt: skip
    hand, ours = (runs.records_of(group, 0, 60, turns=True)[0] for group in study.groups)
    assert hand["final_loss"] == pytest.approx(ours["final_loss"], rel=1e-10)
