"""Networks that were trained, and those of one's own, are used: by the program `predict`, and by `gridgrad.load`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import gridgrad
from gridgrad.datasets import load as load_data
from gridgrad.datasets.part import Dataset, Part
from gridgrad.nn import BatchNorm, Linear, ReLU, Sequential
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import parallelize
from tests.experiments.programs import refusal, run_main, trained
from tests.mpi import mpi
from tests.parallel.checkpoint.training import folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with tables and checkpoints: of values in ck, of classes in flowers, whose report is kinds.json."""
    place, random = tmp_path_factory.mktemp("runs"), np.random.default_rng(0)
    x = random.normal(5, 3, (90, 2)).round(2)
    for name, head, column in (
        ("values", "width,length,price", (x @ [3, -2] + 100).round(3)),
        ("kinds", "width,length,kind", np.where(x[:, 0] > 5, 2, np.where(x[:, 1] > 5, 1, 0))),
    ):
        rows = [",".join(map(str, row)) for row in zip(*x.T.tolist(), column.tolist(), strict=True)]
        (place / f"{name}.csv").write_text("\n".join([head, *rows]) + "\n")
    words = "--batch-size", 9, "--dtype", "float64", "--lr", 0.05, "--schedule", "constant", "--checkpoint-steps", 4
    for name, more, checkpoint in (("values", ("--validation", 0.2, "--patience", 2), "ck"), ("kinds", (), "flowers")):
        data = f"table:{place}/{name}.csv" + ",kind=labels" * (name == "kinds")
        files = "--checkpoint", place / checkpoint, "--predictions", place / f"{checkpoint}.npy"
        report, _ = trained(MPI.COMM_SELF, "--dataset", data, "--net", "mlp:7,tanh", "--epochs", 15, *words, *more, *files)
        (place / f"{name}.json").write_text(json.dumps(report))
    return place


def test_values_in_their_units(runs, monkeypatch, capsys):
    """For new samples without targets, in a file with its columns in another order."""
    x = np.asarray(load_data(f"table:{runs}/values.csv", dtype=np.float64).test.x[:])
    names = [f"house {number}, left" for number in range(len(x))]
    lines = [f'{length},"{name}",{width}' for name, (width, length) in zip(names, x.tolist(), strict=True)]
    (runs / "new.csv").write_text("\n".join(["length,name,width", *lines]) + "\n")
    run_main(monkeypatch, "predict", runs / "ck", "--data", f"table:{runs}/new.csv", "--out", runs / "out.csv")
    assert capsys.readouterr().out == f"{len(x)} samples\nwritten: {runs / 'out.csv'}\n"
    head, *rows = csv.reader((runs / "out.csv").read_text().splitlines())
    assert head == ["name", "price"] and [name for name, _ in rows] == names
    assert np.allclose([float(price) for _, price in rows], np.load(runs / "ck.npy")[:, 0], rtol=1e-10)


def test_classes_with_their_names(runs, monkeypatch, capsys):
    report, words = json.loads((runs / "kinds.json").read_text()), (runs / "flowers", "--data", f"table:{runs}/kinds.csv")
    run_main(monkeypatch, "predict", *words, "--out", runs / "classes.csv")
    head, *rows = csv.reader((runs / "classes.csv").read_text().splitlines())
    assert ": accuracy " in capsys.readouterr().out and head == ["class", "probability"] and len(rows) == 90
    assert {name for name, _ in rows} <= set(report["classes"]) and all(1 / 3 <= float(share) <= 1 for _, share in rows)
    confusion = np.array(report["confusion"])
    assert 100 * confusion.trace() / confusion.sum() == pytest.approx(report["test_accuracy"])


@mpi(1, 2)
def test_a_script_saves_and_loads_on_any_grid(comm):
    def serial(seed):
        return Sequential([Linear(4, 6), BatchNorm(6), ReLU(), Linear(6, 3)], seed, np.float64, (4,))

    random = np.random.default_rng(1)
    x, y = random.normal(2, 5, (12, 4)), random.integers(0, 3, 12)
    parts = [Part(x, y, x.mean(axis=0), x.std(axis=0), dtype=np.float64) for _ in range(2)]
    data = Dataset("made up", *parts, "cross-entropy", 3, "", classes=["red", "green", "blue"])
    with folder(comm) as place:
        net = parallelize(serial(0), {"batch": comm.size}, reduction="plain")
        gridgrad.save(net, Path(place), data)
        expected = net.predict((x - x.mean(axis=0)) / x.std(axis=0))
        net.grid.free()
        loaded = gridgrad.load(place, {"model": comm.size}, net=serial(7))
        outputs, names, shares = loaded.outputs(x), loaded.predict(x), loaded.probabilities(x)
        if comm.rank == 0:
            assert np.allclose(outputs, expected, rtol=1e-12) and np.allclose(shares.sum(axis=1), 1)
            assert names.tolist() == [data.classes[number] for number in expected.argmax(axis=1)]
        with pytest.raises(ValueError, match="samples of shape"):
            loaded.outputs(np.ones((2, 5)))
        loaded.net.grid.free()


# ----- `--net FILE.py:FUNCTION`

OWN = """
from gridgrad.nn import Linear, Tanh

def make(shape, outputs):
    return [Linear(*shape, 12), Tanh(), Linear(12, outputs)]
"""
WORDS = "--net", "own.py:make", "--steps", 6, "--dtype", "float64", "--quiet"


def test_a_changed_file_is_noticed_and_a_checkpoint_does_not_choose_which_file_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    net = trained(MPI.COMM_SELF, *WORDS, "--checkpoint", "c")[0]["net"]
    assert net == network_names.identified("own.py:make")
    predict = "c", "--data", "airfoil", "--out", "p.csv"
    assert f"has the network {net}, which is your own code" in refusal(MPI.COMM_SELF, "predict", predict)
    Path("own.py").rename("moved.py")
    run_main(monkeypatch, "predict", *predict, "--net", "moved.py:make")
    Path("own.py").write_text(OWN.replace("12", "13"))
    assert "was written with --net own.py:make@" in refusal(MPI.COMM_SELF, "train", [*WORDS, "--resume", "c"])
    with pytest.raises(ValueError, match="own.py has changed"):
        network_names.build(net, 4, 1)
