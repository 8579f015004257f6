"""A disk that becomes full while a training writes checkpoints, and has room again later."""

import json
import os
import subprocess

import pytest

from parallel.checkpoint.manifest import FOLDER, found_in
from tests.experiments.programs import job

pytestmark = [
    pytest.mark.mpi,  # it starts jobs
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk"),
]


@pytest.fixture
def disk(tmp_path):
    """A disk in memory with room for three checkpoints."""
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
    words = ["experiments.train", "--net", "mlp:32,32,relu", "--batch-size", 64, "--steps", 60, "--keep", 9]
    words += ["--checkpoint", disk / "runs", "--checkpoint-steps", 10, "--resume", disk / "runs"]
    words += ["--report", tmp_path / "report.json"]
    full = job(2, *words)
    kept, passed_over = found_in(disk / "runs")
    assert full.status == 2, full.stderr
    assert json.loads((tmp_path / "report.json").read_text())["steps"] == 60  # the results are not lost with the checkpoint
    assert 0 < len(kept) < 6 and not passed_over and not any(one.damage(entry) for one in kept for entry in one.files)
    assert {path.name for path in (disk / "runs").iterdir()} == {one.folder.name for one in kept}
    where = disk / "runs" / f"{FOLDER}{60:09d}"
    error = full.stderr.splitlines()[-1]
    assert error.startswith(f"train: error: the checkpoint after step 60 can not be written: {where}")
    assert error.endswith(": No space left on device") and full.stderr.count("No space left") == 1
    assert full.stdout.count("training goes on, and earlier checkpoints are as they were") == 6 - len(kept)
    subprocess.run(["mount", "-o", "remount,size=10m", disk], check=True)
    roomy = job(2, *words)
    assert roomy.status == 0, roomy.stderr
    assert f"goes on after step {kept[0].step}" in roomy.stdout and found_in(disk / "runs")[0][0].step == 60


@pytest.mark.long
def test_a_disk_that_can_not_be_written_is_said_at_once_and_what_it_has_can_be_read(disk, tmp_path):
    words = ["experiments.train", "--net", "mlp:8,relu", "--quiet", "--steps"]
    first = job(2, *words, 4, "--checkpoint", disk / "runs")
    assert first.status == 0, first.stderr
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for folder in ("runs", "others"):
        refused = job(2, *words, 8, "--checkpoint", disk / folder, "--resume", disk / folder)
        assert refused.status == 2 and refused.stderr.startswith("train: error: ") and refused.stderr.count("\n") == 1
        assert "Read-only file system" in refused.stderr and "step" not in refused.stdout
    again = job(2, *words, 4, "--resume", disk / "runs", "--report", tmp_path / "report.json")
    assert again.status == 0 and json.loads((tmp_path / "report.json").read_text())["resumed"] == 4, again.stderr
