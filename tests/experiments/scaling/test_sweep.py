"""The program `sweep`: real runs, small; and with runs that are made up, interruptions, failures and parts."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gridgrad.experiments import sweep
from gridgrad.experiments.scaling import environment, records, runs
from gridgrad.experiments.scaling.study import Study
from gridgrad.parallel.job.run import UserError
from tests.experiments.programs import program
from tests.experiments.scaling import made_up_studies as made_up

pytestmark = pytest.mark.mpi  # it starts jobs


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "s.jsonl"
    options = "--nets", "mlp:8,8,relu;mlp:16,relu", "--ranks", "1,2", "--steps", 8, "--repeats", 1
    finished = program("sweep", *options, "--csv", path.with_suffix(".csv"), "--out", path)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == "" and "runs written" in finished.stdout  # no progress bar
    return path


def test_a_sweep_writes_a_record_a_run(swept):
    found = records.read(swept)
    assert {one["repeat"] for one in found} <= {0, 1}  # 2 nets x 3 grids; those beside other programs twice
    assert {one["grid"] for one in found} == {"batch=1,model=1", "batch=2,model=1", "batch=1,model=2"}
    assert all(one["oversubscribed"] == (one["P"] > one["slots"]) for one in found)
    losses = {(one["net"], round(one["final_loss"], 5)) for one in found}
    assert len(losses) == 2, "every grid trains the same network"
    here = environment.here() | {"kernels": found[0]["environment"]["kernels"]}  # this process may have several BLAS threads
    assert [environment.differences(one["environment"], here) for one in found] == [[]] * len(found)
    assert all(one["flops_a_sample"] > 0 and one["took"] > 0 and one["loss"] is None for one in found)
    assert all(one["core"]["reference_products_per_step"] * one["core"]["reference_seconds"] > 0 for one in found)
    rows = sum(3 if one["P"] == 1 else 1 for one in found)  # a run on one rank is in all three series
    assert len({records.key_of(one) for one in found}) == 6
    assert len(swept.with_suffix(".csv").read_text().splitlines()) == 1 + rows


@pytest.fixture
def made_up_runs(monkeypatch):
    """Runs take no time; the list of the points that were run. A test may set `fails` and `after` of it."""

    class Runs(list):
        fails = after = staticmethod(lambda point: None)

    done = Runs()

    def records_of(group, repeat, timeout, seed, turns):
        how = ({"turns": True} if turns else {}) | ({"seed": seed} if seed is not None else {})
        return [record_of(point, repeat) | how for point in group]

    def record_of(point, repeat):
        done.after(point)
        done.append(point)
        known = made_up.record(Study({}), point, repeat) | {"environment": environment.here(), "curves": [], "sweep": {}}
        reason = done.fails(point)
        return {name: known[name] for name in ("net", "P", "grid", "point", "repeat", "took", "environment")} | (
            {"failed": reason} if reason else known
        )

    monkeypatch.setattr(sweep.runs, "records_of", records_of)
    return done


def test_a_sweep_that_is_done_does_nothing_and_one_that_was_cut_off_goes_on(made_up_runs, tmp_path):
    study, out = Study({"ranks": [1, 2], "schemes": ["batch"]}), tmp_path / "s.jsonl"
    sweep.sweep(study, out)
    whole = out.read_text()
    out.write_text("".join(whole.splitlines(keepends=True)[:-1]) + '{"half')
    assert sweep.sweep(study, out) == (1, 12) and out.read_text() == whole
    assert sweep.sweep(study, out) == (0, 12) and out.read_text() == whole
    assert sweep.sweep(Study({"ranks": [1, 2, 4], "schemes": ["batch"]}), out) == (6, 18)


def test_what_does_not_compare_is_kept_beside_the_file_and_comes_back(made_up_runs, tmp_path):
    out, others = tmp_path / "s.jsonl", tmp_path / "s.jsonl.others"
    ten, twenty = (Study({"ranks": [1, 2], "schemes": ["batch"], "steps": steps}) for steps in (10, 20))
    assert sweep.sweep(ten, out) == (12, 12) and not others.exists()
    first = records.read(out)
    assert sweep.sweep(twenty, out) == (12, 12) and records.read(others) == first
    assert sweep.sweep(ten, out) == (0, 12) and records.read(out) == first and len(records.read(others)) == 12
    assert sweep.sweep(ten, out, anew=True) == (12, 12)


def test_a_sweep_goes_on_after_a_failure_and_tries_it_again_when_it_is_started_again(made_up_runs, tmp_path):
    made_up_runs.fails = lambda point: "no memory" if point.ranks == 2 else None
    study, out = Study({"ranks": [1, 2, 4], "schemes": ["batch"]}), tmp_path / "s.jsonl"
    assert sweep.sweep(study, out) == (13, 13)
    assert [one["failed"] for one in records.read(out) if one.get("failed")] == ["no memory"]
    made_up_runs.fails = lambda point: None
    assert sweep.sweep(study, out) == (6, 18)


def test_points_that_failed_are_said_in_one_line_when_all_others_are_done(made_up_runs, tmp_path, monkeypatch, capsys):
    made_up_runs.fails = lambda point: "no memory" if point.ranks == 2 else None
    out = tmp_path / "s.jsonl"
    monkeypatch.setattr(sys, "argv", ["sweep", "--ranks", "1,2", "--schemes", "batch,model", "--out", str(out)])
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with pytest.raises(UserError, match="^2 points failed, as the table says; the first: no memory$"):
            sweep.main()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "failed: no memory" in capsys.readouterr().out and len(records.read(out)) == 8
    assert out.with_suffix(".html").is_file()


def test_each_run_is_in_the_file_at_once_and_a_signal_keeps_what_is_done(made_up_runs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "s.jsonl"

    def after(point):
        assert len(records.read(out)) == len(made_up_runs)
        if len(made_up_runs) == 5:
            os.kill(os.getpid(), signal.SIGUSR1)

    made_up_runs.after = after
    monkeypatch.setattr(sys, "argv", ["sweep", "--nets", "mlp:8,relu", "--ranks", "1,2", "--out", str(out)])
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with pytest.raises(SystemExit) as ended:
            sweep.main()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended.value.code == 75 and "the same command line goes on from here" in capsys.readouterr().err
    assert len(records.read(out)) == 5


def test_no_run_is_started_that_would_end_after_the_minutes(made_up_runs, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(sweep.time, "monotonic", lambda: clock[0])
    made_up_runs.after = lambda point: clock.__setitem__(0, clock[0] + 1.5)
    study = Study({"ranks": [1, 2], "schemes": ["batch"], "minutes": 0.1})
    now, _ = sweep.sweep(study, tmp_path / "s.jsonl")
    assert now == 4  # of 1.5 seconds each, within 6


def test_short_points_go_on_where_there_is_no_time_for_a_long_one(made_up_runs, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(sweep.time, "monotonic", lambda: clock[0])
    made_up_runs.after = lambda point: clock.__setitem__(0, clock[0] + 1.5)
    out, study = tmp_path / "s.jsonl", Study({"ranks": [1, 2], "schemes": ["batch"], "minutes": 0.1})
    long = made_up.record(study, study.points[1], 0) | {"took": 100.0, "environment": environment.here()}
    out.write_text(records.lines([long]))
    assert sweep.sweep(study, out) == (4, 5)
    assert set(made_up_runs) == {study.points[0]}


@pytest.mark.parametrize("last", range(3))
def test_runs_that_come_back_are_in_a_file_whenever_the_sweep_is_stopped(made_up_runs, tmp_path, monkeypatch, last):
    out = tmp_path / "s.jsonl"
    ten, twenty = (Study({"ranks": [1, 2], "schemes": ["batch"], "steps": steps}) for steps in (10, 20))
    sweep.sweep(ten, out)
    first = records.read(out)
    sweep.sweep(twenty, out)
    write, writes = runs.write_text, []

    def stops(path, text):
        if len(writes) == last:
            raise KeyboardInterrupt
        writes.append(path)
        write(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "write_text", stops)
        with pytest.raises(KeyboardInterrupt):
            sweep.sweep(ten, out)
    held = {records.identity(one) for name in (out, f"{out}.others") for one in records.read(name)}
    assert {records.identity(one) for one in first} <= held and len(held) == 24
    assert sweep.sweep(ten, out) == (0, 12) and records.read(out) == first
    assert len(records.read(f"{out}.others")) == 12


def test_measuring_anew_keeps_each_old_run_until_the_new_one_is_there(made_up_runs, tmp_path):
    study, out = Study({"ranks": [1, 2], "schemes": ["batch"]}), tmp_path / "s.jsonl"
    sweep.sweep(study, out)
    old, made_up_runs.after = records.read(out), lambda point: 1 / (len(made_up_runs) < 17)
    with pytest.raises(ZeroDivisionError):
        sweep.sweep(study, out, anew=True)
    assert len(made_up_runs) == 17 and list(map(records.identity, records.read(out))) == list(map(records.identity, old))
    made_up_runs.after = lambda point: None
    assert sweep.sweep(study, out, anew=True) == (12, 12) and len(records.read(out)) == 12


def test_a_sweep_that_is_started_again_measures_what_was_disturbed(made_up_runs, tmp_path, monkeypatch):
    study, out = Study({"ranks": [1, 2], "schemes": ["batch"]}), tmp_path / "s.jsonl"
    disturb = lambda record: record | ({"load": made_up.BUSY} if record["P"] == 2 else {})  # noqa: E731
    quiet = runs.records_of
    with monkeypatch.context() as patch:
        patch.setattr(sweep.runs, "records_of", lambda *arguments: list(map(disturb, quiet(*arguments))))
        assert sweep.sweep(study, out) == (6 + 24, 6 + 24)
    assert sweep.sweep(study, out) == (6, 12)
    assert len(records.read(out)) == 12 and not any(one["load"] for one in records.read(out))


def test_of_two_sweeps_with_one_file_the_second_is_refused(tmp_path):
    out = tmp_path / "s.jsonl"
    words = "from gridgrad.experiments.scaling.runs import locked"
    other = [sys.executable, "-c", f"{words}\nwith locked({str(out)!r}): pass"]
    with runs.locked(out):
        finished = subprocess.run(other, capture_output=True, text=True)
        assert finished.returncode == 1 and f"another sweep writes {out} (process {os.getpid()} on " in finished.stderr
    assert subprocess.run(other).returncode == 0


def test_gathering_and_predicting_wait_for_a_sweep_and_leave_files_of_others(made_up_runs, tmp_path, monkeypatch):
    out, real = tmp_path / "s.jsonl", tmp_path / "real.jsonl"
    sweep.sweep(Study({"ranks": [1, 2], "schemes": ["batch"]}), real)
    before = real.read_bytes()
    out.symlink_to(real)  # of which the lock is that of the file
    Path(f"{real}.lock").write_text("mine")
    Path(f"{real}.others").write_text("mine, without a line break")
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.lockf", lambda *arguments: exec("raise BlockingIOError(11, 'held')"))
        for words in (["--gather", str(real)], ["--predict", "1,2", "--nets", "mlp:8,relu"]):
            patch.setattr(sys, "argv", ["sweep", *words, "--out", str(out)])
            with pytest.raises(UserError, match=f"another sweep writes {out} .*: wait for its end"):
                sweep.main()
    assert real.read_bytes() == before
    monkeypatch.setattr(sys, "argv", ["sweep", "--gather", str(real), "--out", str(out)])
    sweep.main()
    assert Path(f"{real}.lock").read_text() == "mine"
    with pytest.raises(UserError, match="real.jsonl.others, line 1, is no report of a sweep"):
        sweep.sweep(Study({"ranks": [1, 2], "schemes": ["batch"]}), real)
    assert Path(f"{real}.others").read_text() == "mine, without a line break"


def test_gathering_does_not_drop_what_the_file_has_and_asks_nothing_of_predictions(made_up_runs, tmp_path):
    study, out = Study({"ranks": [1, 2], "schemes": ["batch"]}), tmp_path / "s.jsonl"
    sweep.sweep(study, out)
    predicted = [one | {"predicted": True, "machine": "a", "repeat": 0} for one in records.read(out)[:1]]
    (tmp_path / "p.jsonl").write_text(records.lines(predicted))
    with pytest.raises(ValueError, match="has runs that none of these files has"):
        sweep.gather([tmp_path / "p.jsonl"], out)
    assert "missing" not in sweep.gather([tmp_path / "p.jsonl"], tmp_path / "all.jsonl")
    unknown = [one | {"sweep": {"no_such_setting": 1}} for one in records.read(out)]
    (tmp_path / "old.jsonl").write_text(records.lines(unknown))
    assert "missing" not in sweep.gather([tmp_path / "old.jsonl"], tmp_path / "again.jsonl")


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        ("Traceback\n  raise ValueError('x')\nValueError: no room\nabort", "ValueError: no room"),
        ("  BAD TERMINATION\nEXIT STRING: Killed (signal 9)", "a rank was killed, as the system does where memory is full"),
        ("nothing", "no message"),
    ],
)
def test_the_reason_of_a_failure_is_the_last_error(stderr, words):
    assert runs.reason(stderr) == words


def test_a_part_is_every_nth_point(made_up_runs, tmp_path):
    study, files = Study({"ranks": [1, 2, 4]}), [tmp_path / f"{i}.jsonl" for i in range(1, 5)]
    assert len(study.points) == 6
    parts = [sweep.sweep(study, file, part=(i, 4)) for i, file in enumerate(files, 1)]
    assert parts == [(12, 12), (12, 12), (6, 6), (6, 6)]
    assert sweep.sweep(study, tmp_path / "7.jsonl", part=(7, 7)) == (0, 0)  # more parts than points
    files.append(tmp_path / "7.jsonl")
    assert sweep.gather(files, tmp_path / "all.jsonl") == f"36 runs written to {tmp_path / 'all.jsonl'}"


def test_a_run_that_fails_or_takes_too_long_is_a_record_with_its_reason():
    study = Study({"nets": ["mlp:8,relu"], "ranks": [1], "batch_size": 10**6})
    failed = runs.records_of(study.points[:1], 3, 60)[0]
    assert "--batch-size 1000000 is larger than the data" in failed["failed"] and failed["repeat"] == 3
    slow = runs.records_of(Study({"nets": ["mlp:8,relu"], "ranks": [1], "steps": 10**7}).points, 0, 3)[0]
    assert slow["failed"] == "took longer than --timeout 3 s and was ended"
    json.dumps([failed, slow])


def test_threads_and_emulated_hosts_say_how_a_job_starts():
    series = [{"name": "a", "grid": "batch=*", "threads": 3, "hosts": 2, "delay": 12.5}]
    point = Study({"ranks": [2], "series": series}).points[0]
    how = runs.how_to_start(point)
    assert how["env"] == {"OMP_NUM_THREADS": "3"} and how["launcher"][-4:] == ["--hosts", "2", "--delay", "12.5"]
    assert runs.how_to_start(Study({"ranks": [2]}).points[0]) == {}


def test_bad_sweeps_are_refused_before_anything_runs(tmp_path, monkeypatch):
    for words, message in (
        ("--vary lr=0.1 --vary lr=0.2", "--vary lr is given twice"), ("--schemes rows", "must be one of batch, model"),
        ("--ranks 1,x", "whole number"), ("no-such-file.toml", "No such file"), ("--nets mlp:32,relu;foo", "unknown net 'foo'"),
        ("--out /proc/no/s.jsonl", "can not write"), ("--part 5/4", "at most 4, not '5'"), ("--part 2", "must be I/N"),
        ("--vary reduction", "must be NAME=VALUE;VALUE"), ("--vary reductoin=plain", "did you mean reduction"),
        ("--shape 4", "they go with --predict"), ("--machine summit", "summit"),
    ):  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["sweep", "--ranks", "1", "--out", str(tmp_path / "s.jsonl"), *words.split()])
        with pytest.raises(UserError, match=re.escape(message)) as error:
            sweep.main()
        assert "\n" not in str(error.value) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"ranks = [1, 2", b"dataset = '\xff'", b"\x89PNG", b"batch_size = "])
def test_a_settings_file_that_is_no_toml_is_named(tmp_path, content):
    (tmp_path / "s.toml").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 's.toml'} is no TOML file")):
        sweep.settings.read(tmp_path / "s.toml")


def test_a_dry_run_lists_the_points_with_node_hours_and_runs_nothing(tmp_path):
    finished = program("sweep", "--nets", "mlp:8,relu", "--ranks", "1,2,64", "--dry-run", "--out", tmp_path / "s.jsonl")
    assert finished.returncode == 0, finished.stderr
    head, *lines, last = finished.stdout.splitlines()
    assert len(lines) == 6 and "node-hours" in head and last.startswith("6 points, 36 to 72 runs") and "nothing was run" in last
    assert list(tmp_path.iterdir()) == []


def test_the_same_points_are_predicted_beside_the_runs(tmp_path):
    out = tmp_path / "s.jsonl"
    options = "--nets", "mlp:8,relu", "--schemes", "batch", "--steps", 6, "--repeats", 1, "--machine", "cori-haswell"
    finished = program("sweep", *options, "--out", out)
    assert finished.returncode == 0, finished.stderr
    found = records.read(out)
    assert "predicted ms" in finished.stdout and [one["P"] for one in found if one.get("predicted")] == [1, 2]
    assert {tuple(one["shape"]) for one in found if one.get("predicted")} == {(4,)}  # that of airfoil
    again = program("sweep", *options, "--out", out)
    assert again.returncode == 0 and not Path(f"{out}.others").exists()
    assert [one["P"] for one in records.read(out) if one.get("predicted")] == [1, 2]
