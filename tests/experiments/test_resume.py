"""The program `train` that goes on from checkpoints: its reports equal those of runs that were not interrupted."""

import json

import h5py
import numpy as np
import pytest

from gridgrad.datasets.part import Dataset, Part, Samples
from gridgrad.experiments.common import train_setup
from gridgrad.experiments.common.checkpoints import COMPLETE, options_of
from gridgrad.parallel.checkpoint.manifest import digest
from tests.datasets.test_mnist import small  # noqa: F401 (a fixture)
from tests.experiments.programs import assert_refused, job, program
from tests.experiments.test_report import digest_of
from tests.mpi import mpi

SETTINGS = ["--net", "mlp:11,7,tanh,dropout=0.1", "--batch-size", "97", "--dtype", "float64", "--quiet"]
PER_EPOCH = 13  # minibatches


class Runs:
    """Runs of `train` whose reports and checkpoints are in one folder."""

    def __init__(self, folder, *settings):
        self.folder, self.settings = folder, settings or SETTINGS

    def train(self, ranks, *arguments, resume=None, checkpoint=None, status=0, program="train"):
        """The report of a run, with what it printed. resume, checkpoint: names of folders of checkpoints."""
        folders = [word for name, folder in (("--resume", resume), ("--checkpoint", checkpoint)) if folder
                   for word in (name, self.folder / folder)]  # fmt: skip
        path = self.folder / "report.json"
        finished = job(ranks, program, *self.settings, *arguments, *folders, "--report", path)
        assert finished.status == status, finished.stderr
        return json.loads(path.read_text()) | {"stdout": finished.stdout, "stderr": finished.stderr}


def ended_after(folder, checkpoints, number):
    """Take all but the first checkpoints away, as if the job had ended before it wrote them."""
    (folder / checkpoints / COMPLETE).unlink()
    for late in sorted((folder / checkpoints).glob("step-*"))[number:]:
        late.rename(folder / late.name)


def assert_same_run(found, expected, tolerance=1e-10):
    """Fail unless two reports tell of the same training; to the last bit if the tolerance is 0."""
    assert np.allclose(found["loss"], expected["loss"], rtol=tolerance, atol=0)
    for name in ("validation", "test_mse", "test_loss", "best_epoch", "stopped_epoch", "turns", "staleness"):
        assert (name in found) == (name in expected)
        if name == "staleness" or found.get(name) is None:
            assert found.get(name) == expected.get(name)
        else:
            assert np.allclose(found[name], expected[name], rtol=10 * tolerance), name
    if not tolerance:
        assert found["loss"] == expected["loss"] and found["params_digest"] == expected["params_digest"]


def test_it_goes_on_on_the_same_grid_and_on_others(tmp_path):
    """With dropout, momentum, a sharded optimizer, micro-batches and a part of an epoch."""
    runs, options = Runs(tmp_path), ("--update", "sharded", "--reduction", "overlap:1", "--micro-batches", "2")
    steps = 2 * PER_EPOCH + 5
    whole = runs.train(2, "--grid", "batch=2", "--steps", steps, *options)
    half = runs.train(2, "--grid", "batch=2", "--steps", steps, *options, "--checkpoint-steps", 8, checkpoint="half")
    assert_same_run(half, whole, 0)
    assert half["checkpoints"]["written"] == 4 and half["resumed"] is None
    ended_after(tmp_path, "half", 1)
    again = runs.train(2, "--grid", "batch=2", "--steps", steps, *options, resume="half")
    assert again["resumed"] == 16 and again["steps"] == steps
    assert_same_run(again, whole, 0)
    for ranks, grid in ((3, "model=3"), (2, "stage=2")):
        found = runs.train(ranks, "--grid", grid, "--steps", steps, "--micro-batches", 2, "--reduction", "plain", resume="half")
        assert_same_run(found, whole)


