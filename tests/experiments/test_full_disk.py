"""A disk that is full, or becomes full while a training writes checkpoints, and has room again later."""

import json
import os
import subprocess
import sys

import pytest

from gridgrad.experiments import sweep
from gridgrad.experiments.common.options import ROOM
from gridgrad.experiments.plots.style import plt, save
from gridgrad.experiments.scaling import environment, records
from gridgrad.nn.files.whole_files import NotWritten
from gridgrad.parallel.checkpoint.manifest import FOLDER, LOCK, found_in
from tests.disk import files_end_at
from tests.experiments.programs import job

pytestmark = pytest.mark.mpi  # it starts jobs


TINY = ["--net", "mlp:8,relu", "--steps", 2, "--grid", "batch=2", "--reduction", "plain"]


@pytest.mark.parametrize(("room", "size", "trains"), [(ROOM, ROOM - 1, False), (16, 1000, True)])
def test_a_report_that_can_not_be_written_is_said_before_training_or_named_after_it(tmp_path, monkeypatch, room, size, trains):
    monkeypatch.setenv("GRIDGRAD_KERNELS", "plain")
    path = tmp_path / "report.json"
    full = job(2, "tests.experiments.on_full_disk", room, size, *TINY, "--report", path)
    where = f"{path}: File too large; make room there" if trains else f"to {tmp_path}: File too large; choose another folder"
    (error,) = (line for line in full.stderr.splitlines() if "can not write" in line)  # some launchers add lines of their own
    assert full.status == 2 and error.startswith(f"on_full_disk: error: can not write {where}")
    assert "Traceback" not in full.stderr and ("test mean squared error" in full.stdout) == trains
    assert os.listdir(tmp_path) == []


def test_a_sweep_keeps_the_runs_that_it_could_write(tmp_path, monkeypatch):
    def long_records(group, repeat, *_):
        [point] = group
        known = {"net": point.settings["net"], "grid": point.settings["grid"], "P": 1, "point": point.settings}
        known |= {"repeat": repeat, "took": 1.0, "environment": environment.here(), "seconds_per_step": None}
        return [known | {"loss": [0.1] * (ROOM // 20)}]

    out = tmp_path / "sweep.jsonl"
    monkeypatch.setattr(sweep.runs, "records_of", long_records)
    monkeypatch.setattr(sys, "argv", ["sweep", "--ranks", "1", "--nets", "mlp:8,relu", "--repeats", "9", "--out", str(out)])
    with files_end_at(ROOM), pytest.raises(NotWritten, match=f"^can not write {out}: File too large; make room"):
        sweep.main()
    assert sorted(os.listdir(tmp_path)) == ["sweep.jsonl", "sweep.jsonl.lock"] and 0 < len(records.read(out)) < 9
    sweep.main()
    assert len(records.read(out)) == 9


def test_a_figure_that_can_not_be_written_is_named(tmp_path):
    figure, _ = plt.subplots()
    for suffix in ("png", "pdf", "svg"):
        path = tmp_path / f"figure.{suffix}"
        with files_end_at(1000), pytest.raises(NotWritten, match=f"^can not write {path}: File too large"):
            save(figure, path)
    assert os.listdir(tmp_path) == []


@pytest.fixture
def disk(tmp_path):
    """A disk in memory with room for three checkpoints. Only root can make one."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a small disk")
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120k", "none", path], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"this root may not mount: {made.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def test_what_fits_is_kept_and_goes_on_when_there_is_room(disk, tmp_path):
    words = ["train", "--grid", "batch=2", "--net", "mlp:32,32,relu", "--batch-size", 64, "--steps", 60, "--keep", 9]
    words += ["--checkpoint", disk / "runs", "--checkpoint-steps", 10, "--resume", disk / "runs"]
    words += ["--report", tmp_path / "report.json"]
    full = job(2, *words)
    kept, passed_over = found_in(disk / "runs")
    assert full.status == 2, full.stderr
    assert json.loads((tmp_path / "report.json").read_text())["steps"] == 60  # the results are not lost with the checkpoint
    assert 0 < len(kept) < 6 and not passed_over and not any(one.damage(entry) for one in kept for entry in one.files)
    assert {path.name for path in (disk / "runs").iterdir()} == {LOCK, *(one.folder.name for one in kept)}
    where = disk / "runs" / f"{FOLDER}{60:09d}"
    (error,) = (line for line in full.stderr.splitlines() if "train: error: " in line)
    assert error.startswith(f"train: error: the checkpoint after step 60 can not be written: {where}")
    assert error.endswith(": No space left on device") and full.stderr.count("No space left") == 7 - len(kept)
    assert full.stderr.count("training goes on, and earlier checkpoints are as they were") == 6 - len(kept)
    subprocess.run(["mount", "-o", "remount,size=10m", disk], check=True)
    roomy = job(2, *words)
    assert roomy.status == 0, roomy.stderr
    assert f"goes on after step {kept[0].step}" in roomy.stdout and found_in(disk / "runs")[0][0].step == 60


@pytest.mark.long
def test_a_disk_that_can_not_be_written_is_said_at_once_and_what_it_has_can_be_read(disk, tmp_path):
    words = ["train", "--grid", "batch=2", "--net", "mlp:8,relu", "--quiet", "--steps"]
    first = job(2, *words, 4, "--checkpoint", disk / "runs")
    assert first.status == 0, first.stderr
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for folder in ("runs", "others"):
        refused = job(2, *words, 8, "--checkpoint", disk / folder, "--resume", disk / folder)
        assert refused.status == 2 and refused.stderr.startswith("train: error: ") and refused.stderr.count("\n") == 1
        assert "Read-only file system" in refused.stderr and "step" not in refused.stdout
    again = job(2, *words, 4, "--resume", disk / "runs", "--report", tmp_path / "report.json")
    assert again.status == 0 and json.loads((tmp_path / "report.json").read_text())["resumed"] == 4, again.stderr
