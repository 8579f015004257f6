"""The program that trains a stacked autoencoder: on every grid the same, alone or not, and what it says of its limits."""

import json
from math import prod

import numpy as np
import pytest

from gridgrad.parallel.grid.process_grid import parse_grid
from tests.datasets.made_up_mnist import blocks, write_mnist
from tests.experiments.programs import job, program

SMALL = ["--widths", "31,7", "--pretrain-epochs", 2, "--epochs", 2, "--batch-size", 20, "--dtype", "float64"]
SMALL += ["--corruption", 0.2, "--validation", 0.2]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with small data like MNIST."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    write_mnist(folder, train=blocks(rng, 250), t10k=blocks(rng, 50))
    return folder


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    """The report and the output of a run on one rank."""
    path = tmp_path_factory.mktemp("alone") / "report.json"
    finished = program("study", "autoencoder", "--data-dir", data, *SMALL, "--energy", "--report", path)
    assert finished.returncode == 0, finished.stderr
    return json.loads(path.read_text()), finished.stdout


def test_the_report_has_what_was_measured(alone):
    found, printed = alone
    assert found["widths"] == [784, 31, 7, 10] and found["training_samples"] == 200
    assert [layer["inputs"] for layer in found["layers"]] == [784, 31]
    for layer in found["layers"]:
        first, last = layer["reconstruction_error"]
        assert 0 < last < first < 1
    assert len(found["loss"]) == 2 and found["loss"][1] < found["loss"][0]
    assert 0 <= found["test_error"] <= 100 and 0 <= found["validation_error"] <= 100
    assert [row["phase"] for row in found["phases"]] == ["pre-training 1", "pre-training 2", "fine-tuning"]
    assert all(row["seconds"] > 0 for row in found["phases"]) and found["peak_memory"] > 2**20
    assert f"test error {found['test_error']:.2f} %" in printed and "versions" in found


def test_the_energy_is_measured_or_it_is_said_why_not(alone):
    found, printed = alone
    reason = found["energy"]["not_measured_because"]
    assert (reason is None) == all(row["joules"] is not None for row in found["phases"])
    assert (f"energy is not measured: {reason}" if reason else " J, ") in printed


@pytest.mark.parametrize(
    ("grid", "options"),
    [
        pytest.param("batch=2", ["--reduction", "overlap:8"], marks=pytest.mark.long),
        pytest.param("model=2", [], marks=pytest.mark.long),
        ("batch=2,model=2", ["--shares", "batch=3:1,model=1:2", "--plan", "conv=out,linear=in,autoencoder=replicate"]),
        pytest.param("model=3", ["--shares", "3,0,1"], marks=pytest.mark.long),
    ],
)
def test_every_grid_trains_the_same_networks(grid, options, alone, data, tmp_path):
    expected, path = alone[0], tmp_path / "report.json"
    arguments = ["--data-dir", data, *SMALL, "--grid", grid, *options, "--report", path]
    finished = job(prod(parse_grid(grid).values()), "study", "autoencoder", *arguments)
    assert finished.status == 0, finished.stderr
    found = json.loads(path.read_text())
    for layer, same in zip(found["layers"], expected["layers"], strict=True):
        assert layer["reconstruction_error"] == pytest.approx(same["reconstruction_error"], rel=1e-10)
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-9)
    assert (found["test_error"], found["validation_error"]) == (expected["test_error"], expected["validation_error"])
    choice = "replicate" if "--plan" in options else "hidden"
    assert [layer["plan"] for layer in found["layers"]] == [[choice], [choice]] and len(found["plan"]) == 3
    assert found["device"] == ["cpu"] * found["P"]


def test_without_pretraining_only_the_classifier_is_trained(data, tmp_path):
    path = tmp_path / "report.json"
    finished = program("study", "autoencoder", "--data-dir", data, *SMALL, "--pretrain-epochs", 0, "--report", path)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(path.read_text())
    assert found["layers"] == [] and [row["phase"] for row in found["phases"]] == ["fine-tuning"]
    assert found["energy"] == {"joules": None, "not_measured_because": "--energy was not given"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "airfoil"], "its samples are no images in classes"),
        (["--widths", "5,x"], "whole number"),
        (["--batch-size", 251], "larger than the data: 250 training samples"),
        (["--grid", "model=2"], "has 2 places but the number of ranks is 1"),
        (["--plan", "hidden"], "has no hidden units"),
        (["--shares", "2,1"], "is for one axis, but 0 have several ranks"),
        (["--reduction", "slow"], "there is no reduction 'slow'"),
        (["--validation", 0.0001], "would be 0 of them"),
        (["--report", "/proc/no/r.json"], "can not write"),
        (["--pretrain-lr", 1e39], "try a lower"),
    ],
)
def test_bad_input_is_named_in_one_line(arguments, message, data):
    finished = program("study", "autoencoder", "--data-dir", data, "--epochs", 1, *arguments)
    assert finished.returncode == 2 and message in finished.stderr, finished.stderr
    assert finished.stderr.startswith("autoencoder: error: ") and finished.stderr.count("\n") == 1
