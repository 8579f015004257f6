"""The study eserol2019-hosts, small: its methods take turns, and what they send is what is expected."""

import json

import pytest

from gridgrad.experiments.common import vgg_style
from gridgrad.experiments.papers.eserol2019.elsewhere import TABLE
from gridgrad.experiments.studies import eserol2019_hosts as study
from tests.experiments.programs import program

SMALL = (
    "--net",
    "vgg-style:2,4",
    "--shape",
    "8,8,3",
    "--outputs",
    "3",
    "--batch-sizes",
    "4",
    "--seconds",
    "0.01",
    "--rounds",
    "2",
)


@pytest.mark.long
def test_the_methods_of_the_table_are_timed(tmp_path):
    out = tmp_path / "hosts.json"
    for ranks in (2, 2, 1):  # the second result of a problem replaces the first
        finished = program("launch", ranks, "study", "eserol2019-hosts", *SMALL, "--out", out)
        assert finished.returncode == 0, finished.stderr
    two, one = json.loads(out.read_text())
    rows = {row["method"]: row for row in two["rows"]}
    assert set(rows) == {*TABLE, *study.ROUND_ROBIN} and [row["method"] for row in one["rows"]] == ["Single Processor"]
    for method in study.LAYERS, study.FILTERS, study.HYPERGRAPH:
        loss = 8 * 2  # bytes of its sum
        assert 0 <= rows[method]["bytes"] - rows[method]["bytes expected"] <= 4 * loss and rows[method]["max/avg"] >= 1
    elements = sum(p.size for layer in vgg_style.build("vgg-style:2,4", (8, 8, 3), 3).leaves() for p in layer.parameters)
    for method in study.SERVERS:
        assert 4 * elements <= rows[method]["bytes"] * 2 <= 4 * 2.2 * elements + 4000, method
    assert all(len(row["rounds"]) == 2 and row["seconds"] > 0 for row in two["rows"])
    assert two["versions"]["processor"] and two["ranks"] == 2 and two["link"] == ""
    assert "| 4 | Coarse-grain Hypergraph |" in out.with_suffix(".md").read_text()


def test_partitions_are_balanced_by_the_times_of_layers():
    problem = lambda: vgg_style.build("vgg-style:2,4", (8, 8, 3), 3)  # noqa: E731
    names = [layer.name for layer in problem().leaves() if layer.kind]
    even = study.partitions(problem, 2, dict.fromkeys(names, 1.0))
    assert list(even) == [study.LAYERS, study.FILTERS, study.HYPERGRAPH]
    assert even[study.LAYERS][2] == pytest.approx(1.0) and even[study.HYPERGRAPH][2] <= 1.1 + 1e-9
    uneven = study.partitions(problem, 2, dict.fromkeys(names, 1.0) | {names[0]: 1e3})
    assert uneven[study.LAYERS][2] > 1.9  # a layer is not divided


def test_bad_input_is_one_line(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    for arguments, words in (
        ((*SMALL, "--out", bad), "no results of eserol2019-hosts"), (("--net", "nothing", "--out", tmp_path / "o.json"), "net")
    ):  # fmt: skip
        finished = program("study", "eserol2019-hosts", *arguments)
        assert finished.returncode == 2 and words in finished.stderr and finished.stderr.count("\n") == 1, finished.stderr
