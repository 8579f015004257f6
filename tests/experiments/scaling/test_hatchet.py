"""Runs of a study as call trees: what is in them, and that Hatchet and Thicket read them."""

import importlib.util
import json
from math import fsum

import pytest

from gridgrad.experiments.scaling import extrap, hatchet
from gridgrad.experiments.scaling.records import lines
from tests.experiments.programs import assert_refused, program
from tests.experiments.scaling import made_up_studies as made_up

PASSES = {"forward": 1e-4, "gradients": 2e-4, "input_gradient": 0.0, "backward": 0.0}
LAYERS = [{"layer": "0", "kind": "Linear", **PASSES}, {"layer": "1", "kind": "ReLU", **PASSES}]


def installed(name):
    return importlib.util.find_spec(name) is not None


def profiled(**settings):
    """Records of a study with profiles."""
    sums = {"layer": "gradients", "kind": "all-reduce", "seconds": 5e-5}
    return [
        record | {"layers": LAYERS, "communication": [row | sums for row in record["communication"] if record["P"] > 1]}
        for record in made_up.records(lambda point, n: (0.01 + 1e-4 * n) / point.ranks, **settings)
    ]


def nodes(tree):
    yield tree
    for child in tree["children"]:
        yield from nodes(child)


def test_the_tree_of_a_run_has_its_parts_layers_and_collectives():
    record = profiled(schemes=["batch"], ranks=[1, 2], repeats=1)[-1]
    [profile] = hatchet.profiles([record])
    [step] = profile["graph"]
    found = {node["frame"]["name"]: node for node in nodes(step)}
    assert [child["frame"]["name"] for child in step["children"]] == ["compute", "read", "communicate", "wait"]
    assert step["metrics"]["time (inc)"] == pytest.approx(record["seconds_per_step"]["median"])
    assert [child["frame"]["name"] for child in found["compute"]["children"]] == ["Linear 0", "ReLU 1"]
    assert [child["frame"]["name"] for child in found["Linear 0"]["children"]] == ["forward", "gradients of parameters"]
    assert found["compute"]["metrics"]["time"] == pytest.approx(0.0035 - 6e-4)
    assert [child["frame"]["name"] for child in found["of gradients"]["children"]] == ["all-reduce"]
    assert found["all-reduce"]["metrics"] == {"time (inc)": 5e-5, "time": 5e-5, "bytes": 1000.0, "calls": 1.0}
    assert (profile["metadata"]["grid"], profile["metadata"]["ranks"], profile["metadata"]["series"]) == (
        "batch=2,model=1", 2, "batch")  # fmt: skip


def test_times_without_children_add_up_to_the_step():
    for profile in hatchet.profiles(profiled()):
        [step] = profile["graph"]
        assert fsum(node["metrics"]["time"] for node in nodes(step)) == pytest.approx(step["metrics"]["time (inc)"])
        assert len({tuple(node["metrics"]) for node in nodes(step)}) == 1


def test_seconds_that_are_null_count_as_0():
    record = profiled(schemes=["batch"], ranks=[1, 2], repeats=1)[-1]
    record["communication"][0]["seconds"] = None
    [step] = hatchet.profiles([record])[0]["graph"]
    found = {node["frame"]["name"]: node["metrics"]["time (inc)"] for node in nodes(step)}
    assert found["of gradients"] == found["all-reduce"] == 0
    assert extrap.values_of(record)["step->communicate->gradients", "time"] == 0


def test_runs_without_times_have_no_tree():
    first, *others = profiled(schemes=["batch"])
    assert len(hatchet.profiles([first | {"time": None}, first | {"layers": None}, *others])) == len(others) + 1


@pytest.mark.skipif(not installed("hatchet"), reason="Hatchet is not installed: pip install llnl-hatchet")
def test_hatchet_reads_the_trees():
    from hatchet import GraphFrame

    profile = hatchet.profiles(profiled())[-1]
    frame = GraphFrame.from_literal(json.loads(json.dumps(profile["graph"])))
    assert (frame.inc_metrics, sorted(frame.exc_metrics)) == (["time (inc)"], ["bytes", "calls", "time"])
    times = frame.dataframe.set_index("name")["time (inc)"]
    assert times["step"] == pytest.approx(profile["graph"][0]["metrics"]["time (inc)"]) and times["ReLU 1"] == pytest.approx(
        3e-4
    )
    frame.update_inclusive_columns()  # as Hatchet adds them up itself
    assert frame.dataframe.set_index("name")["time (inc)"]["step"] == pytest.approx(times["step"])


@pytest.mark.skipif(not installed("thicket"), reason="Thicket is not installed: pip install llnl-thicket")
def test_thicket_puts_the_runs_together():
    import pandas
    from thicket import Thicket

    one_each = []
    profiles = hatchet.profiles(profiled(schemes=["batch"], repeats=2))
    for profile in profiles:
        one = Thicket.from_literal(profile["graph"])
        one.metadata = pandas.DataFrame([profile["metadata"]], index=pandas.Index(one.profile, name="profile"))
        one_each.append(one)
    together = Thicket.concat_thickets(one_each, disable_tqdm=True)
    assert len(together.profile) == len(profiles) == 6
    by_ranks = {ranks: len(part.profile) for (ranks,), part in together.groupby(["ranks"]).items()}
    assert by_ranks == {1: 2, 2: 2, 4: 2}
    steps = together.dataframe[together.dataframe["name"] == "step"]["time (inc)"]
    expected = [profile["graph"][0]["metrics"]["time (inc)"] for profile in profiles]
    assert sorted(steps) == pytest.approx(sorted(expected))


@pytest.mark.mpi
def test_the_program_writes_the_trees(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text(lines(profiled(schemes=["batch"], repeats=1)))
    finished = program("study", "hatchet", path)
    out = tmp_path / "s.hatchet.json"
    assert finished.stdout == f"3 call trees written to {out}, 3 of them with layers\n", finished.stderr
    assert len(json.loads(out.read_text())) == 3
    none = tmp_path / "none.jsonl"
    none.write_text(lines([profiled()[0] | {"time": None}]))
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(lines([profiled()[0] | {"layers": [{"layer": "0"}]}]))
    assert_refused(1, "hatchet", [
        ([none], "no run says where its time goes"), ([tmp_path / "no"], "there is no file"),
        ([damaged], "is damaged (layers[0] has no entry kind)"),
    ])  # fmt: skip
