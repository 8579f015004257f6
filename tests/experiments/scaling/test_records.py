"""Files of studies: read back, of before, of other machines, in parts, and damaged."""

import json
from pathlib import Path

import pytest

from gridgrad.experiments.scaling import environment, records
from gridgrad.experiments.scaling.study import Study
from gridgrad.experiments.scaling.summary import rows
from tests.experiments.scaling import made_up_studies as made_up

RESULTS = Path(__file__).resolve().parents[3] / "results"


def test_records_are_read_back_and_half_a_line_counts_as_not_written(tmp_path):
    made, path = made_up.records(), tmp_path / "s.jsonl"
    path.write_text(records.lines(made))
    assert records.read(path) == made and records.read(tmp_path / "none") == []
    path.write_text(records.lines(made)[:-100])
    assert records.read(path) == made[:-1]


TWO_NAMES = records.lines([made_up.records()[0] | {"curves": [["a", "b"]]}])


@pytest.mark.parametrize("content", ["hello\n", "{}\n", '{"grid": "batch=1"}\n', "[]\n", '{"curves": [[]]}\n', TWO_NAMES])
def test_what_is_no_record_is_refused(tmp_path, content):
    (tmp_path / "s.jsonl").write_text(content + records.lines(made_up.records()))
    with pytest.raises(ValueError, match="line 1, is no report of a sweep .*: take it out, or give another file"):
        records.read(tmp_path / "s.jsonl")


def test_the_entry_of_a_report_that_is_damaged_is_named(tmp_path):
    damaged = {"communication": [{"kind": "all-reduce", "calls": 1, "bytes": 0}], "terms": [1], "shape": [0], "plan": [["in"]],
               "outputs": [1], "core": {"reference_seconds": 1.0, "reference_products_per_step": 0}, "bytes": [1],
               "seconds_per_step": {"median": "8"}, "time": {"compute": -1}, "layers": [{"layer": "0"}]}  # fmt: skip
    for name, value in damaged.items():
        (tmp_path / "s.jsonl").write_text(records.lines([made_up.records()[0] | {name: value}]))
        with pytest.raises(ValueError, match=rf"line 1, is no report of a sweep \({name}"):
            records.read(tmp_path / "s.jsonl")


def test_only_runs_of_the_same_settings_and_environment_belong_to_a_study():
    made = made_up.records()
    study = Study(made[0]["sweep"] | {"nets": ["mlp:512,512,512,relu", "mlp:8,relu"], "schemes": ["batch"]})
    predicted = made[0] | {"predicted": True, "machine": "a machine"}
    mine, beside, others = records.of_study([*made, predicted], study, made_up.ENVIRONMENT)
    assert [record["machine"] for record in beside] == ["a machine"]
    assert len(mine) == 18 and {record["grid"] for record in others} == {"batch=1,model=2", "batch=1,model=4"}
    assert all(record["curves"] == [["mlp:512,512,512,relu", "batch", "strong"]] for record in mine)
    assert records.of_study(made, Study({"steps": 7}), made_up.ENVIRONMENT)[0] == []
    assert records.of_study(made, study, made_up.ENVIRONMENT | {"code": "another"})[0] == []
    assert len(records.of_study(made, study, made_up.ENVIRONMENT | {"host": "another"})[0]) == 18


def test_a_run_that_is_there_twice_counts_once():
    made = made_up.records()
    assert records.of_study(made + made, Study(made[0]["sweep"]), made_up.ENVIRONMENT) == (made, [], [])


def test_a_reason_may_have_any_printable_letters_and_a_load_must_be_one(tmp_path):
    one = made_up.records()[0]
    (tmp_path / "s.jsonl").write_text(records.lines([one | {"failed": "no $HOME"}]))
    assert records.read(tmp_path / "s.jsonl")[0]["failed"] == "no $HOME"
    (tmp_path / "s.jsonl").write_text(f"{records.lines([one])}\n{records.lines([one])}\n\n")
    assert len(records.read(tmp_path / "s.jsonl")) == 2, "blank lines are no records"
    for odd in ({"failed": "\x1b[31mred"}, {"load": "x"}, {"load": {"verdict": 3}}):
        (tmp_path / "s.jsonl").write_text(records.lines([one | odd, one]))
        with pytest.raises(ValueError, match="line 1, is no report of a sweep"):
            records.read(tmp_path / "s.jsonl")


def test_a_larger_job_and_its_cores_are_the_same_environment_and_other_threads_are_not(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "64")
    monkeypatch.setenv("SLURM_CPU_BIND", "quiet,mask_cpu:0x1,0x2")
    small = environment.here()
    monkeypatch.setenv("SLURM_NTASKS", "128")
    monkeypatch.setenv("SLURM_CPU_BIND", "quiet,mask_cpu:0x4,0x8")
    assert environment.same(environment.here()) == environment.same(small)
    assert "mask_cpu" in small["binding"] and "0x1" not in small["binding"]
    monkeypatch.setenv("SLURM_CPU_BIND", "none")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert [words.split(" (")[0] for words in environment.differences(small, environment.here())] == [
        "BLAS threads a rank", "binding of ranks",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["speedup.jsonl", "breakdown.jsonl"])
def test_kept_results_are_read(name):
    found = rows(records.read(RESULTS / name))
    assert all(row.seconds and row.speedup for row in found) and len({(row.net, row.series) for row in found}) > 1
    assert not any(row.is_predicted for row in found)


def test_parts_are_gathered_once_and_what_is_missing_is_named(tmp_path):
    from gridgrad.experiments import sweep

    made = made_up.records(repeats=6)
    files = [records.part_name(tmp_path / "s.jsonl", (part, 3)) for part in (1, 2, 3)]
    assert files[1].name == "s-2-of-3.jsonl"
    keys = list(dict.fromkeys(map(records.key_of, made)))
    for number, file in enumerate(files):
        file.write_text(records.lines([record for record in made if keys.index(records.key_of(record)) % 3 == number]))
    assert sweep.gather([*files, files[0]], tmp_path / "s.jsonl") == f"30 runs written to {tmp_path / 's.jsonl'}"
    words = sweep.gather(files[:2], tmp_path / "two.jsonl")
    assert words.endswith("; 6 runs missing, such as mlp:512,512,512,relu on batch=4,model=1")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no file"), ("other", "disagree about"), ("garbage", "line 2, is no report")],
)
def test_files_that_can_not_be_gathered_are_refused(tmp_path, content, message):
    made = made_up.records()
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text(records.lines(made))
    texts = {"other": records.lines([made[0] | {"took": 99}]), "garbage": json.dumps(made[0]) + "\nhello\n"}
    if content is not None:
        two.write_text(texts.get(content, content))
    with pytest.raises(ValueError, match=message):
        records.gather([one, two])
