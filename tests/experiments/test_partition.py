"""partition, small: its table, the files that it writes and reads, and what it refuses."""

import importlib.util
import json
import sys

import numpy as np
import pytest

from gridgrad.experiments.common.problems import published
from gridgrad.experiments.partition import main, read_parts
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.observe.span_observer import METHODS
from gridgrad.parallel.partitioning import mt_kahypar
from gridgrad.parallel.partitioning.good_partition import read_owners
from gridgrad.parallel.partitioning.network_hypergraph import measure, of_network
from tests.experiments.programs import program

needs_library = pytest.mark.skipif(importlib.util.find_spec("mtkahypar") is None, reason="needs mtkahypar")


def partition(*arguments):
    return program("partition", *arguments)


@needs_library
def test_all_methods_are_printed_and_the_owners_written(tmp_path):
    out = tmp_path / "new" / "owners.h5"
    finished = partition("--net", "resnet20", "--ranks", 3, "--speeds", "3,2,1", "--compare", "--out", out)
    assert finished.returncode == 0, finished.stderr
    first, heads, *rows, _, written = finished.stdout.splitlines()
    assert "resnet20, batch 32, on 3 ranks, coarse grain: 795 vertices, 794 nets" in first
    assert heads.split("  ")[-1].strip() == "most of a rank"
    assert [row.split()[0] for row in rows] == ["hypergraph", "layer-wise", "horizontal", "incremental", "random", "data"]
    sent = {row.split()[0]: float(row.split()[3]) for row in rows[:-1]}
    assert sent["hypergraph"] < sent["horizontal"] / 4
    net = published("resnet20")
    owners, model = read_owners(out, net), of_network(net)
    found = measure(model, model.parts(owners), 3, [3, 2, 1])
    assert found.work.max() <= 1.1001
    assert sent["hypergraph"] == pytest.approx(2 * found.volume * 32 * 4 / 2**20, rel=1e-3)
    assert written == f"owners written to {out}; next: gridgrad train --net resnet20 --grid model=3 --plan {out}"
    assert rows[-1].split()[-1] == f"{2 * 2 * 272_474 * 4 / 2**20:.4g}"


def test_owners_that_divide_blocks_of_neurons_are_measured(tmp_path):
    out = tmp_path / "owners.h5"
    finished = partition("--net", "mlp:512,512,relu", "--shape", 20, "--ranks", 3, "--out", out)
    assert finished.returncode == 0, finished.stderr
    first, _, row, *_ = finished.stdout.splitlines()
    assert f"{2 * 512 + 10 + 1:,} vertices" in first
    net = published("mlp:512,512,relu", [20])
    model = of_network(net, neuron_blocks=None)
    found = measure(model, model.parts(read_owners(out, net)), 3)
    assert float(row.split()[3]) == pytest.approx(2 * found.volume * 32 * 4 / 2**20, rel=1e-3)


def test_methods_are_compared_without_the_partitioner(monkeypatch, capsys):
    monkeypatch.setattr(mt_kahypar, "find_spec", lambda name: None)
    command = ["partition", "--net", "resnet20", "--compare"]
    monkeypatch.setattr(sys, "argv", [*command, "--method", "horizontal"])
    main()
    *_, last = lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:7]] == ["horizontal", "layer-wise", "incremental", "random", "data"]
    assert last == "There is no row hypergraph, because Mt-KaHyPar is not installed: pip install mtkahypar"
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(UserError, match="not installed"):
        main()


