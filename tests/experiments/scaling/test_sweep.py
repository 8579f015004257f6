"""The program `sweep`: real runs, small; and with runs that are made up, interruptions, failures and parts."""

import json
import os
import signal
import sys

import pytest

from gridgrad.experiments import sweep
from gridgrad.experiments.scaling import environment, records, runs
from gridgrad.experiments.scaling.study import Study
from tests.experiments.programs import program
from tests.experiments.scaling import made_up_studies as made_up

pytestmark = pytest.mark.mpi  # it starts jobs


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "s.jsonl"
    options = "--nets", "mlp:8,8,relu;mlp:16,relu", "--ranks", "1,2", "--steps", 8, "--repeats", 1
    finished = program("sweep", *options, "--csv", path.with_suffix(".csv"), "--out", path)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == "" and "6 runs written" in finished.stdout  # 2 nets x 3 grids; no progress bar
    return path


def test_a_sweep_writes_a_record_a_run(swept):
    found = records.read(swept)
    assert {one["grid"] for one in found} == {"batch=1,model=1", "batch=2,model=1", "batch=1,model=2"}
    assert all(one["oversubscribed"] == (one["P"] > one["slots"]) for one in found)
    losses = {(one["net"], round(one["final_loss"], 5)) for one in found}
    assert len(losses) == 2, "every grid trains the same network"
    assert all(environment.same(one["environment"]) == environment.same(environment.here()) for one in found)
    assert all(one["flops_a_sample"] > 0 and one["took"] > 0 and one["loss"] is None for one in found)
    assert len(swept.with_suffix(".csv").read_text().splitlines()) == 1 + 2 * 5  # a run on one rank is in all three series


def test_a_sweep_that_is_done_does_nothing_and_a_longer_one_adds_to_it(swept, tmp_path):
    given = records.read(swept)[0]["sweep"]
    out = tmp_path / "s.jsonl"
    out.write_text("".join(swept.read_text().splitlines(keepends=True)[:-1]) + '{"half')
    assert sweep.sweep(Study(given), out) == (1, 6)
    assert records.read(out)[:-1] == records.read(swept)[:-1]
    before = out.read_text()
    assert sweep.sweep(Study(given), out) == (0, 6) and out.read_text() == before


@pytest.fixture
def made_up_runs(monkeypatch):
    """Runs take no time; the list of the points that were run. A test may set `fails` and `after` of it."""

    class Runs(list):
        fails = after = staticmethod(lambda point: None)

    done = Runs()

    def record_of(point, repeat, timeout):
        done.after(point)
        done.append(point)
        known = made_up.record(Study({}), point, repeat) | {"environment": environment.here(), "curves": [], "sweep": {}}
        reason = done.fails(point)
        return {name: known[name] for name in ("net", "P", "grid", "point", "repeat", "took", "environment")} | (
            {"failed": reason} if reason else known
        )

    monkeypatch.setattr(sweep, "record_of", record_of)
    return done


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


def test_a_part_is_every_nth_point(made_up_runs, tmp_path):
    study, files = Study({"ranks": [1, 2, 4]}), [tmp_path / f"{i}.jsonl" for i in range(1, 5)]
    assert len(study.points) == 6
    parts = [sweep.sweep(study, file, part=(i, 4)) for i, file in enumerate(files, 1)]
    assert parts == [(12, 12), (12, 12), (6, 6), (6, 6)]
    assert sweep.gather(files, tmp_path / "all.jsonl") == f"36 runs written to {tmp_path / 'all.jsonl'}"


def test_a_run_that_fails_or_takes_too_long_is_a_record_with_its_reason():
    study = Study({"nets": ["mlp:8,relu"], "ranks": [1], "batch_size": 10**6})
    failed = runs.record_of(study.points[0], 3, 60)
    assert "--batch-size 1000000 is larger than the data" in failed["failed"] and failed["repeat"] == 3
    slow = runs.record_of(Study({"nets": ["mlp:8,relu"], "ranks": [1], "steps": 10**7}).points[0], 0, 3)
    assert slow["failed"] == "took longer than --timeout 3 s and was ended"
    json.dumps([failed, slow])


def test_threads_and_emulated_hosts_say_how_a_job_starts():
    series = [{"name": "a", "grid": "batch=*", "threads": 3, "hosts": 2, "delay": 12.5}]
    point = Study({"ranks": [2], "series": series}).points[0]
    how = runs.how_to_start(point)
    assert how["env"] == {"OMP_NUM_THREADS": "3"} and how["launcher"][-4:] == ["--hosts", "2", "--delay", "12.5"]
    assert runs.how_to_start(Study({"ranks": [2]}).points[0]) == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schemes", "rows"], "must be one of batch, model, 2d, height, auto, not 'rows'"),
        (["--ranks", "1,x"], "whole number"),
        (["no-such-file.toml"], "No such file"),
        (["--nets", "mlp:32,relu;foo"], "foo on batch=1,model=1: unknown net 'foo'"),
        (["--out", "/proc/no/s.jsonl"], "can not write"),
        (["--part", "5/4"], "must be a whole number of at least 1 and at most 4, not '5'"),
        (["--part", "2"], "must be I/N, such as 2/4, not '2'"),
        (["--vary", "reduction"], "must be NAME=VALUE;VALUE, such as batch-size=64;256, not 'reduction'"),
        (["--vary", "reductoin=plain"], "unknown setting reductoin (did you mean reduction?)"),
        (["--shape", "4"], "they go with --predict"),
        (["--machine", "summit"], "summit"),
    ],
)
def test_bad_sweeps_are_refused_before_anything_runs(arguments, message, tmp_path):
    out = [] if "--out" in arguments else ["--out", tmp_path / "s.jsonl"]
    finished = program("sweep", "--ranks", "1", "--steps", 2, *out, *arguments)
    assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"ranks = [1, 2", b"dataset = '\xff'", b"\x89PNG", b"batch_size = "])
def test_a_settings_file_that_is_no_toml_is_named(tmp_path, content):
    (tmp_path / "s.toml").write_bytes(content)
    finished = program("sweep", tmp_path / "s.toml", "--out", tmp_path / "s.jsonl")
    assert finished.returncode == 2 and finished.stderr.count("\n") == 1
    assert f"{tmp_path / 's.toml'} is no TOML file" in finished.stderr


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
    assert (
        "predicted ms" in finished.stdout
        and [bool(one.get("predicted")) for one in records.read(out)] == [False] * 2 + [True] * 2
    )
    again = program("sweep", *options, "--out", out)
    assert "2 of which were there already" in again.stdout and len(records.read(out)) == 4
