"""The program `train` that goes on from checkpoints: its reports equal those of runs that were not interrupted."""

import json

import numpy as np
import pytest

from gridgrad.experiments.common.checkpoints import COMPLETE
from tests.datasets.test_mnist import small  # noqa: F401 (a fixture)
from tests.experiments.programs import assert_refused, job

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
    for late in sorted((folder / checkpoints).iterdir())[number:]:
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
    runs, options = Runs(tmp_path), ("--grid", "stage=2", "--pipeline", "async:2", "--steps", 20)
    whole = runs.train(2, *options, "--checkpoint-steps", 7, "--keep", 9, checkpoint="all")
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
