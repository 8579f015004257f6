"""The studies `convergence`, `protocols` and `pruned`, small: what they train, count and compare."""

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from gridgrad.experiments.studies import convergence, protocols
from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.zoo import network_names
from gridgrad.nn.zoo.network_names import build
from gridgrad.parallel.protocols.simulated_workers import Simulation, Task, train
from gridgrad.parallel.training import minibatch_indices
from tests.experiments.programs import run_main
from tests.mpi import mpi

NEEDS_PARTITIONER = pytest.mark.skipif(not find_spec("mtkahypar"), reason="needs mtkahypar")
IMAGES = "random:12x12x1,3,20"

SHORT = "--dataset", IMAGES, "--net", "vgg-style:4", "--batch-size", 5, "--epochs", 1, "--evaluated", 8, "--in-flight", 1


@mpi(2)
def test_all_ways_train_the_same_network(comm, monkeypatch):
    """A second problem, in which trainings diverge, joins the first one."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(comm.bcast(folder)) / "new" / "found.json"
        for more in (("--every", 0.25, "--target", 99), ("--lr", 1e12, "--ways", "batch,async")):
            run_main(monkeypatch, "convergence", *SHORT, *more, "--out", out)
            comm.Barrier()
        whole, diverged = json.loads(out.read_text())
        comm.Barrier()
    losses = [[row["training_loss"] for row in way["history"]] for way in whole["ways"]]
    assert len(losses) == len(convergence.WAYS) and len(losses[0]) == 4
    assert all(np.allclose(found, losses[0], rtol=1e-4) for found in losses)
    assert [way["staleness"] for way in whole["ways"]] == [None] * 3 + [[{"0": 4}] * 2] * 3
    assert all("lower" in way["diverged"] and not way["epochs"] for way in diverged["ways"]) and len(diverged["ways"]) == 2


def test_all_protocols_train_the_same_network_in_virtual_time(tmp_path):
    words = f"--dataset {IMAGES} --net mlp:6,relu --batch-size 4 --epochs 2 --every 1 --seconds 0.01,0.00001 --out"
    with np.errstate():
        protocols.simulate(protocols.options().parse_args([*words.split(), str(tmp_path / "found.json")]))
    [result] = json.loads((tmp_path / "found.json").read_text())
    runs = {(run["protocol"], run["straggler"]): run for run in result["runs"]}
    assert list(runs) == [(text, factor) for text in protocols.PROTOCOLS for factor in (1, 4)]
    for (text, factor), run in runs.items():
        assert run["diverged"] is None and np.all(np.diff([row["seconds"] for row in run["history"]]) >= 0)
        if not text.startswith(("server:asp", "server:ssp", "downpour")):  # workers in step: a straggler costs time alone
            same = runs[text, 1]
            assert run["score"] == same["score"] and len(set(run["turns"])) == 1 and run["bytes"] == same["bytes"]
            assert factor == 1 or run["seconds"] > 2 * same["seconds"]
    assert runs["sync", 4]["seconds"] > 1.5 * runs["server:asp", 4]["seconds"] and runs["server:asp", 4]["staleness"]["max"] > 0


def test_a_target_is_reached_at_the_first_score_that_is_as_good():
    history = [{"score": score} for score in (95.5, 97.0, 99.5)]
    assert protocols.reached(history, 97, "accuracy") is history[1]  # of a file, where a number may be a whole one
    assert protocols.reached(history, 96, "mse") is history[0]
    assert protocols.reached(history, 100, "accuracy") is None


def momentum(net):
    return SGD(net, 0.1, momentum=0.9)


def test_summed_gradients_are_synchronous_training():
    random, loss = np.random.default_rng(0), LOSSES["cross-entropy"]()
    x, y, net = random.normal(size=(10, 3)), random.integers(0, 4, 10), build("mlp:5,tanh", (3,), 4, 0, "float64")
    simulation = Simulation(3, latency=1e-3)
    _, states = train(simulation, Task(net, momentum, loss, x, y, 4, 7), protocols.AllReduced, lambda samples: 1.0)
    optimizer = momentum(net)
    for step in range(7):  # minibatches of 4, 4 and 2 samples: some shares are empty
        chosen, _ = minibatch_indices(10, 4, 0, step)
        net.learn(x[chosen], y[chosen], loss, optimizer)
    for state in states:
        assert all(np.allclose(state[name], value, rtol=0, atol=1e-10) for name, value in net.state_dict().items())
    sent, ring = protocols.communication(simulation, 7), 2 * (3 - 1)  # messages of each worker, each a third of an array
    assert simulation.time == pytest.approx(7 + 8 * ring * 1e-3)  # seven gradients, and at the end the number of samples
    assert sent["messages"] == 3 * ring * 8 / 7
    assert sent["bytes"] == pytest.approx(ring * 8 * (7 * net.size + 1) / 7, rel=0.02)  # thirds may be uneven


@NEEDS_PARTITIONER
def test_the_pruned_network_is_written_with_its_tables(tmp_path, monkeypatch):
    words = "--dataset", "airfoil", "--net", "mlp:16,16,relu", "--steps", 30, "--further", 10, "--zeros", 0.5, "--ranks", "2,3"
    path = tmp_path / "new" / "pruned.h5"
    run_main(monkeypatch, "pruned", *words, "--out", path)
    net = network_names.build(f"pruned:{path}", 4, 1)
    assert [layer.pattern.sum() for layer in net.layers[::2]] == [32, 128, 8]
    assert "| 3 | hypergraph |" in path.with_suffix(".md").read_text()
