"""pipelined, small: the ways that it compares, the simulation beside them, and the files that it writes."""

import json

import pytest

from tests.experiments.programs import program

SMALL = "--net", "vgg-style:4,8", "--shape", "8,8,3", "--outputs", "4", "--batch-size", "6", "--micro-batches", "3"
WAYS = "sequential", "gpipe", "1f1b", "zb-h1", "interleaved:2", "zbv", "async:2", "async:4"


@pytest.mark.long
def test_two_ways_are_timed_and_simulated(tmp_path):
    out = tmp_path / "found.json"
    options = *SMALL, "--rounds", "1", "--schedules", "1f1b", "--no-hypergraph", "--out", out
    finished = program("launch", "2", "study", "pipelined", *options)
    assert finished.returncode == 0, finished.stderr
    (result,) = json.loads(out.read_text())
    rows = {row["way"]: row for row in result["rows"]}
    assert list(rows) == ["serial", "batch=2", "model=2", "stage=2, 1f1b"]
    pipeline = rows["stage=2, 1f1b"]
    assert pipeline["peak_predicted"] == pipeline["peak_measured"] and pipeline["open"] == [2, 1]
    assert "times serial" in finished.stdout and "| stage=2, 1f1b |" in out.with_suffix(".md").read_text()


@pytest.mark.long
def test_ways_are_timed_and_simulated(tmp_path):
    out = tmp_path / "found.json"
    options = *SMALL, "--rounds", "1", "--machine", "ethernet-1g", "--out", out
    for more in (("--schedules", "gpipe", "--no-hypergraph"), ()):  # the second result of a problem replaces the first
        finished = program("launch", "2", "study", "pipelined", *options, *more)
        assert finished.returncode == 0, finished.stderr
    (result,) = json.loads(out.read_text())
    rows = {row["way"]: row for row in result["rows"]}
    stages = [f"stage=2, {name}" for name in WAYS]
    assert list(rows)[:-1] == ["serial", "batch=2", "model=2", *stages, "model=2, hypergraph", "model=2, hypergraph, async:4"]
    assert list(rows)[-1].startswith("the planner's choice: ")
    assert all(row["modelled"] > 0 and row["fastest"] <= row["measured"] <= row["slowest"] for row in rows.values())
    for name in stages:
        row = rows[name]
        assert row["peak_predicted"] == row["peak_measured"], f"{name}: the memory of a schedule is known exactly"
        assert row["predicted"] > 0 and len(row["idle_measured"]) == len(row["idle_predicted"]) == 2
    assert rows["stage=2, gpipe"]["open"] == [3, 3] and rows["stage=2, 1f1b"]["open"] == [2, 1]
    assert "times serial" in finished.stdout and "| stage=2, zb-h1 |" in out.with_suffix(".md").read_text()


def test_bad_input_is_one_line(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    for arguments, words in (
        ((*SMALL, "--out", bad), "no results of pipelined"),
        (("--net", "nothing"), "net"),
        ((*SMALL, "--schedules", "2f2b", "--out", tmp_path / "out.json"), "there is no pipeline schedule '2f2b'"),
        (("--machine", "nowhere"), "machine"),
    ):
        finished = program("study", "pipelined", *arguments)
        assert finished.returncode == 2 and words in finished.stderr and finished.stderr.count("\n") == 1, finished.stderr
