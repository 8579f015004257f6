"""The program `train` that goes on from checkpoints: its reports equal those of runs that were not interrupted.

That networks, optimizers and protocols of all kinds come back on every grid is tested in tests/parallel/checkpoint and, for
random networks, in tests/random_networks/resuming.py.
"""

import os
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.datasets.part import Dataset, Part
from gridgrad.experiments.common import options, train_setup
from gridgrad.experiments.common.checkpoints import COMPLETE
from gridgrad.experiments.common.options import ROOM
from gridgrad.parallel.job.run import UserError, one_line
from tests.disk import files_end_at
from tests.experiments.programs import assert_refused, called, run_main, trained
from tests.experiments.test_run_parts import digest_of
from tests.mpi import mpi
from tests.parallel.checkpoint.test_manifest import checkpoint
from tests.parallel.checkpoint.training import folder

SETTINGS = "--net", "mlp:11,7,tanh,dropout=0.1", "--batch-size", 97, "--dtype", "float64", "--quiet"


def assert_same_run(found, expected):
    """Fail unless two reports tell of the same training, to the last bit."""
    for name in ("loss", "validation", "test_mse", "best_epoch", "stopped_epoch", "params_digest"):
        assert found.get(name) == expected.get(name), name


@mpi(2)
def test_it_goes_on_as_if_it_had_not_been_interrupted(comm):
    """With dropout, momentum and a part of an epoch; to the last bit on the same grid."""
    how = "--grid", "batch=2", "--update", "sharded", "--reduction", "overlap:1", "--micro-batches", 2
    words = *SETTINGS, *how, "--steps", 24
    whole, _ = trained(comm, *words)
    with folder(comm) as place:
        half, _ = trained(comm, *words, "--checkpoint", place, "--checkpoint-steps", 9, "--keep", 9)
        assert_same_run(half, whole)
        assert half["checkpoints"]["written"] == 3 and half["resumed"] is None
        if comm.rank == 0:  # as if the job had ended before it wrote the others
            Path(place, COMPLETE).unlink()
            for late in sorted(Path(place).glob("step-*"))[1:]:
                shutil.rmtree(late)
        comm.Barrier()
        again, _ = trained(comm, *words, "--resume", place)
        assert (again["resumed"], again["steps"]) == (9, 24)
        assert_same_run(again, whole)
        elsewhere, _ = trained(comm, *SETTINGS, "--grid", "stage=2", "--steps", 24, "--resume", place)
        assert elsewhere["loss"] == pytest.approx(whole["loss"], rel=1e-10)


def train(*words):
    """The report of a training on one rank."""
    return trained(MPI.COMM_SELF, *words)[0]


def test_what_can_not_be_continued_is_refused(tmp_path):
    ck = tmp_path / "all"
    train(*SETTINGS, "--steps", 4, "--checkpoint", ck)
    kept = sorted(ck.rglob("*"))
    resume = ["--resume", ck]
    assert_refused(1, "train", [
        (["--resume", tmp_path], f"{tmp_path} has no whole checkpoint"),
        ([*resume, "--seed", 3], "--seed 0, not 3"),
        ([*resume, "--protocol", "server:asp"], "--protocol sync, not server:asp"),
        ([*resume, "--momentum", 0], "optimizer/velocity_lr"),
        (["--checkpoint", ck], f"add --resume {ck}"),  # it would delete them
    ], [*SETTINGS, "--steps", 4])  # fmt: skip
    assert sorted(ck.rglob("*")) == kept


