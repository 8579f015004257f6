"""Which points a study has, for which settings, and what is refused before anything runs."""

import re
import tomllib
from pathlib import Path

import pytest

from gridgrad.experiments.common.parallel_schemes import grid_at
from gridgrad.experiments.common.programs import parser_of
from gridgrad.experiments.scaling import study
from gridgrad.experiments.scaling.study import Curve, Study
from gridgrad.experiments.sweep import options, study_of
from tests.docs.pages import BLOCK

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("template", "ranks", "grid"), [
    ("batch=*", 6, "batch=6,model=1"), ("batch=*,model=2", 6, "batch=3,model=2"), ("batch=*,model=2", 7, None),
    ("batch=*,model=*", 8, "batch=4,model=2"), ("batch=*,model=*", 7, None), ("model=*,batch=*", 8, "batch=2,model=4"),
    ("stage=*,batch=2", 6, "stage=3,batch=2,model=1"), ("batch=*,model=*", 1, "batch=1,model=1"),
    ("batch=2,model=2", 4, "batch=2,model=2"), ("batch=2,model=2", 8, None), ("height=*", 3, "batch=1,height=3,model=1"),
    ("auto", 4, "auto"), ("auto", 1, "batch=1,model=1"),
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


def test_weak_scaling_gives_each_rank_as_many_samples():
    study = Study({"ranks": [1, 3], "schemes": ["batch"], "batch_size": 10, "scaling": ["strong", "weak"]})
    sizes = {
        curve.scaling: [point.settings["batch_size"] for point in points.values()] for curve, points in study.curves.items()
    }
    assert sizes == {"strong": [10, 10], "weak": [10, 30]} and len(study.points) == 3  # that on one rank is shared


def test_a_list_of_values_is_a_curve_for_each():
    study = Study(
        {"ranks": [1, 2], "schemes": ["batch"], "batch_size": [8, 16], "dtype": ["float32", "float64"], "nets": ["a", "b"]}
    )
    names = [curve.series for curve in study.curves if curve.network == "a"]
    assert names == [f"batch, batch size {b}, dtype {d}" for b in (8, 16) for d in ("float32", "float64")]
    assert len(study.points) == 16


def test_networks_have_options_of_their_own():
    study = Study({"network": [{"net": "mnist-cnn", "name": "CNN", "dataset": "mnist", "batch_size": 32}], "ranks": [2],
                   "schemes": ["batch"]})  # fmt: skip
    [(curve, points)] = study.curves.items()
    assert curve == Curve("CNN", "batch", "strong") and points[2].settings["dataset"] == "mnist"
    both = Study({"network": [{"net": "lenet5"}], "nets": ["mlp:8,relu"], "ranks": [1]})
    assert {curve.network for curve in both.curves} == {"mlp:8,relu", "lenet5"}


def test_beside_grids_alone_one_rank_is_measured():
    assert {str(curve) for curve in Study({"grids": ["batch=4", "stage=2,batch=2"]}).curves} == {
        f"mlp:512,512,512,relu, {series}, strong scaling" for series in ("batch", "batch=4", "stage=2,batch=2")
    }
    assert {point.ranks for point in Study({"grids": ["batch=*,model=2"], "ranks": [2, 6]}).points} == {2, 6}


@pytest.mark.parametrize(("cores", "ranks"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_ranks_may_be_as_many_as_there_are_cores(monkeypatch, cores, ranks):
    monkeypatch.setattr(study, "slots", lambda: cores)
    assert Study({"ranks": "cores"}).ranks == ranks


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


def test_repeats_below_six_are_exact_and_above_six_bounded():
    repeats = lambda **given: (Study(given).repeats, Study(given).most_repeats)  # noqa: E731
    assert repeats() == (6, 12) and repeats(repeats=3) == (3, 3) and repeats(repeats=20) == (20, 20)
    assert repeats(repeats=3, most_repeats=9) == (3, 9)


def test_settings_are_checked():
    axes = {"grids": ["batch=*,model=*,height=*"], "ranks": [2]}
    for given, message in (
        ({"batchsize": 3}, "unknown setting batchsize (did you mean batch_size?)"), ({"checkpoint": "x"}, "unknown setting"),
        ({"ranks": 4}, "setting ranks must be a list of whole numbers of at least 1, or cores, not 4"),
        ({"ranks": [0]}, "or cores, not a list"), ({"ranks": "all"}, "or cores, not 'all'"),
        ({"repeats": "x"}, "setting repeats must be a whole number from 1 to 10000, not 'x'"),
        ({"schemes": ["rows"]}, "setting schemes[0] must be one of batch, model, 2d, height, auto, not 'rows'"),
        ({"grids": ["rows=2"]}, "grid 'rows=2'"), (axes, "at most two axes can be *"), ({"nets": []}, "nothing to run"),
        ({"series": [{"grid": "batch=*"}]}, "setting series[0] has no entry name"),
        ({"series": [{"name": "a", "grid": "batch=*", "micro_batch": 2}]}, "unknown setting micro_batch of a series"),
        ({"hosts": 0}, "setting hosts = 0: expected a whole number above 0"), ({"hosts": 1.5}, "expected a whole number"),
        ({"rate": 0}, "setting rate = 0: expected a number above 0"), ({"profile": 0}, "setting profile must be true or false"),
        ({"nets": ["mlp:8"], "network": [{"net": "mlp:8"}]}, "two networks are called mlp:8: give each a name of its own"),
        ({"series": [{"name": "batch", "grid": "batch=*"}], "schemes": ["batch"]}, "two series are called batch"),
        ({"dtype": []}, "setting dtype is an empty list"), ({"dtype": {"a": 1}}, "setting dtype must be a text, a number"),
        ({"minutes": -1}, "setting minutes must be a number above 0"), ({"scaling": ["soft"]}, "must be strong or weak"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(message)):
            Study(given)


def test_options_that_train_does_not_take_are_refused_without_data():
    study = Study({"batch_size": "seven", "dataset": "no-such-data"})
    with pytest.raises(ValueError, match="mlp:512,512,512,relu on batch=1,model=1: .*seven"):
        study.check_options()


def test_all_points_are_checked_before_the_first_runs():
    for given, message in (
        ({"nets": ["mlp:8,relu", "vgg99"]}, "vgg99 on batch=1,model=1: argument --net: unknown net 'vgg99'"),
        ({"schemes": ["height"]}, "the axis height splits images"), ({"dtype": "float16"}, "invalid choice: 'float16'"),
        ({"dataset": "iris"}, "iris"), ({"series": [{"name": "a", "grid": "batch=*", "pipeline": "sometimes"}]}, "sometimes"),
        ({"batch_size": 0}, "must be a whole number of at least 1, not '0'"),
    ):  # fmt: skip
        with pytest.raises((ValueError, OSError), match=re.escape(message)):
            Study({"nets": ["mlp:8,relu"], "ranks": [1, 2]} | given).check()


@pytest.mark.parametrize("path", sorted(study.FILES.glob("*.toml")), ids=lambda path: path.name)
def test_the_settings_that_come_with_gridgrad_are_good(path):
    found = Study(study.read(path))
    found.check_options()
    assert found.points and len(path.read_text().splitlines()) <= 45


def test_a_rank_alone_may_be_slow_and_is_compared_with_all():
    found = Study(study.read("laptops.toml"))
    (alone,) = {point.key: point for point in found.points if point.ranks == 1 and "50-500" in point.settings["net"]}.values()
    assert alone.settings["handicap"] == "0=1.604" and found.baseline == "alone"
    args = options().parse_args(["--schemes", "batch", "--ranks", "1,2", "--vary", "handicap=0=2"])
    assert "handicap" not in study_of(args).points[0].settings  # as the one rank of all series


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
    (tmp_path / "mine" / "s.toml").write_text(
        'nets = ["net.py:make", "here.py:make"]\ndataset = "table:data.csv"\n[[series]]\nname = "a"\nprogram = "net.py"\n'
    )
    found = study.read("mine/s.toml")
    assert found["nets"] == ["mine/net.py:make", "here.py:make"] and found["dataset"] == "table:mine/data.csv"
    assert found["series"] == [{"name": "a", "program": "mine/net.py"}]
    own = study.read(study.FILES / "automation.toml")  # whose runs have the same key in any folder
    assert {one["program"] for one in own["series"] if "program" in one} == {"by_hand.py"}
