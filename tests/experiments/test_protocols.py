"""protocols, small: every protocol trains the same network in virtual time, and what is written about that."""

import json
from pathlib import Path

import numpy as np
import pytest

from gridgrad.experiments.studies.protocols import (
    PROTOCOLS,
    AllReduced,
    add_losses,
    communication,
    document,
    maker,
    options,
    prepared,
    reached,
)
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.zoo.network_names import build
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.protocols.simulated_workers import Simulation, Task, train
from gridgrad.parallel.sync.power_sgd import UNCOMPRESSED_STEPS
from gridgrad.parallel.training import minibatch_indices
from tests.datasets.test_mnist import small  # noqa: F401 (a fixture)
from tests.experiments.programs import program
from tests.mpi import mpi

SMALL = "--dataset", "mnist", "--net", "mlp:6,relu", "--batch-size", "4", "--epochs", "2", "--every", "1", "--evaluated", "6"
SECONDS = "--seconds", "0.01,0.00001"


def found(folder, *arguments):
    """The results in the program's file."""
    out = folder / "new" / "found.json"
    finished = program("study", "protocols", *SMALL, "--data-dir", folder, "--out", out, *arguments)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    return json.loads(out.read_text())


def test_all_protocols_train_the_same_network_in_virtual_time(small):  # noqa: F811
    (result,) = found(small, *SECONDS, "--target", "0.5")
    assert [(run["protocol"], run["straggler"]) for run in result["runs"]] == [(p, s) for p in PROTOCOLS for s in (1, 4)]
    runs = {(run["protocol"], run["straggler"]): run for run in result["runs"]}
    for (text, factor), run in runs.items():
        assert [row["samples"] for row in run["history"]] == [20, 40, 40] and sum(run["turns"]) == 40
        assert run["diverged"] is None and run["bytes"] > 0 and run["messages"] > 0
        assert np.all(np.diff([row["seconds"] for row in run["history"]]) >= 0)
        if not text.startswith(("server:asp", "server:ssp", "downpour")):  # workers in step: a straggler costs time alone
            same = runs[text, 1.0]
            assert run["score"] == same["score"] and run["turns"] == [10] * 4 and run["bytes"] == same["bytes"]
            assert factor == 1 or run["seconds"] > 2 * same["seconds"]
    assert runs["sync", 1.0]["history"][-1]["training_loss"] is None  # no samples since the row before
    assert runs["sync", 4.0]["seconds"] > 1.5 * runs["server:asp", 4.0]["seconds"]
    assert runs["server:asp", 4.0]["turns"][3] < 6 and runs["server:asp", 4.0]["staleness"]["max"] > 0
    (again,) = found(small, *SECONDS, "--target", "0.5", "--protocols", "server:asp,sync")  # replaces it, bit by bit the same
    assert again["runs"] == [runs[text, factor] for text in ("server:asp", "sync") for factor in (1.0, 4.0)]
    assert "| `sync` |" in (small / "new" / "found.md").read_text()


def test_samples_may_be_sorted_and_seconds_are_measured(small):  # noqa: F811
    (result,) = found(small, "--protocols", "parallel-sgd:epoch", "--straggler", "1", "--sorted")
    assert result["seconds"]["compute"] > 0 and result["seconds"]["update"] > 0 and len(result["runs"]) == 1
    words = [*SMALL, "--sorted", "--samples", "15", "--data-dir", str(small), "--out", str(small / "other.json")]
    problem, _ = prepared(options().parse_args(words))
    train = problem.data.train
    plain = train.targets(np.arange(15))
    assert np.array_equal(problem.y, np.sort(plain)) and not np.array_equal(problem.y, plain)
    assert np.array_equal(problem.x[-1], train.inputs(plain.argsort(kind="stable"), (slice(None),))[-1])


def test_a_training_that_diverges_is_reported(small):  # noqa: F811
    (result,) = found(small, *SECONDS, "--lr", "1e12", "--protocols", "sync,server:asp", "--net", "mlp:6,6,relu")
    assert all("try a lower" in run["diverged"] for run in result["runs"])
    text = (small / "new" / "found.md").read_text()
    assert text.count("| `sync` (diverged) |") == 2 and "`server:asp` diverged: after" in text
    rising = "--dataset airfoil --net mlp:8,tanh --samples 200 --batch-size 20 --epochs 1 --lr 1 --schedule constant"
    *_, last = found(small, *SECONDS, *rising.split(), "--momentum", "0", "--protocols", "sync", "--straggler", "1")
    assert last["runs"][0]["diverged"].startswith("the loss rose from 1.")  # all of it finite


