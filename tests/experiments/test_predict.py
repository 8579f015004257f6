"""Networks that were trained are used: by the program `predict`, and by `gridgrad.load`, on any grid."""

import csv
import json
import shutil
import tempfile

import numpy as np
import pytest

import gridgrad
from gridgrad.datasets import load as load_data
from gridgrad.datasets.part import Dataset, Part
from gridgrad.nn import BatchNorm, Linear, ReLU, Sequential
from gridgrad.parallel import parallelize
from gridgrad.parallel.checkpoint.manifest import digest
from gridgrad.parallel.choose.trained import check_model, plain_model
from tests.experiments.programs import assert_refused, job, program
from tests.mpi import mpi
from tests.parallel.equality import grids


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with tables and checkpoints: of values in ck, of classes in flowers."""
    folder, random = tmp_path_factory.mktemp("runs"), np.random.default_rng(0)
    x = random.normal(5, 3, (90, 2)).round(2)
    for name, head, column in (
        ("values", "width,length,price", (x @ [3, -2] + 100).round(3)),
        ("kinds", "width,length,kind", np.where(x[:, 0] > 5, 2, np.where(x[:, 1] > 5, 1, 0))),
    ):
        rows = [",".join(map(str, row)) for row in zip(*x.T.tolist(), column.tolist(), strict=True)]
        (folder / f"{name}.csv").write_text("\n".join([head, *rows]) + "\n")
    settings = ["--batch-size", 9, "--dtype", "float64", "--quiet", "--lr", 0.05, "--schedule", "constant"]
    values = ["--dataset", f"table:{folder}/values.csv", "--net", "mlp:7,tanh", "--validation", 0.2, "--patience", 2]
    kinds = ["--dataset", f"table:{folder}/kinds.csv,kind=labels", "--net", "mlp:7,relu", "--report", folder / "kinds.json"]
    more = ["--checkpoint-steps", 4, "--epochs", 15]
    for words, ck in ((values, "ck"), (kinds, "flowers")):
        done = program("train", *words, *settings, *more, "--checkpoint", folder / ck, "--predictions", folder / f"{ck}.npy")
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("ranks", "grid"), [(1, "batch=1"), (2, "model=2")])
def test_values_in_their_units(runs, ranks, grid):
    """For new samples without targets, in a file with its columns in another order, on another grid."""
    data = load_data(f"table:{runs}/values.csv", dtype=np.float64)
    x = np.asarray(data.test.x[:])
    names = [f"house {number}, left" for number in range(len(x))]
    lines = ["length,name,width"]
    lines += [f'{length},"{name}",{width}' for name, (width, length) in zip(names, x.tolist(), strict=True)]
    (runs / "new.csv").write_text("\n".join(lines) + "\n")
    out = runs / "out.csv"
    done = job(ranks, "predict", runs / "ck", "--data", f"table:{runs}/new.csv", "--out", out, "--grid", grid)
    assert done.status == 0 and done.stdout == f"{len(x)} samples\nwritten: {out}\n", done.stderr
    head, *rows = csv.reader(out.read_text().splitlines())
    assert head == ["name", "price"] and [name for name, _ in rows] == names
    assert np.allclose([float(price) for _, price in rows], np.load(runs / "ck.npy")[:, 0], rtol=1e-10)


def test_classes_with_their_names(runs):
    out, report = runs / "classes.csv", json.loads((runs / "kinds.json").read_text())
    done = program("predict", runs / "flowers", "--data", f"table:{runs}/kinds.csv", "--out", out)
    assert done.returncode == 0, done.stderr
    head, *rows = csv.reader(out.read_text().splitlines())
    assert ": accuracy " in done.stdout and head == ["class", "probability"] and len(rows) == 90
    assert {name for name, _ in rows} <= set(report["classes"]) and all(1 / 3 <= float(share) <= 1 for _, share in rows)
    confusion = np.array(report["confusion"])
    assert 100 * confusion.trace() / confusion.sum() == pytest.approx(report["test_accuracy"])
    done = program("predict", runs / "flowers", "--data", f"table:{runs}/kinds.csv", "--out", runs / "classes.npy")
    assert np.load(runs / "classes.npy").tolist() == [name for name, _ in rows]


def test_what_can_not_be_used_is_refused(runs):
    newest = max((runs / "ck").glob("step-*"))
    found = json.loads((newest / "manifest.json").read_text())
    for name, change in (("earlier", {"model": None}), ("damaged", {"model": found["settings"]["model"] | {"x_std": [0, 1]}})):
        shutil.copytree(newest, runs / name / newest.name, dirs_exist_ok=True)
        content = {key: value for key, value in found.items() if key not in ("sha256", "format")}
        content |= {"settings": found["settings"] | change, "format": found["format"]}
        text = json.dumps(content | {"sha256": digest({k: v for k, v in content.items() if k != "sha256"})})
        (runs / name / newest.name / "manifest.json").write_text(text)
    options = ["--data", f"table:{runs}/values.csv"]
    assert_refused(1, "predict", [
        ([runs / "ck", *options, "--out", "x.txt"], "must end in .csv or .npy"),
        ([runs, *options, "--out", runs / "x.csv"], "has no whole checkpoint"),
        ([runs / "earlier", *options, "--out", runs / "x.csv"], "does not say how to build its network"),
        ([runs / "damaged", *options, "--out", runs / "x.csv"], "x_std is not finite, or not above 0"),
        ([runs / "ck", "--data", "mnist", "--data-dir", runs, "--out", runs / "x.csv"], "mnist"),
    ])  # fmt: skip


def test_a_model_is_checked():
    good = plain_model(parallelize(Sequential([Linear(3, 2)], input_shape=(3,)), "batch=1"))
    check_model(good, "here")
    bad = {"net": 3, "sample_shape": [0], "outputs": "2", "loss": "hinge", "classes": ["a"], "x_mean": [1, 2], "x_std": 0.0}
    bad |= {"x_mean ": None, "y_std": [float("nan"), 1], "dtype": "object", "input_names": ["a\n", "b", "c"]}
    for name, value in bad.items():
        with pytest.raises(ValueError, match="here: what it says of its network is damaged"):
            check_model({k: v for k, v in good.items() if k != name.strip()} | ({} if value is None else {name: value}), "here")


@mpi(1, 2, 3)
def test_a_script_saves_and_loads_on_any_grid(comm):
    def serial(seed):
        return Sequential([Linear(4, 6), BatchNorm(6), ReLU(), Linear(6, 3)], seed, np.float64, (4,))

    random = np.random.default_rng(1)
    x, y = random.normal(2, 5, (12, 4)), random.integers(0, 3, 12)
    parts = [Part(x, y, x.mean(axis=0), x.std(axis=0), dtype=np.float64) for _ in range(2)]
    data = Dataset("made up", *parts, "cross-entropy", 3, "", classes=["red", "green", "blue"])
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    net = parallelize(serial(0), {"batch": comm.size}, reduction="plain")
    gridgrad.save(net, folder, data)
    expected = net.predict((x - x.mean(axis=0)) / x.std(axis=0))
    net.grid.free()
    for sizes in grids(comm.size):
        trained = gridgrad.load(folder, sizes, net=serial(7))
        outputs, names, shares = trained.outputs(x), trained.predict(x), trained.probabilities(x)
        if comm.rank == 0:
            assert np.allclose(outputs, expected, rtol=1e-12) and np.allclose(shares.sum(axis=1), 1)
            assert names.tolist() == [data.classes[number] for number in expected.argmax(axis=1)]
        with pytest.raises(ValueError, match="samples of shape"):
            trained.outputs(np.ones((2, 5)))
        trained.net.grid.free()
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(folder)
