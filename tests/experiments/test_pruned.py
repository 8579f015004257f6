"""pruned, small: the network is written and trained on ranks, and the partitions are compared."""

import json
from importlib.util import find_spec

import numpy as np
import pytest

from gridgrad.experiments.common.tables import terminal
from gridgrad.experiments.studies.pruned import main, measures, partitions
from gridgrad.nn import Sequential, SparseLinear
from gridgrad.nn.zoo import network_names
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from tests.datasets.test_mnist import small  # noqa: F401 (a fixture)
from tests.experiments.programs import job, program

needs_library = pytest.mark.skipif(find_spec("mtkahypar") is None, reason="Mt-KaHyPar is not installed")
SMALL = "--dataset", "airfoil", "--net", "mlp:16,16,relu", "--steps", 30, "--further", 10, "--zeros", 0.5, "--ranks", "2,3"


@needs_library
def test_the_pruned_network_trains_on_ranks_as_alone(tmp_path):
    path, losses = tmp_path / "new" / "pruned.h5", []
    finished = program("study", "pruned", *SMALL, "--out", path)
    assert finished.returncode == 0, finished.stderr
    text = path.with_suffix(".md").read_text()
    assert terminal(text) in finished.stdout and "4 - 16 - 16 - 1 neurons,\n50% of whose weights are zero" in text
    assert "| pruned, and trained further |" in text and "| 3 | hypergraph |" in text
    net = network_names.build(f"pruned:{path}", 4, 1)
    assert [layer.pattern.sum() for layer in net.layers[::2]] == [32, 128, 8]
    for ranks, plan in ((1, ()), (3, ("--grid", "model=3", "--plan", "hypergraph"))):
        report = tmp_path / f"{ranks}.json"
        trained = job(ranks, "train", "--net", f"pruned:{path}", *plan, "--steps", 6, "--dtype", "float64",
                      "--report", report)  # fmt: skip
        assert trained.status == 0, trained.stderr
        losses.append(json.loads(report.read_text())["loss"])
    assert np.allclose(*losses, rtol=1e-10)


def groups(count, width):
    """A network of three layers in which groups of neurons know nothing of each other, in a random order."""
    order = [np.random.default_rng(seed).permutation(count * width) % count for seed in range(4)]
    layers = [SparseLinear(order[i][:, None] == order[i + 1]) for i in range(3)]
    return Sequential(layers, input_shape=(count * width,))


@needs_library
def test_groups_that_know_nothing_of_each_other_are_found():
    net = groups(4, 8)
    model = of_network(net, with_loss=False)
    found = {name: measures(net, model, parts, 4, 10) for name, parts in partitions(model, 4, 0.1, 0).items()}
    best, random, rows = (found[name] for name in ("hypergraph", "random", "rows"))
    assert best == {"activations": 0, "MB a step": 0, "largest rank": 0, "messages": 0, "balance": 1, "products": 0.25}
    for other in (random, rows):
        assert other["activations"] > 32 and other["balance"] == 1 and other["products"] > 0.5
        assert other["MB a step"] == pytest.approx(2 * 10 * 4 * other["activations"] / 1e6)


def test_what_does_not_fit_is_said(tmp_path, small, monkeypatch):  # noqa: F811
    for arguments, words in (
        (("--zeros", "1"), "must be a number at least 0 and below 1"),
        (("--net", "lenet5"), "takes images"),
        (("--batch-size", "5000"), "--batch-size 5000 is larger than the data"),
        (("--out", "/proc/no/pruned.h5"), "can not write"),
        (("--dataset", "mnist", "--data-dir", small, "--net", "lenet5"), "lenet5 is none: use mlp:WIDTH"),
    ):
        line = ["pruned", *SMALL, "--out", tmp_path / "pruned.h5", *arguments]
        monkeypatch.setattr("sys.argv", [str(word) for word in line])
        with pytest.raises(UserError, match=words):
            main()