def test_a_partition_of_another_program_is_taken(tmp_path):
    for ending in (".patoh", ".hgr"):
        path = tmp_path / f"net{ending}"
        common = "--net", "lenet5", "--grain", "fine", "--ranks", 2
        finished = partition(*common, "--method", "layer-wise", "--out", path)
        assert finished.returncode == 0, finished.stderr
        graph = of_network(published("lenet5"), "fine", None, 64).hypergraph
        assert path.exists()
        parts = np.arange(graph.vertices) % 2
        (tmp_path / "parts").write_text("\n".join(map(str, parts)))
        finished = partition(*common, "--method", tmp_path / "parts", "--out", tmp_path / "owners.h5")
        assert finished.returncode == 0 and finished.stdout.splitlines()[2].startswith(f"{tmp_path / 'parts'} ")
        sent = float(finished.stdout.splitlines()[2].split()[3])
        assert sent == pytest.approx(2 * graph.volume(parts, 2) * 32 * 4 / 2**20, rel=1e-3)
        owners = read_owners(tmp_path / "owners.h5", published("lenet5"))
        assert (read_parts(tmp_path / "parts", graph.vertices) == of_network(published("lenet5"), "fine").parts(owners)).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--net", "lenet6"), "unknown net 'lenet6'"),
        (("--net", "lenet5", "--speeds", "1,2"), "--speeds has 2 numbers for 4 ranks"),
        (("--net", "lenet5", "--speeds", "1,0"), "must be a number above 0"),
        (("--net", "lenet5", "--out", "net.txt"), "must end in .h5 (owners), .patoh (PaToH) or .hgr (hMETIS)"),
        (("--net", "lenet5", "--method", "horizontel"), "there is no such method or file (did you mean horizontal?)"),
        (("--net", "lenet5", "--method", "horizontal", "--out", "owners.hdf5"), "must end in .h5"),
        (("--net", "lenet5", "--grain", "medium"), "invalid choice"),
        (("--net", "lenet5", "--ranks", "2,4"), "--ranks has several numbers"),
        (("--net", "lenet5", "--method", "horizontal", "--out", "/proc/no/owners.h5"), "can not write"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(arguments, words):
    finished = partition(*arguments)
    assert finished.returncode == 2 and words in finished.stderr
    assert len(finished.stderr.strip().splitlines()) == 1, finished.stderr


@pytest.mark.parametrize("ranks", ["2", pytest.param("2,3", marks=pytest.mark.long)])
def test_the_table_of_published_networks(tmp_path, ranks):
    out = tmp_path / "partitions.md"
    finished = partition("--table", out, "--nets", "lenet5", "--ranks", ranks)
    assert finished.returncode == 0, finished.stderr
    rows = [line.split(" | ") for line in out.read_text().splitlines() if line.startswith("| lenet5")]
    assert [row[1:3] for row in rows] == [[grain, count] for grain in ("coarse", "fine") for count in ranks.split(",")]
    assert all(float(row[4]) < float(row[7]) for row in rows)  # than the horizontal partition


def test_a_profile_gives_the_weights(tmp_path):
    profile = tmp_path / "profile.json"
    arguments = "--net", "mlp:16,12,relu", "--steps", "8", "--profile", "--report", profile
    assert program("train", *arguments).returncode == 0
    net = "--net", "mlp:16,12,relu", "--shape", "4", "--outputs", "1", "--ranks", "2", "--method", "horizontal"
    measured, counted = partition(*net, "--profile", profile), partition(*net)
    assert measured.returncode == counted.returncode == 0, measured.stderr
    report = json.loads(profile.read_text())
    for row in report["layers"]:  # as if the last layer took all of the time, which one rank has alone
        row |= {phase: float(row["layer"] == "4") for phase in METHODS}
    profile.write_text(json.dumps(report))
    last, first = (finished.stdout.splitlines()[2].split() for finished in (partition(*net, "--profile", profile), counted))
    assert last[1:3] == ["2.000", "0.000"] != first[1:3] and last[3:] == first[3:]  # the same partition, weighed otherwise
    other = partition("--net", "mlp:16,16,relu", *net[2:], "--profile", profile)
    assert other.returncode == 2 and "has the seconds of mlp:16,12,relu: write it by train --net mlp:16,16,relu" in other.stderr
    profile.write_text("{}")
    refused = partition(*net, "--profile", profile)
    assert refused.returncode == 2 and "train --profile" in refused.stderr and refused.stderr.count("\n") == 1
