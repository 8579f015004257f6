"""Uneven shares of samples, rows, kernels and neurons: every program that takes --shares trains and prices what it says."""

import json

import numpy as np
import pytest

from gridgrad.datasets.part import Part
from gridgrad.experiments.common.options import shares_of
from gridgrad.experiments.run_parts import Run, Validation
from gridgrad.nn import MSE, SGD, BatchNorm, Linear, Sequential, Tanh
from gridgrad.parallel import READERS, ProcessGrid, parallelize
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.training.relocation import relocate
from tests.experiments.programs import assert_refused, job, program
from tests.mpi import mpi

TRAIN = "train"
OPTIONS = ["--quiet", "--dtype", "float64", "--steps", "6", "--batch-size", "13", "--reduction", "plain"]


def report(path, ranks, *arguments):
    finished = job(ranks, TRAIN, *OPTIONS, *arguments, "--report", path)
    assert finished.status == 0, finished.stderr
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    return report(tmp_path_factory.mktemp("serial") / "r.json", 1)


@pytest.mark.parametrize(
    ("ranks", "arguments"),
    [
        pytest.param(4, ["--grid", "model=4", "--shares", "3,2,1.5,1"], marks=pytest.mark.long),
        pytest.param(3, ["--grid", "batch=3", "--shares", "3,0,1"], marks=pytest.mark.long),
        pytest.param(4, ["--grid", "model=2,batch=2", "--shares", "model=3:2,batch=2:1"], marks=pytest.mark.long),
        (4, ["--grid", "model=2,batch=2", "--shares", "batch=0:1", "--reader", "scatter-broadcast"]),
        (3, ["--grid", "model=3", "--shares", "0,1,2", "--plan", "in,out,in", "--reader", "scatter", "--micro-batches", "3"]),
        (2, ["--grid", "batch=2", "--shares", "1,4", "--update", "sharded", "--reduction", "overlap:1"]),
    ],
)
def test_uneven_shares_train_the_same_network(ranks, arguments, serial, tmp_path):
    found = report(tmp_path / "r.json", ranks, *arguments)
    assert found["loss"] == pytest.approx(serial["loss"], rel=1e-10)
    assert found["test_mse"] == pytest.approx(serial["test_mse"], rel=1e-10)
    assert found["settings"]["shares"] == arguments[arguments.index("--shares") + 1]


def test_shares_that_do_not_fit_are_refused():
    bad = [
        (["--grid", "model=2,batch=2", "--shares", "3,1"], "2 have several ranks: name them"),
        (["--grid", "model=4", "--shares", "3,1"], "2 for the axis model, whose size is 4"),
        (["--grid", "model=4", "--shares", "1,2,3,x"], "must be a number at least 0, not 'x'"),
        (["--grid", "model=4", "--shares", "0,0,0,0"], "must have a share above 0"),
        (["--grid", "auto", "--shares", "1,2,3,4"], "name it with --grid"),
    ]
    assert_refused(4, TRAIN, bad, OPTIONS)


@pytest.mark.parametrize(
    ("ranks", "arguments"),
    [
        (2, ["--grid", "model=2", "--shares", "auto"]),
        pytest.param(
            3, ["--shares", "auto", "--handicap", "1=3", "--rebalance", "2", "--reduction", "auto"], marks=pytest.mark.long
        ),
        pytest.param(
            4,
            ["--grid", "model=2,batch=2", "--shares", "auto", "--handicap", "0=2.5@2,3=2", "--rebalance", "2"],
            marks=pytest.mark.long,
        ),
        (1, ["--shares", "auto", "--rebalance", "2"]),
    ],
)
def test_shares_that_are_measured_train_the_same_network(ranks, arguments, serial, tmp_path):
    found = report(tmp_path / "r.json", ranks, *arguments)
    assert found["loss"] == pytest.approx(serial["loss"], rel=1e-10)
    assert found["test_mse"] == pytest.approx(serial["test_mse"], rel=1e-10)
    steps = [entry["step"] for entry in found["rebalancing"] or []]
    assert steps == ([2, 4] if "--rebalance" in arguments and ranks > 1 else [])


