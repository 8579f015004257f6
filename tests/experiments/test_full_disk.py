"""Disks and files: one that is full, or becomes full while checkpoints are written; checkpoints that are wrong."""

import json
import os
import re
import subprocess

import pytest
from mpi4py import MPI

from gridgrad.experiments.common import options
from gridgrad.experiments.common.options import ROOM
from gridgrad.parallel.checkpoint.manifest import FOLDER, LOCK, found_in
from gridgrad.parallel.job.run import UserError, one_line
from tests.disk import files_end_at
from tests.experiments.programs import called, job, run_main
from tests.parallel.checkpoint.test_manifest import checkpoint

TINY = "--net", "mlp:8,relu", "--steps", 2, "--reduction", "plain"


@pytest.mark.parametrize(("room", "size", "trains"), [(ROOM, ROOM - 1, False), (16, 1000, True)])
def test_a_report_that_can_not_be_written_is_said_before_training_or_after_it(
    tmp_path, monkeypatch, capsys, room, size, trains
):
    monkeypatch.setattr(options, "ROOM", room)
    path = tmp_path / "report.json"
    with (
        pytest.raises(UserError) as refused,
        called(MPI.COMM_SELF, "train", [*TINY, "--report", path]) as main,
        files_end_at(size),
    ):
        main()
    assert str(path if trains else tmp_path) in one_line(refused.value) and "File too large" in one_line(refused.value)
    assert ("test mean squared error" in capsys.readouterr().out) == trains
    assert os.listdir(tmp_path) == []


@pytest.fixture
def disk(tmp_path):
    """A disk in memory with room for three checkpoints. Only root can make one."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120k", "none", path], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no disk can be made here: {made.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.mpi  # it starts jobs
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
    (error,) = (line for line in full.stderr.splitlines() if "train: error: " in line)
    assert str(disk / "runs" / f"{FOLDER}{60:09d}") in error and error.endswith(": No space left on device")
    subprocess.run(["mount", "-o", "remount,size=10m", disk], check=True)
    roomy = job(2, *words)
    assert roomy.status == 0, roomy.stderr
    assert f"goes on after step {kept[0].step}" in roomy.stdout and found_in(disk / "runs")[0][0].step == 60


# ----- the program `checkpoints`


def test_what_is_whole_and_what_is_wrong_is_listed(tmp_path, monkeypatch, capsys):
    made = [checkpoint(tmp_path, step, value) for step, value in ((10, 0.5), (20, None), (30, 0.25))]
    (made[1].folder / "rank-0001.h5").write_bytes(b"short")
    (made[2].folder / "manifest.json").write_text("{}")
    run_main(monkeypatch, "checkpoints", tmp_path)
    _, *rows = (re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines())
    assert [(row[1], row[3], row[-2]) for row in rows[:2]] == [("10", "2", "0.5"), ("20", "2", "-")]
    ends = "whole", "has 5 bytes instead of 18", "damaged"
    assert [row[-1].endswith(end) for row, end in zip(rows, ends, strict=True)] == [True] * 3
    with pytest.raises(UserError, match="3 of 3 in .* are not whole"):  # these files are not in HDF5
        run_main(monkeypatch, "checkpoints", tmp_path, "--verify")
