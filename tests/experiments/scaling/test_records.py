"""Files of studies: read back, damaged, of other machines, and for other tools (Extra-P, and call trees for Hatchet)."""

import json
from math import fsum

import pytest

from gridgrad.experiments.scaling import environment, export, records
from gridgrad.experiments.scaling.study import Study
from gridgrad.experiments.scaling.summary import rows
from tests.experiments.programs import run_main
from tests.experiments.scaling import made_up_studies as made_up


def test_only_runs_of_the_same_settings_and_environment_belong_to_a_study_and_count_once():
    made = made_up.records()
    study = Study(made[0]["sweep"] | {"nets": ["mlp:512,512,512,relu", "mlp:8,relu"], "schemes": ["batch"]})
    predicted = made[0] | {"predicted": True, "machine": "a machine"}
    mine, beside, others = records.of_study([*made, *made, predicted], study, made_up.ENVIRONMENT)
    assert [record["machine"] for record in beside] == ["a machine"]
    assert len(mine) == 18 and {record["grid"] for record in others} == {"batch=1,model=2", "batch=1,model=4"}
    assert all(record["curves"] == [["mlp:512,512,512,relu", "batch", "strong"]] for record in mine)
    assert records.of_study(made, Study({"steps": 7}), made_up.ENVIRONMENT)[0] == []
    found = [records.of_study(made, study, made_up.ENVIRONMENT | {name: "another"})[0] for name in ("code", "host")]
    assert list(map(len, found)) == [0, 18]


def test_a_larger_job_and_its_cores_are_the_same_environment_and_other_threads_are_not(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "64")
    monkeypatch.setenv("SLURM_CPU_BIND", "quiet,mask_cpu:0x1,0x2")
    small = environment.here()
    monkeypatch.setenv("SLURM_NTASKS", "128")
    monkeypatch.setenv("SLURM_CPU_BIND", "quiet,mask_cpu:0x4,0x8")
    assert environment.same(environment.here()) == environment.same(small)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert [words.split(" (")[0] for words in environment.differences(small, environment.here())] == ["BLAS threads a rank"]


def test_records_are_read_back_half_a_line_counts_as_not_written_and_damage_is_named(tmp_path):
    made, path = made_up.records(), tmp_path / "s.jsonl"
    path.write_text(records.lines(made))
    assert records.read(path) == made and records.read(tmp_path / "none") == []
    path.write_text(records.lines(made)[:-100])
    assert records.read(path) == made[:-1]
    for line, word in (("hello", ""), (json.dumps(made[0] | {"bytes": [1]}), "bytes"), (json.dumps(made[0] | {"P": 0}), "P")):
        path.write_text(f"{line}\n{records.lines(made)}")
        with pytest.raises(ValueError, match=f"line 1, is no report of a sweep .*{word}"):
            records.read(path)
    path.write_text(records.lines([made[0] | {"took": 99}]))
    (tmp_path / "other.jsonl").write_text(records.lines(made))
    with pytest.raises(ValueError, match="disagree about"):
        records.gather([path, tmp_path / "other.jsonl"])


# ----- for other tools

PASSES = {"forward": 1e-4, "gradients": 2e-4, "input_gradient": 0.0, "backward": 0.0}
LAYERS = [{"layer": "0", "kind": "Linear", **PASSES}, {"layer": "1", "kind": "ReLU", **PASSES}]


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


def test_the_tree_of_a_run_has_its_layers_and_collectives_that_add_up_to_the_step():
    record = profiled(schemes=["batch"], ranks=[1, 2], repeats=1)[-1]
    [profile] = export.trees([record])
    [step] = profile["graph"]
    found = {node["frame"]["name"]: node for node in nodes(step)}
    assert found.keys() >= {"compute", "read", "communicate", "wait", "Linear 0", "ReLU 1", "gradients of parameters"}
    assert step["metrics"]["time (inc)"] == pytest.approx(record["seconds_per_step"]["median"])
    assert fsum(node["metrics"]["time"] for node in nodes(step)) == pytest.approx(step["metrics"]["time (inc)"])
    assert found["all-reduce"]["metrics"] == {"time (inc)": 5e-5, "time": 5e-5, "bytes": 1000.0, "calls": 1.0}


def test_the_file_of_a_curve_has_the_values_of_all_runs_by_region():
    sums = [{"layer": layer, "kind": "all-reduce", "bytes": sent, "calls": 2, "seconds": seconds}
            for layer, sent, seconds in (("gradients", 90.0, None), ("3", 8.0, 1e-3), ("loss", 2.0, None))]  # fmt: skip
    found = [one | ({"communication": sums, "bytes": {"all": 100.0}} if one["P"] > 1 else {"communication": [], "bytes": {}})
             for one in made_up.records(schemes=["batch"], ranks=[1, 4], repeats=2)]  # fmt: skip
    [curve] = export.curves_of(rows(found)).values()
    head, *blocks = export.curve_text(curve).strip().split("\n\n")
    assert head == "PARAMETER p\nPOINTS 1 4" and blocks[0] == "REGION step\nMETRIC time\nDATA 0.01 0.01\nDATA 0.0025 0.0025"
    for region, sent in (("", 100.0), ("->gradients", 90.0), ("->activations", 8.0)):
        assert f"REGION step->communicate{region}\nMETRIC bytes\nDATA 0.0 0.0\nDATA {sent} {sent}" in blocks


def test_a_sweep_that_was_done_is_exported_and_nothing_is_run(tmp_path, monkeypatch, capsys):
    found, path, trees, folder = profiled(repeats=1), tmp_path / "s.jsonl", tmp_path / "trees.json", tmp_path / "curves"
    path.write_text(records.lines(found))
    run_main(monkeypatch, "sweep", path, "--export", "hatchet", trees)
    run_main(monkeypatch, "sweep", path, "--export", "extrap", folder)
    assert len(json.loads(trees.read_text())) == 5 and f"2 files for Extra-P written to {folder}" in capsys.readouterr().out
    names = {"mlp-512-512-512-relu-batch-strong.txt", "mlp-512-512-512-relu-model-strong.txt"}
    assert {path.name for path in folder.iterdir()} == names
