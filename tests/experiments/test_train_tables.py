"""Training on tables of one's own: several ranks, which read their own parts, do what one does."""

import json

import numpy as np
import pytest

from tests.experiments.programs import assert_refused, job
from tests.experiments.test_train import report_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text with a column of prices among its features, and images with labels; numbers of both that do not divide evenly."""
    path, random = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    features = random.normal(size=(73, 5))
    prices = features @ random.normal(size=5) + 100
    table = np.column_stack((features[:, :2], prices, features[:, 2:]))
    np.savetxt(path / "houses.csv", table, "%.6f", ",", header="size,rooms,price,age,floor,garden")
    np.save(path / "houses.npy", np.loadtxt(path / "houses.csv", delimiter=","))
    pixels, labels = random.integers(0, 256, (47, 9, 7), np.uint8), np.arange(47) % 3
    np.savez(path / "shapes.npz", x=pixels, y=labels)
    return path


def arguments(folder, table, net):
    options = ["--net", net, "--batch-size", 11, "--epochs", 2, "--dtype", "float64", "--lr", 0.01]
    return ["--dataset", f"table:{table}", "--data-dir", folder, *options]


HOUSES = "houses.csv,target=price", "mlp:7,5,tanh"
SHAPES = "shapes.npz,shape=9x7x1,test=0.25", "mlp:6,relu"


@pytest.fixture(scope="module")
def alone(folder, tmp_path_factory):
    """The reports of one rank."""
    path = tmp_path_factory.mktemp("alone")
    return {table: report_of(path, 1, *arguments(folder, table, net)) for table, net in (HOUSES, SHAPES)}


@pytest.mark.parametrize(
    ("table", "ranks", "grid", "reader"),
    [
        (HOUSES, 2, "model=2", "each"),
        (HOUSES, 3, "batch=3", "each"),
        pytest.param(HOUSES, 3, "model=3", "scatter", marks=pytest.mark.long),
        pytest.param(SHAPES, 2, "batch=2", "scatter-broadcast", marks=pytest.mark.long),
        (SHAPES, 3, "model=3", "each"),
    ],
)
def test_a_table_trains_alike_on_every_grid(folder, alone, tmp_path, table, ranks, grid, reader):
    name, net = table
    found = report_of(tmp_path, ranks, *arguments(folder, name, net), "--grid", grid, "--reader", reader)
    assert np.allclose(found["loss"], alone[name]["loss"], rtol=1e-10)
    tested = "test_mse" if "test_mse" in found else "test_accuracy"
    assert found[tested] == pytest.approx(alone[name][tested], rel=1e-9)


def test_a_mapped_array_trains_as_the_text(folder, alone, tmp_path):
    found = report_of(tmp_path, 1, *arguments(folder, "houses.npy,target=2", HOUSES[1]))
    assert found["loss"] == alone[HOUSES[0]]["loss"]


def test_what_was_taken_for_what_is_printed_once(folder, tmp_path):
    options = *arguments(folder, *HOUSES), "--grid", "batch=2", "--report", tmp_path / "r.json"
    finished = job(2, "train", *options)
    assert finished.status == 0, finished.stderr
    line = "houses.csv, column price, taken as values; inputs and targets are standardised by the mean and deviation of the"
    assert finished.stdout.count(line) == 1 and "58 training samples, 15 to test" in finished.stdout
    assert json.loads((tmp_path / "r.json").read_text())["dataset"] == f"table:{HOUSES[0]}"


def test_what_does_not_fit_is_refused(folder):
    messages = {
        "houses.csv,target=cost": "no column cost: there are size, rooms, price, age, floor, garden, or a number",
        "flats.csv": "no file flats.csv in",
        "shapes.npz": "63 inputs are no sample of the shape 9x7",
    }
    cases = [(arguments(folder, table, "mlp:4,relu"), message) for table, message in messages.items()]
    assert_refused(2, "train", cases, ["--grid", "batch=2", "--quiet"])
