"""partition, small: its tables, and the files that it writes and reads."""

from importlib.util import find_spec

import numpy as np
import pytest

from gridgrad.experiments.common.problems import published
from gridgrad.experiments.partition import read_parts
from gridgrad.parallel.partitioning.good_partition import read_owners
from gridgrad.parallel.partitioning.network_hypergraph import measure, of_network
from tests.experiments.programs import run_main

NEEDS_PARTITIONER = pytest.mark.skipif(not find_spec("mtkahypar"), reason="needs mtkahypar")


@pytest.fixture
def partition(monkeypatch, capsys):
    """A function that calls partition and returns the lines that it prints."""

    def call(*words):
        run_main(monkeypatch, "partition", *words)
        return capsys.readouterr().out.splitlines()

    return call


@NEEDS_PARTITIONER
def test_all_methods_are_printed_and_the_owners_written(partition, tmp_path):
    out, net = tmp_path / "new" / "owners.h5", published("resnet20")
    _, _, *rows, _, _ = partition("--net", "resnet20", "--ranks", 3, "--speeds", "3,2,1", "--compare", "--out", out)
    assert [row.split()[0] for row in rows] == ["hypergraph", "layer-wise", "horizontal", "incremental", "random", "data"]
    sent = {row.split()[0]: float(row.split()[3]) for row in rows[:-1]}
    assert sent["hypergraph"] < sent["horizontal"] / 4
    model = of_network(net)
    found = measure(model, model.parts(read_owners(out, net)), 3, [3, 2, 1])
    assert found.work.max() <= 1.1001 and sent["hypergraph"] == pytest.approx(2 * found.volume * 32 * 4 / 2**20, rel=1e-3)


# ----- files of other partitioners


def test_a_partition_of_another_program_is_taken(partition, tmp_path):
    common, parts, out = ("--net", "lenet5", "--grain", "fine", "--ranks", 2), tmp_path / "parts", tmp_path / "owners.h5"
    partition(*common, "--method", "layer-wise", "--out", tmp_path / "net.hgr")
    model = of_network(published("lenet5"), "fine")
    vertices = model.hypergraph.vertices
    assert (tmp_path / "net.hgr").read_text().startswith(f"{model.hypergraph.nets} {vertices} 11\n")
    numbers = np.arange(vertices) % 2
    parts.write_text("% a comment\n" + " ".join(map(str, numbers[:500])) + "\n" + "\n".join(map(str, numbers[500:])))
    partition(*common, "--method", parts, "--out", out)
    assert (read_parts(parts, vertices) == numbers).all()
    assert (model.parts(read_owners(out, published("lenet5"))) == numbers).all()
    for text, message in (("0 1 0 1", "4 numbers, but the hypergraph has 3"), ("0 1\n2 -1\n", "parts, line 2: '-1'")):
        parts.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_parts(parts, 3)