@pytest.mark.long
def test_images_that_vary_and_early_stopping(small):  # noqa: F811
    """Also a run that had stopped already; it stops once more where it did."""
    settings = "--dataset", "mnist", "--data-dir", small, "--net", "mlp:8,relu", "--batch-size", "9", "--dtype", "float64"
    options = ["--augment", "shift=1", "--validation", "0.3", "--patience", "2", "--lr", "0.02", "--epochs", 30]
    runs = Runs(small, *settings, *options, "--momentum", "0.5", "--quiet")
    whole = runs.train(1)
    assert 4 < whole["stopped_epoch"] < 30
    runs.train(1, "--checkpoint-steps", 5, "--keep", 50, checkpoint="all")
    complete = runs.train(2, "--grid", "batch=2", resume="all")
    assert complete["resumed"] == whole["steps"]
    assert_same_run(complete, whole)
    ended_after(small, "all", 1)
    for ranks, grid in ((1, "batch=1"), (3, "batch=3"), (2, "model=2")):
        found = runs.train(ranks, "--grid", grid, resume="all")
        assert found["resumed"] == 5
        assert_same_run(found, whole, 0 if ranks == 1 else 1e-10)


OTHERS = "local:4", "diloco:4:fragments=2", "parallel-sgd:epoch:shuffle", "parallel-sgd:exchange"


@pytest.mark.parametrize("protocol", ["server:bsp", *(pytest.param(text, marks=pytest.mark.long) for text in OTHERS)])
def test_protocols(tmp_path, protocol):
    runs, options = Runs(tmp_path), ("--protocol", protocol, "--steps", 20)
    whole = runs.train(2, "--grid", "batch=2", *options)
    runs.train(2, "--grid", "batch=2", *options, "--checkpoint-steps", 9, "--keep", 9, checkpoint="all")
    ended_after(tmp_path, "all", 1)
    again = runs.train(2, "--grid", "batch=2", *options, resume="all")
    assert again["resumed"] == 9
    assert_same_run(again, whole, 0)
    if protocol == "local:4":
        assert_same_run(runs.train(4, "--grid", "batch=2,model=2", *options, resume="all"), whole)
        refused = job(3, "train", *SETTINGS, "--grid", "batch=3", *options, "--resume", tmp_path / "all")
        assert refused.status == 2 and "has 2 workers, and this run 3: name a grid with batch=2" in refused.stderr


@pytest.mark.long
def test_an_asynchronous_pipeline_is_flushed(tmp_path):
    """A run with the same checkpoints is the one that equals it."""
    runs, options = Runs(tmp_path, *SETTINGS[:-1]), ("--grid", "stage=2", "--pipeline", "async:2", "--steps", 20)
    whole = runs.train(2, *options, "--checkpoint-steps", 7, "--keep", 9, checkpoint="all")
    assert whole["stdout"].count("note: an asynchronous pipeline is emptied for a checkpoint, which changes the training") == 1
    ended_after(tmp_path, "all", 1)
    again = runs.train(2, *options, "--checkpoint-steps", 7, resume="all", checkpoint="all")
    assert again["resumed"] == 7
    assert_same_run(again, whole, 0)


@pytest.mark.long
def test_shares_that_differ_and_change(tmp_path):
    runs = Runs(tmp_path, *SETTINGS, "--net", "mlp:64,48,tanh,dropout=0.1")  # the latter --net counts
    whole = runs.train(1, "--steps", 24)
    moved = runs.train(
        2, "--grid", "model=2", "--steps", 24, "--rebalance", 3, "--checkpoint-steps", 10, "--keep", 9,
        checkpoint="all", program="tests.experiments.moving",
    )  # fmt: skip
    assert [entry["proposed"]["0"] for entry in moved["rebalancing"]][:2] == [[48, 16], [16, 48]]
    assert_same_run(moved, whole)
    ended_after(tmp_path, "all", 2)
    for ranks, *options in ((2, "--grid", "model=2", "--shares", "3,1"), (3, "--grid", "batch=3", "--shares", "1,0,2"),
                            (2, "--grid", "model=2", "--rebalance", 2, "--handicap", "0=4")):  # fmt: skip
        found = runs.train(ranks, *options, "--steps", 24, resume="all")
        assert found["resumed"] == 20
        assert_same_run(found, whole)


@pytest.mark.long
def test_low_rank_sums(tmp_path):
    runs, options = Runs(tmp_path), ("--reduction", "powersgd:1", "--steps", 20)
    whole = runs.train(2, "--grid", "batch=2", *options)
    runs.train(2, "--grid", "batch=2", *options, "--checkpoint-steps", 14, "--keep", 9, checkpoint="all")
    ended_after(tmp_path, "all", 1)
    assert_same_run(runs.train(2, "--grid", "batch=2", *options, resume="all"), whole, 0)
    other = runs.train(3, "--grid", "batch=3", *options, resume="all")
    assert np.allclose(other["loss"], whole["loss"], rtol=0.2)
    refused = job(
        2, "train", *SETTINGS, "--grid", "batch=2", "--reduction", "plain", "--steps", 20, "--resume", tmp_path / "all"
    )
    assert (
        refused.status == 2
        and "was written with sums of gradients by --reduction, which were powersgd:1, not exact" in refused.stderr
    )


