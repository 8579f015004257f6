"""Runs of a study for other tools: files of Extra-P, and call trees that Hatchet and Thicket read."""

import importlib.util
import json
from math import fsum

import pytest

from gridgrad.experiments import sweep
from gridgrad.experiments.scaling import export
from gridgrad.experiments.scaling.records import lines
from gridgrad.experiments.scaling.study import Curve
from gridgrad.experiments.scaling.summary import rows
from gridgrad.parallel.job.run import UserError
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
    [profile] = export.trees([record])
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
    for profile in export.trees(profiled()):
        [step] = profile["graph"]
        assert fsum(node["metrics"]["time"] for node in nodes(step)) == pytest.approx(step["metrics"]["time (inc)"])
        assert len({tuple(node["metrics"]) for node in nodes(step)}) == 1


@pytest.mark.skipif(not installed("hatchet"), reason="Hatchet is not installed: pip install llnl-hatchet")
def test_hatchet_reads_the_trees():
    from hatchet import GraphFrame

    profile = export.trees(profiled())[-1]
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
    profiles = export.trees(profiled(schemes=["batch"], repeats=2))
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


def test_the_file_of_a_curve_has_the_values_of_all_runs_by_region():
    sums = [{"layer": layer, "kind": "all-reduce", "bytes": sent, "calls": 2, "seconds": seconds}
            for layer, sent, seconds in (("gradients", 90.0, None), ("3", 8.0, 1e-3), ("loss", 2.0, None))]  # fmt: skip
    found = [one | ({"communication": sums, "bytes": {"all": 100.0}} if one["P"] > 1 else {"communication": [], "bytes": {}})
             for one in made_up.records(schemes=["batch"], ranks=[1, 4], repeats=2)]  # fmt: skip
    [(of, curve)] = export.curves_of(rows(found)).items()
    assert of[0].series == "batch" and not of[1]
    head, *blocks = export.curve_text(curve).strip().split("\n\n")
    assert head == "PARAMETER p\nPOINTS 1 4" and blocks[0] == "REGION step\nMETRIC time\nDATA 0.01 0.01\nDATA 0.0025 0.0025"
    for region, sent in (("", 100.0), ("->gradients", 90.0), ("->activations", 8.0)):
        assert (
            f"REGION step->communicate{region}\nMETRIC bytes\nDATA 0 0\nDATA {sent} {sent}".replace("0 0", "0.0 0.0") in blocks
        )
    assert not any("gradients\nMETRIC time" in block for block in blocks)  # it is 0 everywhere


def test_a_prediction_has_the_values_of_the_rank_that_bounds_the_step():
    priced = {"predicted": True, "parts": {"compute": 0.5, "update": 0.1, "gradients": 0.25}, "rank_bytes": 7}
    found = export.values_of(made_up.records(ranks=[2])[0] | priced)
    assert found[export.COMPUTE, "time"] == 0.6 and found[export.GRADIENTS, "time"] == 0.25
    assert found[export.COMMUNICATE, "bytes"] == 14


def test_every_curve_has_a_file_of_its_own():
    names = ["α", "β", "batch=*,model=2", "batch=*;model 2", "batch model 2 2", "Batch"]
    curves = [(Curve("mlp", name, "strong"), predicted) for name in [*names, "batch"] for predicted in (False, True)]
    found = dict(zip(curves, export.file_names(curves), strict=True))
    assert len({name.lower() for name in found.values()}) == len(curves)
    assert found[Curve("mlp", "α", "strong"), False] == "mlp-strong.txt"
    assert found[Curve("mlp", "β", "strong"), False] == "mlp-strong-2.txt"
    assert found[Curve("mlp", "batch=*;model 2", "strong"), True] == "mlp-batch-model-2-strong-predicted-2.txt"


def test_a_sweep_that_was_done_is_exported_and_nothing_is_run(tmp_path, monkeypatch, capsys):
    def shown(content, *words):
        (tmp_path / "s.jsonl").write_text(lines(content))
        monkeypatch.setattr("sys.argv", ["sweep", str(tmp_path / "s.jsonl"), *map(str, words)])
        sweep.main()
        return capsys.readouterr().out

    found, trees, folder = profiled(schemes=["batch"], repeats=1), tmp_path / "trees.json", tmp_path / "curves"
    assert f"3 call trees written to {trees}" in shown(found, "--export", "hatchet", trees)
    assert len(json.loads(trees.read_text())) == 3 and not (tmp_path / "s.html").exists()
    assert f"1 file for Extra-P written to {folder}; next: extrap --text" in shown(found, "--export", "extrap", folder)
    assert [path.name for path in folder.iterdir()] == ["mlp-512-512-512-relu-batch-strong.txt"]
    for content, words, message in (
        ([found[0] | {"time": None}], ["hatchet", trees], "no run says where its time goes"),
        ([found[0] | {"layers": [{"layer": "0"}]}], ["hatchet", trees], r"\(layers\[0\] has no entry kind\)"),
        (found[:1], ["extrap", folder], "several numbers of ranks"), (found, ["excel", "x"], "there are extrap and hatchet"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            shown(content, "--export", *words)