@mpi(1, 2, 3)
def test_early_stopping_keeps_its_weights_where_shares_change(comm):
    def make():
        return Sequential([Linear(5, 12), BatchNorm(12), Tanh(), Linear(12, 3)], seed=1, dtype=np.float64)

    x, y = np.random.default_rng(0).standard_normal((7, 5)), np.random.default_rng(1).standard_normal((7, 3))
    held_out = Part(x, y, 0.0, 1.0, y_mean=np.zeros(3), y_std=np.ones(3), dtype=np.float64)
    with ProcessGrid(comm, model=comm.size) as grid:
        net = parallelize(make(), grid, "out,in", shares={"model": (1,) * comm.size})
        optimizer, validation = SGD(net, 0.1, momentum=0.9), Validation(held_out, "mse", 4, patience=2)
        run = Run(net, MSE(), optimizer, READERS["each"](net, held_out), 2, 2, [validation])
        run.moves = True
        run.begin()
        net.learn(x, y, MSE(), optimizer)
        validation.see()
        best = net.state_dict(everywhere=True)
        net.learn(x, y, MSE(), optimizer)
        relocate(net, optimizer, place(make(), grid, "out,in", {"model": (2, *[1] * (comm.size - 1))}))
        validation.exchange()
        after = net.state_dict(everywhere=True)
        assert all(np.array_equal(after[name], value) for name, value in best.items())
        validation.exchange()
        last = net.state_dict(everywhere=True)
        assert not np.array_equal(last["0.weight"], best["0.weight"])


def test_handicaps_that_do_not_fit_are_refused():
    bad = [
        (["--handicap", "2=2"], "'2=2' is not RANK=FACTOR or RANK=FACTOR@STEP with a rank below 2"),
        (["--handicap", "0=0.5"], "a factor of at least 1"),
        (["--handicap", "0=2@"], "'0=2@' is not RANK=FACTOR"),
        (["--handicap", "0=nan"], "'0=nan' is not RANK=FACTOR"),
        (["--slow", "0=2"], "--slow is gone: --handicap slows down real ranks"),
    ]
    assert_refused(2, TRAIN, bad, OPTIONS)


def test_shares_of_an_unknown_axis_or_one_that_is_named_twice_are_refused():
    for text, words in (("depth=1:2", "axis depth"), ("batch=1:2,batch=1:2", "names an axis twice")):
        with pytest.raises(ValueError, match=words):
            shares_of(text, {"batch": 2, "height": 1, "model": 1})


def explained(*arguments):
    return program("explain", "--net", "mlp:512,512,relu", "--ranks", 4, *arguments)


def test_explain_shows_the_shares_of_unequal_ranks_by_each_rule():
    grid = "--grid", "model=4", "--plan", "out"
    lines = explained(*grid, "--speeds", "3,2,1.5,1").stdout.splitlines()
    at = lines.index("Ranks of the speeds 3, 2, 1.5, 1: predicted")
    assert lines[at + 1].startswith("speeds along model: ") and lines[at + 2] == "512 outputs of layer 0 along model"
    assert [line.split()[0] for line in lines[at + 3 : at + 6]] == ["even", "constant", "function"]
    assert lines[at + 3].endswith("shares 128, 128, 128, 128")
    for arguments, words in (((*grid, "--speeds", "3,2"), "2 numbers for 4 ranks"), (("--speeds", "3,2,1,1"), "name it with")):
        refused = explained(*arguments)
        assert refused.returncode == 2 and words in refused.stderr


def test_explain_prices_the_rank_with_the_largest_share():
    def megabytes_and_milliseconds(*arguments):
        line = next(line for line in explained(*arguments).stdout.splitlines() if line.startswith("a step"))
        return [float(word) for word in line.split()[2:] if word != "-"]

    grid = "--grid", "model=4", "--plan", "out"
    even, uneven = megabytes_and_milliseconds(*grid), megabytes_and_milliseconds(*grid, "--shares", "5,1,1,1")
    same = megabytes_and_milliseconds(*grid, "--shares", "2,2,2,2")
    assert same == [*even[:2], even[-1]]  # without what is sent at least, which is for even shares alone
    assert uneven[0] == pytest.approx(2.5 * even[0], rel=0.1) and uneven[-1] > even[-1]  # 5/8 of the products instead of 1/4
    assert explained(*grid, "--shares", "5,1,1,1").stdout.endswith(
        "options of train: --grid model=4 --plan out --shares 5,1,1,1\n"
    )
    refused = explained("--shares", "1,2,3,4")
    assert refused.returncode == 2 and "name it with --grid" in refused.stderr
