"""train and explain with partitions: searched for or from a file, the same network; and what they refuse in one line."""

import json

import pytest

from gridgrad.experiments.common.problems import published
from gridgrad.parallel.partitioning.good_partition import partition, write_owners
from tests.experiments.programs import assert_refused, program

NET = "mlp:17,13,relu"
TRAIN = "train", "--net", NET, "--steps", "6", "--batch-size", "9", "--dtype", "float64"


@pytest.fixture(scope="module")
def owners(tmp_path_factory):
    path = tmp_path_factory.mktemp("owners") / "three.h5"
    write_owners(partition(published(NET, [4], 1, "float64"), 3), path)
    return path


def report(path, ranks, *arguments):
    finished = program("launch", ranks, *TRAIN, *arguments, "--report", path)
    assert finished.returncode == 0, finished.stderr
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    return report(tmp_path_factory.mktemp("serial") / "serial.json", 1)


@pytest.mark.parametrize(
    ("ranks", "plan"),
    [
        (3, "OWNERS"),
        *(pytest.param(3, plan, marks=pytest.mark.long) for plan in ("hypergraph", "hypergraph:fine")),
        pytest.param(2, "hypergraph --shares 2,1", marks=pytest.mark.long),
    ],
)
def test_every_way_to_name_a_partition_trains_the_serial_network(ranks, plan, tmp_path, owners, serial):
    words = plan.replace("OWNERS", str(owners)).split()
    found = report(tmp_path / "found.json", ranks, "--grid", f"model={ranks}", "--plan", *words)
    assert found["plan"] == ["hypergraph"] * 3
    assert found["loss"] == pytest.approx(serial["loss"], rel=1e-10)


def test_what_does_not_fit_is_one_line(owners):
    bad = [
        (["--plan", "nowhere.h5"], "nowhere.h5: no such file"),
        (["--plan", "hypergraph:medium"], "use coarse or fine"),
        (["--plan", owners], "it is for 3 ranks along the axis model, not for 2"),
        (["--plan", "hypergraph", "--shares", "auto"], "do not move a partition"),
        (["--plan", "hypergraph", "--rebalance", "2"], "do not move a partition"),
        (["--plan", "hypergraph", "--grid", "auto"], "is for a grid that is named"),
    ]
    name, *options = TRAIN
    assert_refused(2, name, bad, [*options, "--grid", "model=2"])


def test_explain_prints_what_each_rank_does(owners):
    explain = "explain", "--net", NET, "--shape", "4", "--outputs", "1", "--ranks", "3"
    finished = program(*explain, "--grid", "model=3", "--plan", owners)
    assert finished.returncode == 0 and "ms waiting" in finished.stdout and "plan hypergraph" in finished.stdout
    for arguments, words in ((("--plan", owners), "add --grid"), (("--grid", "batch=3", "--plan", owners), "several ranks")):
        refused = program(*explain, *arguments)
        assert refused.returncode == 2 and words in refused.stderr and refused.stderr.count("\n") == 1
