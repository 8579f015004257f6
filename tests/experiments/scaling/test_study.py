"""Which points a study has, for which settings, what is refused before anything runs, and what is predicted of it."""

import re
import tomllib
from pathlib import Path

import pytest

from gridgrad.experiments.common.parallel_schemes import grid_at
from gridgrad.experiments.common.programs import parser_of
from gridgrad.experiments.scaling import predicted, study, table
from gridgrad.experiments.scaling.study import Study
from gridgrad.experiments.sweep import options, study_of
from gridgrad.parallel.prediction import machine as machines
from tests.docs.pages import BLOCK

ROOT = Path(__file__).resolve().parents[3]
CORI = machines.read("cori-haswell")


@pytest.mark.parametrize(("template", "ranks", "grid"), [
    ("batch=*", 6, "batch=6,model=1"), ("batch=*,model=2", 6, "batch=3,model=2"), ("batch=*,model=2", 7, None),
    ("model=*,batch=*", 8, "batch=2,model=4"), ("stage=*,batch=2", 6, "stage=3,batch=2,model=1"),
    ("batch=2,model=2", 8, None), ("auto", 4, "auto"), ("auto", 1, "batch=1,model=1"),
])  # fmt: skip
def test_stars_take_the_ranks_that_are_left(template, ranks, grid):
    assert grid_at(template, ranks) == grid


def test_all_series_share_the_run_on_one_rank():
    series = [{"name": "2-D", "grid": "batch=*,model=2"}, {"name": "stages", "grid": "stage=*", "pipeline": "1f1b"},
              {"name": "hosts", "grid": "batch=*", "hosts": 2, "reduction": "plain"}]  # fmt: skip
    study = Study({"nets": ["mlp:8,8,relu"], "ranks": [1, 2, 4], "schemes": ["batch"], "series": series})
    assert [curve.series for curve in study.curves] == ["batch", "2-D", "stages", "hosts"]
    assert [list(points) for points in study.curves.values()] == [[1, 2, 4], [2, 4], [1, 2, 4], [1, 2, 4]]
    alone = {points[1].key for points in study.curves.values() if 1 in points}
    assert len(alone) == 1 and len(study.points) == 1 + 2 + 2 + 2 + 2
    [one] = [point for point in study.points if point.ranks == 1]
    assert [curve.series for curve in study.curves_of(one)] == ["batch", "stages", "hosts"]
    assert not {"pipeline", "hosts", "reduction"} & one.settings.keys()


def test_a_point_is_a_command_line_of_train():
    study = Study({"nets": ["mlp:8,relu"], "ranks": [2], "schemes": ["batch"], "profile": True, "steps": 7, "micro_batches": 2,
                   "threads": 3})  # fmt: skip
    [point] = [point for point in study.points if point.ranks == 2]
    args = parser_of("train").parse_args(point.words)
    assert (args.net, args.grid, args.steps, args.micro_batches, args.profile) == ("mlp:8,relu", "batch=2,model=1", 7, 2, True)
    assert point.job == {"threads": 3} and "threads" not in " ".join(point.words)


def test_the_same_run_has_the_same_key_wherever_its_data_are():
    keys = [
        Study({"ranks": [2], "schemes": ["batch"], **more}).points[0].key
        for more in ({}, {"data_dir": "/elsewhere"}, {"seed": 1})
    ]
    assert keys[0] == keys[1] != keys[2]