def test_what_can_not_be_continued_is_refused(tmp_path):
    Runs(tmp_path).train(1, "--steps", 4, checkpoint="all")
    (tmp_path / "empty").mkdir()
    resume = ["--resume", tmp_path / "all", "--steps", 4]
    assert_refused(1, "train", [
        (["--resume", tmp_path / "empty", "--steps", 4], "has no whole checkpoint: name the folder that --checkpoint wrote to"),
        (["--resume", tmp_path / "none", "--steps", 4], "has no whole checkpoint"),
        ([*resume, "--seed", 3], "was written with --seed 0, not 3: give the same, or another folder"),
        ([*resume, "--optimizer", "adam"], "was written with --optimizer sgd, not adam"),
        ([*resume, "--net", "mlp:3,tanh"], "was written with --net mlp:11,7,tanh,dropout=0.1, not mlp:3,tanh"),
        ([*resume, "--dtype", "float32"], "was written with --dtype float64, not float32"),
        ([*resume, "--validation", "0.1"], "was written with --validation None, not 0.1"),
        ([*resume, "--protocol", "server:asp"], "was written with --protocol sync, not server:asp"),
        ([*resume, "--momentum", 0], "was written with other settings: its protocol differs in optimizer/velocity_lr"),
    ], SETTINGS)  # fmt: skip
    kept = sorted((tmp_path / "all").rglob("*"))
    said = f"{tmp_path / 'all'} has checkpoints of an earlier run: add --resume {tmp_path / 'all'} to go on from them, or"
    assert_refused(1, "train", [  # it would delete them
        (["--checkpoint", tmp_path / "all", *resume], said) for resume in ([], ["--resume", tmp_path / "none"])
    ], SETTINGS)  # fmt: skip
    assert sorted((tmp_path / "all").rglob("*")) == kept
    assert_refused(2, "train", [
        (["--grid", "batch=2", "--protocol", protocol, "--steps", 4, "--checkpoint", tmp_path / "new"],
         "there are no checkpoints of asynchronous parameter servers")
        for protocol in ("server:asp", "server:ssp:2", "downpour:2:2")
    ], SETTINGS)  # fmt: skip


def test_the_best_weights_are_in_the_last_checkpoint_and_a_run_goes_on_from_its_own(tmp_path):
    """What was passed over is said on standard error in spite of --quiet."""
    runs, options = Runs(tmp_path), ("--validation", 0.2, "--lr", 0.3, "--schedule", "constant", "--epochs", 9)
    stopped = runs.train(1, *options, "--patience", 1, "--checkpoint-steps", 10, checkpoint="stopped")
    assert stopped["best_epoch"] + 1 == stopped["stopped_epoch"] < 9
    last = tmp_path / "stopped" / f"step-{stopped['steps']:09d}"
    exported = program("checkpoints", tmp_path / "stopped", "--export", tmp_path / "arrays.h5")
    assert exported.stdout == f"written: {tmp_path / 'arrays.h5'}, with the arrays of {last}\n"
    with h5py.File(tmp_path / "arrays.h5") as file:
        found = file["network/parameters"]
        names = sorted(found, key=lambda name: (int(name.split(".")[0]), name.endswith("bias")))
        assert digest_of((name, found[name][...].T.copy()) for name in names) == stopped["params_digest"]
    settings = json.loads((last / "manifest.json").read_text())
    assert settings["settings"]["weights_of_epoch"] == stopped["best_epoch"]
    assert settings["value"] == min(stopped["validation"])
    assert_same_run(runs.train(1, *options, "--patience", 1, resume="stopped"), stopped, 0)
    for patience in (["--patience", 5], []):
        assert_same_run(runs.train(1, *options, *patience, resume="stopped"), runs.train(1, *options, *patience), 0)
    (last / "rank-0000.h5").write_bytes(b"")
    again = runs.train(1, *options, "--patience", 1, resume="stopped")
    assert again["resumed"] < stopped["steps"] and "passed over, since damaged" in again["stderr"] and not again["stdout"]
    assert_same_run(again, stopped, 0)


