"""The program that trains networks to their accuracy: its cases, its table, and that it goes on where it was ended."""

import json

import numpy as np
import pytest

from gridgrad.experiments.common.tables import terminal
from gridgrad.experiments.studies import accuracy
from gridgrad.experiments.studies.accuracy import CASES, RUN, AccuracyCase
from gridgrad.parallel.grid.process_grid import parse_grid
from tests.datasets.made_up_mnist import blocks, write_mnist

SMALL = AccuracyCase("mlp:12,tanh", "--dataset mnist --steps 80 --batch-size 25 --lr 0.2", ("batch=2", "batch=1"), 60.0)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the program, with small cases; returns its results."""
    random = np.random.default_rng(0)
    write_mnist(tmp_path / "data", train=blocks(random, 250), t10k=blocks(random, 50))

    def run(*cases):
        monkeypatch.setattr(accuracy, "CASES", cases)
        monkeypatch.setattr("sys.argv", ["accuracy", "--data-dir", str(tmp_path / "data"), "--out", str(tmp_path)])
        accuracy.main()
        return json.loads((tmp_path / "accuracy.json").read_text())

    return run


@pytest.mark.long
def test_runs_are_kept_and_not_repeated(run, tmp_path, monkeypatch, capsys):
    results = run(SMALL)
    assert [{name: result[name] for name in RUN} for result in results] == SMALL.runs and len(results) == 4
    assert all(60 <= result["accuracy"] <= 100 for result in results)
    assert results[0]["final_loss"] == pytest.approx(results[3]["final_loss"], rel=1e-3)  # seed 0 on both grids
    table = (tmp_path / "accuracy.md").read_text()
    assert "--seed SEED`: at least 60 % wanted" in table and table.count("| `batch=2` |") == 3
    assert terminal(table) in capsys.readouterr().out
    kept = [result | {"accuracy": 12.5} for result in results[1:]]
    (tmp_path / "accuracy.json").write_text(json.dumps(kept))
    other = AccuracyCase(SMALL.net, SMALL.options.replace("80", "2"), ("batch=1",))
    again = run(SMALL, other)
    assert again[:3] == kept and again[3]["accuracy"] == results[0]["accuracy"] and len(again) == 7
    monkeypatch.setattr(accuracy, "train", None)
    assert run(SMALL, other) == again


def test_no_run_is_asked_for_twice():
    names = [tuple(run.values()) for case in CASES for run in case.runs]
    assert len(set(names)) == len(names)
    assert all(parse_grid(grid) for *_, grid, _ in names)
