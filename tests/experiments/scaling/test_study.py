"""Which points a study has, for which settings, what is refused before anything runs, and what is predicted of it."""

import re
import tomllib
from pathlib import Path

import pytest

from gridgrad.experiments.common.parallel_schemes import grid_at
from gridgrad.experiments.scaling import predicted, study
from gridgrad.experiments.scaling.study import Study
from gridgrad.parallel.prediction import machine as machines
from tests.docs.pages import BLOCK

ROOT = Path(__file__).resolve().parents[3]
CORI = machines.read("cori-haswell")


@pytest.mark.parametrize(("template", "ranks", "grid"), [
    ("batch=*", 6, "batch=6,model=1"), ("batch=*,model=2", 6, "batch=3,model=2"), ("batch=*,model=2", 7, None),
    ("model=*,batch=*", 8, "batch=2,model=4"), ("batch=2,model=2", 8, None), ("auto", 1, "batch=1,model=1"),
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


def test_the_same_run_has_the_same_key_wherever_its_data_are():
    keys = [
        Study({"ranks": [2], "schemes": ["batch"], **more}).points[0].key
        for more in ({}, {"data_dir": "/elsewhere"}, {"seed": 1})
    ]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(("given", "message"), [
    ({"batchsize": 3}, "did you mean batch_size?"), ({"repeats": "x"}, "repeats"), ({"schemes": ["rows"]}, "'rows'"),
    ({"nets": []}, "nothing to run"), ({"grids": ["batch=*,model=*,height=*"], "ranks": [2]}, "at most two axes"),
    ({"series": [{"grid": "batch=*"}]}, "series[0]"), ({"series": [{"name": "a", "grid": "batch=*"}] * 2}, "called a"),
    ({"baseline": "other"}, "other"), ({"epochs": 3, "steps": 9, "metric": "loss"}, "say the same"),
    ({"seeds": [0, 1], "seed": 4}, "leave seed out"), ({"nets": ["vgg99"]}, "'vgg99'"), ({"dataset": "iris"}, "iris"),
    ({"series": [{"name": "a", "grid": "batch=*", "program": "no.py"}]}, "no.py"),
])  # fmt: skip
def test_settings_are_checked_before_the_first_run(given, message):
    with pytest.raises((ValueError, OSError), match=re.escape(message)):
        Study({"nets": ["mlp:8,relu"], "ranks": [1, 2]} | given).check()


def test_the_settings_that_come_with_gridgrad_and_those_in_the_documents_are_good():
    pages = (page for page in (ROOT / "docs").glob("*.md") if page.name != "reproduce.md")  # which has the file of a paper
    blocks = [block for page in pages for block in BLOCK.findall(page.read_text())]
    told = [tomllib.loads(text) for language, text in blocks if language == "toml"]
    shipped = [study.read(path) for path in study.FILES.glob("*.toml")]
    assert told and shipped
    for settings in [*told, *shipped]:
        Study(settings).check_options()


# ----- predictions


@pytest.mark.parametrize(("settings", "ranks"), [
    ({"reduction": "plain", "update": "whole", "optimizer": "sgd"}, [1, 4]), ({"dtype": "float64", "handicap": "3=2"}, [1, 4]),
    ({"reduction": "overlap"}, [1]), ({"hosts": 4}, [1]), ({"micro_batches": 2}, [1]),  # a run on one rank has none of them
    ({"device": "gpu"}, []), ({"optimizer": "adam"}, []),
])  # fmt: skip
def test_only_what_the_cost_model_knows_is_predicted(settings, ranks):
    study, reasons = Study({"nets": ["mlp:8,relu"], "ranks": [1, 4], "schemes": ["batch"]} | settings), {}
    assert [one["P"] for one in predicted.records(study, CORI, reasons=reasons)] == ranks
    assert len(reasons) == 2 - len(ranks) and all(next(iter(settings)).replace("_", "-") in why for why in reasons.values())


def test_a_handicap_makes_a_slower_rank_and_shares_by_speed_are_faster_than_even_ones():
    even, by_speed = "1,1,1,1", "1,2,2,2"
    uneven = {"nets": ["mlp:512,512,relu"], "ranks": [4], "schemes": [], "grids": ["batch=4"], "shares": [even, by_speed]}
    free, slow = (
        {one["point"]["shares"]: one["seconds_per_step"]["median"] for one in predicted.records(Study(uneven | more), CORI)}
        for more in ({}, {"handicap": "0=2"})
    )
    assert free[even] < slow[by_speed] < slow[even]