def data_of(x, y, classes=True):
    """A Dataset whose last three samples are for testing."""
    scales = {} if classes else {"y_mean": np.zeros(1), "y_std": np.ones(1)}
    parts = [Part(x[which], y[which], np.array(0.0), np.array(1.0), **scales) for which in (slice(0, -3), slice(-3, None))]
    return Dataset("data", *parts, "cross-entropy" if classes else "mse", 3, "")


@mpi(1, 2, 3)
def test_the_content_is_that_of_the_numbers_alone(comm, monkeypatch):
    """On all ranks, on one, or where rank 0 alone has the samples; in whatever type and order the numbers lie."""
    monkeypatch.setattr(train_setup, "PIECE", 100)
    x, y = np.random.default_rng(0).integers(0, 9, (20, 7)), np.arange(20) % 3
    for same, numbers in (([np.uint8, np.float32, np.float64, ">f4", np.int64], x), ([np.float32, np.float64, ">f8"], x / 4)):
        found = [train_setup.content_of(data_of(numbers.astype(kind), y.astype(np.int32)), comm) for kind in same]
        own = comm.Split(comm.rank)
        alone = train_setup.content_of(data_of(np.asfortranarray(numbers), y), own)
        own.Free()
        rows = data_of(numbers, y)
        table = np.hstack([numbers, y[:, None]])
        rows.train.x = Samples(table, np.arange(7), (7,), np.arange(17))
        hollow = rows if comm.rank == 0 else rows.outline()
        assert {*found, train_setup.content_of(hollow, comm)} == {alone}
        others = []
        for number in (0, 16, 19):
            changed = numbers.astype(np.float64)
            changed[number, 3] += 0.5
            others.append(train_setup.content_of(data_of(changed, y), comm))
        others.append(train_setup.content_of(data_of(numbers, y[::-1]), comm))
        others.append(train_setup.content_of(data_of(numbers, y, False), comm))
        others.append(train_setup.content_of(data_of(numbers[1:], y[1:]), comm))
        assert len({alone, *others}) == 7


def test_paths_are_left_out_of_what_is_compared_of_a_name():
    one = options_of("table:/scratch/1/a.csv,target=b,test=/scratch/1/t.csv")
    assert one == options_of("table:a.csv,test=t.csv,target=b") == {"name": "table:", "target": "b"}
    assert options_of("images:/scratch/1/pics") == options_of("images:pics,size=224") != options_of("images:pics,size=16")
    assert options_of("mnist") != options_of("cifar10")


def test_data_may_move_and_other_data_are_refused(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60, 3)).round(3)
    for name, shift in (("one", 0), ("two", 0), ("three", 1e-3)):
        (tmp_path / name).mkdir()
        np.savetxt(tmp_path / name / "rows.csv", rows + [[shift if row == 7 else 0] for row in range(60)], "%.3f", ",")
    settings = ["--net", "mlp:4,tanh", "--batch-size", "8", "--data-dir", tmp_path, "--grid", "batch=1"]
    name = lambda folder, more="": ("--dataset", f"table:{tmp_path / folder}/rows.csv{more}")  # noqa: E731
    runs = Runs(tmp_path, *settings)
    runs.train(1, *name("one"), "--steps", 3, checkpoint="ck")
    moved = runs.train(1, *name("two"), "--steps", 3, resume="ck")
    assert moved["resumed"] == 3 and "\nnote: the data were table:" in moved["stdout"]
    assert_refused(1, "train", [
        ([*name("three"), "--steps", 3, "--resume", tmp_path / "ck"], "was written with other data in table:"),
        ([*name("one", ",target=0"), "--steps", 3, "--resume", tmp_path / "ck"], "was written with --dataset table:"),
    ], [*settings, "--quiet"])  # fmt: skip
    folder = tmp_path / "ck" / "step-000000003"
    older = json.loads((folder / "manifest.json").read_text())
    del older["settings"]["content"], older["settings"]["dataset_options"], older["sha256"]
    (folder / "manifest.json").write_text(json.dumps(older | {"sha256": digest(older)}))
    assert runs.train(1, *name("one"), "--steps", 3, resume="ck")["resumed"] == 3
    refused = [*name("two"), "--steps", 3, "--resume", tmp_path / "ck"], "was written with --dataset table:"
    assert_refused(1, "train", [refused], [*settings, "--quiet"])