def test_settings_are_checked():
    plain = [{"name": "plain", "grid": "batch=*"}]
    for given, message in (
        ({"batchsize": 3}, "unknown setting batchsize (did you mean batch_size?)"), ({"ranks": [0]}, "ranks"),
        ({"repeats": "x"}, "repeats"), ({"schemes": ["rows"]}, "'rows'"), ({"nets": []}, "nothing to run"),
        ({"grids": ["batch=*,model=*,height=*"], "ranks": [2]}, "at most two axes"), ({"dtype": {"a": 1}}, "dtype"),
        ({"series": [{"grid": "batch=*"}]}, "series[0] has no entry name"), ({"series": plain * 2}, "called plain"),
        ({"hosts": 0}, "hosts = 0"), ({"series": plain, "baseline": "other"}, "baseline other"),
        ({"epochs": 3, "steps": 9, "metric": "loss"}, "say the same"), ({"seeds": [0, 1], "seed": 4}, "leave seed out"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(message)):
            Study(given)


def test_all_points_are_checked_before_the_first_runs():
    for given, message in (
        ({"nets": ["mlp:8,relu", "vgg99"]}, "unknown net 'vgg99'"), ({"schemes": ["height"]}, "the axis height splits images"),
        ({"dataset": "iris"}, "iris"), ({"series": [{"name": "a", "grid": "batch=*", "program": "no.py"}]}, "no.py"),
    ):  # fmt: skip
        with pytest.raises((ValueError, OSError), match=re.escape(message)):
            Study({"nets": ["mlp:8,relu"], "ranks": [1, 2]} | given).check()


@pytest.mark.parametrize("path", sorted(study.FILES.glob("*.toml")), ids=lambda path: path.name)
def test_the_settings_that_come_with_gridgrad_are_good(path):
    found = Study(study.read(path))
    found.check_options()
    assert found.points


def test_the_settings_in_the_documents_are_studies_that_train_takes():
    pages = (page for page in (ROOT / "docs").glob("*.md") if page.name != "reproduce.md")  # which has the file of a paper
    blocks = [block for page in pages for block in BLOCK.findall(page.read_text())]
    found = [Study(tomllib.loads(text)) for language, text in blocks if language == "toml"]
    assert found
    for one in found:
        one.check_options()


def test_networks_and_series_of_the_command_line_take_the_place_of_those_of_the_file(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text('[[network]]\nnet = "mlp:8"\n[[series]]\nname = "a"\ngrid = "batch=*"\n')
    of = lambda *words: study_of(options().parse_args([str(file), *words])).curves  # noqa: E731
    assert [(curve.network, curve.series) for curve in of()] == [("mlp:8", "a")]
    assert [(curve.network, curve.series) for curve in of("--nets", "mlp:9")] == [("mlp:9", "a")]
    assert [(curve.network, curve.series) for curve in of("--schemes", "model")] == [("mlp:8", "model")]


def test_files_of_ones_own_are_sought_beside_the_settings_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for name in ("mine/net.py", "mine/data.csv", "net.py", "here.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "mine" / "s.toml").write_text('nets = ["net.py:make", "here.py:make"]\ndataset = "table:data.csv"\n')
    found = study.read("mine/s.toml")
    assert found["nets"] == ["mine/net.py:make", "here.py:make"] and found["dataset"] == "table:mine/data.csv"


# ----- predictions


def ranks_of(machine=CORI, **settings):
    study = Study({"nets": ["mlp:8,relu"], "ranks": [1, 4], "schemes": ["batch"]} | settings)
    return [record["P"] for record in predicted.records(study, machine)]


def test_only_what_the_cost_model_knows_is_predicted():
    for known in ({}, {"reduction": "plain", "update": "whole"}, {"dtype": "float64", "handicap": "3=2", "optimizer": "sgd"}):
        assert ranks_of(**known) == [1, 4], known
    for unknown in ({"reduction": "overlap"}, {"update": "sharded"}, {"hosts": 4}, {"reduce_dtype": "float16"},
                    {"rebalance": 10}, {"micro_batches": 2}, {"handicap": "0=2@5"}):  # fmt: skip
        assert ranks_of(**unknown) == [1], unknown  # a run on one rank has none of them
    for unknown in ({"device": "gpu"}, {"optimizer": "adam"}, {"l2": 0.1}, {"augment": "flip"}):
        assert ranks_of(**unknown) == [], unknown


def steps(machine=CORI, **settings):
    """{(grid, shares): seconds} of predictions for 4 ranks."""
    study = Study({"nets": ["mlp:512,512,relu"], "ranks": [4], "schemes": [], "batch_size": 400} | settings)
    made = predicted.records(study, machine)
    return {(one["point"]["grid"], one["point"].get("shares")): one["seconds_per_step"]["median"] for one in made}


def test_a_handicap_makes_a_slower_rank_and_shares_by_speed_are_faster_than_even_ones():
    uneven, grids = ["1,1,1,1", "1,2,2,2"], ["batch=4", "model=4"]
    free, slow = steps(grids=grids, shares=uneven), steps(grids=grids, shares=uneven, handicap="0=2")
    for grid in ("batch=4,model=1", "batch=1,model=4"):
        assert slow[grid, uneven[0]] > slow[grid, uneven[1]] > free[grid, uneven[0]]
    assert steps(grids=["stage=4"]) and not steps(grids=["stage=4"], handicap="0=2")
    for grid in ("batch=2,model=1", "batch=1,model=2"):
        even, by_speed = steps(ranks=[2], grids=[grid], handicap="0=2", shares=["1,1", "auto"]).values()
        assert 0.6 * even < by_speed < 0.8 * even


def test_points_without_a_prediction_are_named_with_the_reason():
    reasons = {}
    study = Study({"nets": ["mlp:8,relu"], "ranks": [4], "schemes": ["batch", "height"], "reduction": ["plain", "overlap"]})
    assert len(list(predicted.records(study, CORI, reasons=reasons))) == 1
    assert ["overlap" in why or "without images" in why for why in reasons.values()] == [True] * 3
    idle = list(predicted.records(Study({"nets": ["mlp:8,relu"], "grids": ["model=64"], "batch_size": 16}), CORI))
    assert "54 of the ranks have nothing to compute" in table.text(idle)


def test_an_estimate_counts_nodes_of_the_allocation_and_says_what_it_does_not_know(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SLURM_NNODES", "2")
    given = {"nets": ["mlp:8,relu"], "ranks": [8], "schemes": ["batch"], "repeats": 6, "most_repeats": 60}
    last = table.estimate(Study(given), CORI).splitlines()[-1]
    least, most = (float(hours) for hours in last.split(", ")[2].split(" node-hours")[0].split(" to "))
    assert last.startswith("1 point, 6 to 60 runs") and most == pytest.approx(10 * least, rel=0.05)
    assert least == pytest.approx(2 * 6 * 2 / 3600, rel=0.2) and "nodes of 4 cores" in last
    assert "1 point without a prediction" in table.estimate(Study(given | {"threads": 2}), CORI)
