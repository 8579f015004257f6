"""Disks and files: one that is full, or becomes full while checkpoints are written; checkpoints and files that are wrong."""

import json
import os
import re
import subprocess
from functools import partial

import pytest
from mpi4py import MPI

from gridgrad.experiments import partition, sweep
from gridgrad.experiments.common import options
from gridgrad.experiments.common.options import ROOM, user_input
from gridgrad.experiments.launching.start_ranks import nodes_in
from gridgrad.experiments.parts import slurm_script
from gridgrad.experiments.plots import lines, timeline
from gridgrad.experiments.scaling import environment, records, study
from gridgrad.nn.files import limits
from gridgrad.nn.files.documents import content_of_file
from gridgrad.nn.files.whole_files import NotWritten
from gridgrad.parallel.checkpoint.manifest import FOLDER, LOCK, Manifest, found_in
from gridgrad.parallel.checkpoint.shard_file import sha256
from gridgrad.parallel.job.run import UserError, one_line
from gridgrad.parallel.partitioning.good_partition import read_owners
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.prediction import machine
from tests.disk import files_end_at
from tests.experiments.called import run_main
from tests.experiments.programs import called, job, trained
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


def test_a_sweep_keeps_the_runs_that_it_could_write(tmp_path, monkeypatch):
    def long_records(group, repeat, *_):
        [point] = group
        known = {"net": point.settings["net"], "grid": point.settings["grid"], "P": 1, "point": point.settings}
        known |= {"repeat": repeat, "took": 1.0, "environment": environment.here(), "seconds_per_step": None}
        return [known | {"loss": [0.1] * (ROOM // 20)}]

    out = tmp_path / "sweep.jsonl"
    monkeypatch.setattr(sweep.runs, "records_of", long_records)
    words = "--ranks", 1, "--nets", "mlp:8,relu", "--repeats", 9, "--out", out
    with files_end_at(ROOM), pytest.raises(NotWritten, match=f"^can not write {out}: File too large; make room"):
        run_main(monkeypatch, "sweep", *words)
    assert sorted(os.listdir(tmp_path)) == ["sweep.jsonl", "sweep.jsonl.lock"] and 0 < len(records.read(out)) < 9
    run_main(monkeypatch, "sweep", *words)
    assert len(records.read(out)) == 9


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


def test_a_disk_that_can_not_be_written_is_said_at_once_and_what_it_has_can_be_read(disk):
    trained(MPI.COMM_SELF, *TINY, "--checkpoint", disk / "runs")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for folder in ("runs", "others"):
        words = *TINY, "--checkpoint", disk / folder, "--resume", disk / folder
        with called(MPI.COMM_SELF, "train", words) as main, pytest.raises(UserError, match="Read-only file system"):
            main()
    assert trained(MPI.COMM_SELF, *TINY, "--resume", disk / "runs")[0]["resumed"] == 2


# ----- the program `checkpoints`


def test_what_is_whole_and_what_is_wrong_is_listed(tmp_path, monkeypatch, capsys):
    def states():
        head, *rows = (re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines())
        return [(row[1], row[3], row[-2], row[-1]) for row in rows]

    made = [checkpoint(tmp_path, step, value) for step, value in ((10, 0.5), (20, None), (30, 0.25))]
    (made[1].folder / "rank-0001.h5").write_bytes(b"short")
    (made[2].folder / "manifest.json").write_text("{}")
    (tmp_path / "step-000000040").mkdir()
    run_main(monkeypatch, "checkpoints", tmp_path)
    found = states()
    assert found[0] == ("10", "2", "0.5", "whole") and found[1][:3] == ("20", "2", "-")
    ends = "has 5 bytes instead of 18", "damaged", "or is writing it"
    assert [state[-1].endswith(end) for state, end in zip(found[1:], ends, strict=True)] == [True] * 3
    with pytest.raises(UserError, match="4 of 4 in .* are not whole"):  # these files are not in HDF5
        run_main(monkeypatch, "checkpoints", tmp_path, "--verify")
    assert states()[0][-1].endswith("rank-0000.h5: not an HDF5 file that can be read")


# ----- whatever reads a file that users name waits for no FIFO, and takes none that would fill the memory

READERS = {
    "a.json": [content_of_file, lambda path: lines.read([path]), timeline.read, partial(partition.profiled, net="mlp:3")],
    "machine.json": [lambda path: machine.read(str(path))],
    "manifest.json": [lambda path: Manifest.read(path.parent)],
    "a.jsonl": [records.read],
    "a.toml": [study.read, slurm_script.read_site],
    "nodes": [nodes_in],
    "parts": [partial(partition.read_parts, vertices=3)],
    "a.csv": [lambda path: schedule_names.parse(str(path))],
    "rank-0000.h5": [sha256],
    "owners.h5": [partial(read_owners, net=None)],
}


@pytest.mark.parametrize(("name", "read"), [(name, read) for name, readers in READERS.items() for read in readers])
def test_files_that_would_hang_or_fill_the_memory_are_refused_in_a_line(tmp_path, name, read, monkeypatch):
    def refused():
        with pytest.raises(UserError) as caught, user_input():
            read(path)
        line = one_line(caught.value)
        assert str(path) in line or path.name == "manifest.json" and str(path.parent) in line
        return line

    path = tmp_path / name
    os.mkfifo(path)
    assert re.search("no ordinary file|no such file", refused())
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "no ordinary file" in refused() or name == "machine.json"
    path.unlink()
    if not name.endswith(".h5"):
        monkeypatch.setattr(limits, "BUDGET", 1 << 16)
        with open(path, "wb") as file:
            file.truncate(1 << 40)  # takes no room on the disk
        assert "more than" in refused() or name == "a.csv"