def test_the_best_weights_are_in_the_last_checkpoint_and_a_run_goes_on_from_its_own(tmp_path, monkeypatch):
    """What was passed over is said in spite of --quiet."""
    words = *SETTINGS, "--validation", 0.2, "--lr", 0.3, "--schedule", "constant", "--epochs", 9
    place, arrays = tmp_path / "stopped", tmp_path / "arrays.h5"
    stopped = train(*words, "--patience", 1, "--checkpoint-steps", 10, "--checkpoint", place)
    assert stopped["best_epoch"] + 1 == stopped["stopped_epoch"] < 9
    assert train(*words[:-1], stopped["best_epoch"])["params_digest"] == stopped["params_digest"]
    run_main(monkeypatch, "checkpoints", place, "--export", arrays)
    with h5py.File(arrays) as file:
        found = file["network/parameters"]
        names = sorted(found, key=lambda name: (int(name.split(".")[0]), name.endswith("bias")))
        assert digest_of((name, found[name][...].T.copy()) for name in names) == stopped["params_digest"]
    for patience in (["--patience", 5], []):
        assert_same_run(train(*words, *patience, "--resume", place), train(*words, *patience))
    (place / f"step-{stopped['steps']:09d}" / "rank-0000.h5").write_bytes(b"")
    again, said = trained(MPI.COMM_SELF, *words, "--patience", 1, "--resume", place)
    assert again["resumed"] < stopped["steps"] and "passed over, since damaged" in said
    assert_same_run(again, stopped)


@mpi(1, 3)
def test_the_content_is_that_of_the_numbers_alone(comm, monkeypatch):
    """On all ranks, or where rank 0 alone has the samples; in whatever type and order the numbers lie."""
    monkeypatch.setattr(train_setup, "PIECE", 100)

    def content(x, y, everywhere=True):
        parts = [Part(x[which], y[which], np.array(0.0), np.array(1.0)) for which in (slice(0, -3), slice(-3, None))]
        data = Dataset("data", *parts, "cross-entropy", 3, "")
        return train_setup.content_of(data if everywhere or comm.rank == 0 else data.outline(), comm, not everywhere)

    x, y = np.random.default_rng(0).integers(0, 9, (20, 7)) / 4, np.arange(20) % 3
    changed = x.copy()
    changed[19, 3] += 0.5
    same = {content(x, y), content(np.asfortranarray(x), y.astype(np.int32)), content(x.astype(">f4"), y), content(x, y, False)}
    assert len(same) == 1 and len(same | {content(x, y[::-1]), content(x[1:], y[1:]), content(changed, y)}) == 4


def test_data_may_move_and_other_data_are_refused(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 3)).round(3)
    for name, shift in (("one", 0), ("two", 0), ("three", 1e-3)):
        rows[7] += shift
        np.savetxt(tmp_path / f"{name}.csv", rows, "%.3f", ",")
    settings = "--net", "mlp:4,tanh", "--batch-size", 8, "--data-dir", tmp_path, "--steps", 3, "--dataset"
    train(*settings, f"table:{tmp_path}/one.csv", "--checkpoint", tmp_path / "ck")
    moved, said = trained(MPI.COMM_SELF, *settings, f"table:{tmp_path}/two.csv", "--resume", tmp_path / "ck")
    assert moved["resumed"] == 3 and "\nnote: the data were table:" in said
    cases = [([f"table:{tmp_path}/three.csv"], "other data in table:")]
    assert_refused(1, "train", cases, ["--quiet", "--resume", tmp_path / "ck", *settings])


# ----- disks


@pytest.mark.parametrize(("room", "size", "trains"), [(ROOM, ROOM - 1, False), (16, 1000, True)])
def test_a_report_that_can_not_be_written_is_said_in_time(tmp_path, monkeypatch, capsys, room, size, trains):
    monkeypatch.setattr(options, "ROOM", room)
    path = tmp_path / "report.json"
    words = "--net", "mlp:8,relu", "--steps", 2, "--reduction", "plain", "--report", path
    with pytest.raises(UserError) as refused, called(MPI.COMM_SELF, "train", words) as main, files_end_at(size):
        main()
    assert str(path if trains else tmp_path) in one_line(refused.value) and "File too large" in one_line(refused.value)
    assert ("test mean squared error" in capsys.readouterr().out) == trains
    assert os.listdir(tmp_path) == []


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


def test_folders_of_others_that_may_not_be_read_are_left_out(tmp_path, monkeypatch, capsys):
    checkpoint(tmp_path, 10, None)
    (tmp_path / "private").mkdir()
    stat = os.stat

    def refusing(path, *arguments, **options):
        if Path(os.fspath(path)).parent.name == "private":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", refusing)
    run_main(monkeypatch, "checkpoints", tmp_path)
    printed = capsys.readouterr().out
    assert "10" in printed and "private" not in printed
