"""Steps on all grids in one job, and where the times of two grids cross."""

import json

import pytest

from gridgrad.experiments.studies import crossover
from gridgrad.parallel.prediction.planner import every_grid
from tests.experiments.programs import assert_refused, job

SMALL = ["--net", "mlp:16,16,relu", "--features", "8", "--rounds", "2", "--steps", "2", "--link", "nothing but memory"]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    path = tmp_path_factory.mktemp("crossover") / "c.json"
    finished = job(2, "study", "crossover", *SMALL, "--batch-sizes", "7,3", "--reduction", "plain", "--out", path)
    assert finished.status == 0, finished.stderr
    assert finished.stdout.count("pure batch is faster than batch=1,model=2") == 1
    return path


def test_every_grid_is_timed_at_every_batch_size(reported):
    result = json.loads(reported.read_text())
    assert (result["ranks"], len(result["hosts"]), result["link"]) == (2, 2, "nothing but memory")
    assert [(row["batch_size"], row["grid"]) for row in result["rows"]] == [
        (size, grid) for size in (3, 7) for grid in ("batch=2,model=1", "batch=1,model=2")
    ]
    for row in result["rows"]:
        assert 0 < row["seconds"]["min"] <= row["seconds"]["median"] <= row["seconds"]["max"]
        assert sum(row["bytes"].values()) == sum(row["formula"].values())
    parameters = 8 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10
    assert result["rows"][0]["formula"] == {"gradients": 2 * 4 * parameters, "activations": 0, "loss": 48}


def test_bad_options_are_refused(tmp_path):
    bad = [
        (["--net", "lenet5"], "takes images"),
        (["--net", "mlp:900000,900000,relu"], "times the memory of a machine"),
        (["--batch-sizes", "4,0"], "whole number of at least 1"),
        (["--out", "/proc/no/c.json"], "can not write"),
    ]
    assert_refused(2, "crossover", bad, ["--out", tmp_path / "c.json"])
    assert list(tmp_path.iterdir()) == []


def test_all_grids_of_a_number_of_ranks():
    found = every_grid(6, ("model", "batch"))
    assert [(sizes["batch"], sizes["model"]) for sizes in found] == [(6, 1), (3, 2), (2, 3), (1, 6)]
    assert list(every_grid(1, ("model", "batch"))) == [{"batch": 1, "model": 1}]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([0.5, 1.0, 8.0], 64 * 4 ** (1 / 3)),  # half of the batch grid's time, then four times it
        ([8.0, 1.0, 8.0], 64 * 4 ** (1 / 3)),  # for good: one point where it is faster before does not count
        ([1.0, 2.0, 8.0], 64),
        ([8.0, 8.0, 8.0], 16),
        ([1.0, 1.0, 1.0], None),
    ],
)
def test_where_the_pure_batch_grid_becomes_faster(seconds, expected):
    """On 2 s a step of the pure batch grid, at batch sizes 16, 64, 256."""
    times = {"batch": [2.0] * 3, "model": seconds}
    rows = [{"grid": grid, "batch_size": 16 * 4**i, "seconds": {"median": times[grid][i]}} for i in range(3) for grid in times]
    found = crossover.crossings(rows)
    assert found == {"model": expected and pytest.approx(expected)}