def test_kept_results_make_the_kept_page():
    found = json.loads(Path("results/protocols.json").read_text())
    assert "\n".join(document(found)) + "\n" == Path("results/protocols.md").read_text()


def test_summed_gradients_are_synchronous_training():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(10, 3)), random.integers(0, 4, 10)
    loss, nets = LOSSES["cross-entropy"](), [build("mlp:5,tanh", (3,), 4, 0, "float64") for _ in range(2)]
    simulation, momentum = Simulation(3, latency=1e-3), lambda net: SGD(net, 0.1, momentum=0.9)
    _, states = train(simulation, Task(nets[0], momentum, loss, x, y, 4, 7), AllReduced, lambda samples: 1.0)
    optimizer = momentum(nets[1])
    for step in range(7):  # minibatches of 4, 4 and 2 samples: some shares are empty
        chosen, _ = minibatch_indices(10, 4, 0, step)
        nets[1].learn(x[chosen], y[chosen], loss, optimizer)
    for state in states:
        assert all(np.allclose(state[name], value, rtol=0, atol=1e-10) for name, value in nets[1].state_dict().items())
    sent, ring = communication(simulation, 7), 2 * (3 - 1)  # messages of each worker, each a third of an array
    assert simulation.time == pytest.approx(7 + 8 * ring * 1e-3)  # seven gradients, and at the end the number of samples
    assert sent["messages"] == 3 * ring * 8 / 7
    assert sent["bytes"] == pytest.approx(ring * 8 * (7 * nets[1].size + 1) / 7, rel=0.02)  # thirds may be uneven


@mpi(2)
def test_simulated_workers_compress_as_the_ranks_of_a_job(comm):
    """PowerSGD on two ranks, some steps before it compresses and some after it."""
    random, serial = np.random.default_rng(0), build("mlp:6,tanh", (5,), 4, 0, "float64")
    x, y, steps = random.normal(size=(12, 5)), random.integers(0, 4, 12), UNCOMPRESSED_STEPS + 5
    loss, momentum = LOSSES["cross-entropy"](), lambda net: SGD(net, 0.1, momentum=0.9)
    task = Task(serial, momentum, loss, x, y, 6, steps)
    _, (simulated, _) = train(Simulation(2), task, maker("powersgd:1"), lambda samples: 1.0)
    with ProcessGrid(comm, batch=2) as grid:
        net = parallelize(serial, grid, reduction="powersgd:1")
        optimizer = momentum(net)
        for step in range(steps):
            chosen, _ = minibatch_indices(12, 6, 0, step)
            net.learn(x[chosen], y[chosen], loss, optimizer)
        state = net.state_dict()
    assert all(np.allclose(simulated[name], value, rtol=0, atol=1e-10) for name, value in (state or {}).items())
    _, (plain, _) = train(Simulation(2), task, AllReduced, lambda samples: 1.0)
    assert any(abs(simulated[name] - value).max() > 1e-3 for name, value in plain.items())


def test_losses_are_means_since_the_row_before():
    history = [{"samples": 3}, {"samples": 8}, {"samples": 8}]
    add_losses(history, [(1, 6.0), (2, 3.0), (5, 1.0)])
    assert [row["training_loss"] for row in history] == [4.0, 1.0, None]
    rows = [{"score": 1.0}, {"score": 3.0}, {"score": 2.0}]
    assert reached(rows, 2, "accuracy") is rows[1] and reached(rows, 0.5, "mse") is None and reached(rows, 1, "mse") is rows[0]


def test_every_default_is_a_protocol():
    assert all(maker(text) for text in PROTOCOLS) and len(PROTOCOLS) == len({text.partition(":")[0] for text in PROTOCOLS}) + 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--protocols", "sync,fast"), "there is no protocol 'fast'"),
        (("--samples", "21"), "--samples 21: there are only 20 training samples"),
        (("--samples", "3"), "--batch-size 4 is larger than the data: 3 training samples"),
        (("--seconds", "1"), "--seconds takes two numbers"),
        (("--protocols", "powersgd:0"), "write powersgd:R with a whole number of at least 1"),
        (("--schedule", "up"), "unknown schedule"),
        (("--measure", "2"), "--measure is gone: gridgrad sweep"),
    ],
)
def test_what_does_not_fit_is_said(small, arguments, words):  # noqa: F811
    line = [*SMALL, "--data-dir", str(small), "--out", str(small / "found.json"), *arguments]
    with pytest.raises(UserError, match=words):
        prepared(options().parse_args(line))
