"""convergence, small: all ways train the same network, and what is written about them."""

import json

import numpy as np
import pytest

from gridgrad import datasets
from gridgrad.experiments.common.tables import terminal
from gridgrad.experiments.studies.convergence import GAIN, WAYS, cells, document, main, network, options, reached
from gridgrad.parallel.job.run import UserError
from tests.datasets.test_mnist import small  # noqa: F401 (a fixture)
from tests.experiments.programs import program

SMALL = "--dataset", "mnist", "--net", "vgg-style:4,4", "--batch-size", "5", "--epochs", "1", "--evaluated", "8"


def trained(folder, *arguments, ranks="2"):
    """(how the program ended, the results in its file)."""
    out = folder / "new" / "found.json"
    finished = program("launch", ranks, "study", "convergence", *SMALL, "--data-dir", folder, "--out", out, *arguments)
    assert finished.returncode == 0, finished.stderr
    return finished, json.loads(out.read_text())


def test_all_ways_train_the_same_network(small):  # noqa: F811
    finished, (result,) = trained(small, "--in-flight", "1", "--every", "0.25", "--target", "99")
    losses = [[row["training_loss"] for row in way["history"]] for way in result["ways"]]
    assert len(losses) == len(WAYS) and len(losses[0]) == 4
    assert all(np.allclose(found, losses[0], rtol=1e-4) for found in losses)
    assert [row["epoch"] for row in result["ways"][0]["history"]] == [0.25, 0.5, 0.75, 1]
    assert all(np.all(np.diff([row["seconds"] for row in way["history"]]) > 0) for way in result["ways"])
    assert [way["staleness"] for way in result["ways"]] == [None] * 3 + [[{"0": 4}] * 2] * 3
    assert finished.stdout.count("epoch 0.75") == len(WAYS)


@pytest.mark.long
def test_a_result_replaces_that_of_the_same_problem(small):  # noqa: F811
    """At first with one minibatch under way, then with two."""
    trained(small, "--in-flight", "1")
    finished, (result,) = trained(small)
    assert [way["way"] for way in result["ways"][3:]] == [
        "stage=2, async:2", "stage=2, async:2:nostash", "model=2, hypergraph, async:2",
    ]  # fmt: skip
    assert any("1" in counts for counts in result["ways"][3]["staleness"])
    text = (small / "new" / "found.md").read_text()
    table = text[text.rindex("\n\n") :]
    assert terminal(table) in finished.stdout


@pytest.mark.long
def test_trainings_that_diverge_end_and_the_others_go_on(small):  # noqa: F811
    ways = "--ways", "serial,batch,1f1b,async,hypergraph"
    finished, (result,) = trained(small, *ways, "--lr", "1e12", "--net", "mlp:8,8,relu", "--in-flight", "3")
    assert all("lower" in way["diverged"] and not way["epochs"] for way in result["ways"])
    assert finished.stdout.count("(diverged)") == 5


def test_one_rank_trains_until_the_target(small):  # noqa: F811
    _, (result,) = trained(small, "--target", "0.001", "--epochs", "20", "--lr", "0.05", ranks="1")
    (way,) = result["ways"]
    *before, last = way["history"]
    assert last["training_accuracy"] > 0.001 and not any(row["training_accuracy"] for row in before)
    assert (way["epochs"], way["seconds"]) == (last["epoch"], last["seconds"])


def test_the_table_compares_with_the_serial_way():
    history = [
        {"epoch": epoch, "seconds": 10.0 * epoch, "training_accuracy": 20.0 + 20 * epoch, "test_accuracy": 39.0}
        for epoch in (1, 2, 3)
    ]
    assert reached(history, 60) is history[1] and reached(history, 81) is None
    step = {"median": 0.012, "min": 0.011, "max": 0.02}
    serial = {"way": "serial", "history": history, "seconds_per_step": step, "diverged": None, "epochs": 2, "seconds": 20.0}
    serial["staleness"] = None
    ways = [
        serial,
        serial | {"way": "async", "seconds": 8.0, "staleness": [{"0": 1, "1": 3}]},
        {name: None for name in serial} | {"way": "bad", "history": [], "diverged": "the loss is nan"},
    ]
    result = {"ways": ways, "settings": {"target": 60.0, "momentum": 0.9, "evaluated": 8}, "net": "n", "samples": 9, "lr": 0.1,
              "ranks": 2, "batch_size": 3, "dataset": "d", "synthetic": False,
              "versions": {"processor": "one", "mpi": "two", "threads": 1}}  # fmt: skip
    rows = [list(row.values()) for row in cells(result)]
    assert rows[0][1:7] == ["2.00", "20.0", "1.00", "12.0 (11.0 - 20.0)", "60.00 %", "39.00 %"]
    assert rows[1][3] == "2.50" and rows[1][-1] == "0.75" and rows[2][0] == "bad (diverged)"
    assert "| bad (diverged) | - | - | - | - | - | - | - |" in "\n".join(document([result]))


def test_the_weights_of_the_vgg_like_network_are_larger(small):  # noqa: F811
    net, _ = network(options().parse_args([*SMALL, "--net", "vgg-style:2"]), datasets.load("mnist", small), 1)
    assert [p.value.shape for _, p in net.parameters if p.name == "bias"] == [(2,), (2,), (256,), (10,)]
    for layer in net.leaves():
        if layer.kind:
            bound = abs(layer.bias.value).max() * GAIN
            assert bound / 2 < abs(layer.weight.value).max() < 3 * bound


def test_what_does_not_fit_is_said(small, monkeypatch):  # noqa: F811
    for arguments, words in (
        (("--ways", "batch"), "'batch' is for several ranks: start at least 2"),
        (("--ways", "serial,fast"), "there is no way 'fast'"),
        (("--samples", "21"), "--samples 21: there are only 20 training samples"),
        (("--samples", "4"), "--batch-size 5 is larger than the data: 4 training samples"),
        (("--dataset", "airfoil"), "has no classes"),
        (("--net", "vgg-style:4,4,4,4,4"), "does not fit into images of 1x1"),
        (("--net", "vgg-style:a"), "is no whole number"),
        (("--every", "0"), "must be a number above 0"),
    ):
        line = ["convergence", *SMALL, "--data-dir", str(small), "--out", str(small / "found.json"), *arguments]
        monkeypatch.setattr("sys.argv", line)
        with np.errstate(), pytest.raises(UserError, match=words):
            main()
