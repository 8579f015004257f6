"""partitioned, small: the plans that it compares, what they send, and the files that it writes."""

import json

import pytest

from gridgrad.experiments.studies.partitioned import VGG_STYLE, VggStyle, plans
from gridgrad.parallel.prediction.machine import read
from tests.experiments.programs import program

SMALL = "--machine", "ethernet-1g", "--shape", "16,16,3", "--outputs", "4", "--batch-size", "5", "--rounds", "1"


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_plans_are_predicted_timed_and_written(tmp_path, runs):
    out = tmp_path / "found.json"
    for _ in range(runs):  # the second result of a problem replaces the first
        finished = program("launch", "2", "study", "partitioned", *SMALL, "--out", out)
        assert finished.returncode == 0, finished.stderr
    (result,) = json.loads(out.read_text())
    rows = {row["plan"]: row for row in result["rows"]}
    assert list(rows)[0] == "hypergraph" and {"batch=2", "model=2", "horizontal", "random"} < rows.keys()
    assert rows["hypergraph"]["mb"] < rows["horizontal"]["mb"] and rows["hypergraph"]["messages"] > 0
    assert all(row["predicted"] > 0 and row["fastest"] <= row["measured"] <= row["slowest"] for row in rows.values())
    assert "by the first" in finished.stdout and "| hypergraph |" in out.with_suffix(".md").read_text()


@pytest.mark.long
def test_the_partitions_send_less_than_simple_ones():
    net = VggStyle(VGG_STYLE, (32, 32, 3), 10, 8).serial()
    found = plans(net, 4, 8, read("ethernet-1g"))
    assert [owners is None for _, _, owners in found.values()] == [False, False, True, True, False, False, True]


def test_bad_input_is_one_line(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    for arguments, words in (((*SMALL, "--out", bad), "no results of partitioned"), (("--machine", "nowhere"), "machine")):
        finished = program("study", "partitioned", *arguments)
        assert finished.returncode == 2 and words in finished.stderr and finished.stderr.count("\n") == 1, finished.stderr
