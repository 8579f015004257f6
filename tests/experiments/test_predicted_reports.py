"""Predicted sweeps, their figures, thresholds, and the explanation of a published set-up. Nothing here is measured."""

import json

import pytest

from gridgrad.experiments.common.parallel_schemes import AUTO, SCHEMES
from gridgrad.experiments.common.problems import published
from gridgrad.experiments.parts import explain_map
from gridgrad.experiments.plots import curves, scaling
from gridgrad.experiments.scaling import predicted
from gridgrad.experiments.scaling.study import Study
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import Planner
from tests.experiments.figures import is_figure
from tests.experiments.programs import program

CORI = machine.read("cori-haswell")


def mlp(width):
    """A network of Laugier et al. 2018, with three hidden layers, for ethylene."""
    return published(f"mlp:{width},{width},{width},relu", [16], 2, "float32")


def cost_of(net, sizes, plan, batch_size):
    """The Cost of a step of the rank with the most work on CORI."""
    return cost_of_slowest_rank(net, PlacementSpec(sizes, plan), batch_size, CORI)


SWEEP = ["sweep", "--nets", "mlp:16,16,relu", "--shape", "4", "--outputs", "1", "--predict", "1,2,4,4096"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Predictions for strong and for weak scaling: two files."""
    folder = tmp_path_factory.mktemp("predicted")
    for name, more in (("strong", []), ("weak", ["--weak"])):
        finished = program(*SWEEP, "--batch-size", 100, *more, "--out", folder / f"{name}.jsonl")
        assert finished.returncode == 0, finished.stderr
        *table, last, page = finished.stdout.splitlines()
        assert "ms a step, predicted" in table[0] and finished.stderr == ""
        path = folder / f"{name}.jsonl"
        assert last == f"{len(lines(path))} predictions written to {path}; next: gridgrad plot speedup {path}"
        assert page == f"{path.with_suffix('.html')} written: a page with figures and tables"
    return folder / "strong.jsonl", folder / "weak.jsonl"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_line_is_the_price_of_its_grid_and_plan(swept):
    net = published("mlp:16,16,relu", [4], 1)
    for line in lines(swept[0]):
        cost = cost_of(net, parse_grid(line["grid"]), line["plan"], 100)
        assert line["predicted"] is True and line["machine"] == "Cori Haswell"
        assert line["seconds_per_step"]["median"] == pytest.approx(cost.seconds, rel=1e-5)
        assert sum(line["parts"].values()) == pytest.approx(cost.seconds, rel=1e-5)
        assert (line["rank_bytes"], line["peak_memory"]) == (cost.prediction.bytes, cost.prediction.memory) and line["fits"]
    found = {(line["P"], series) for line in lines(swept[0]) for _, series, _ in line["curves"]}
    assert (
        (2, "2d") not in found and (4, "2d") in found and not any(series == "height" and ranks > 1 for ranks, series in found)
    )


def test_the_planner_is_never_slower_than_a_scheme(swept):
    for path in swept:
        auto = {line["P"]: line["seconds_per_step"]["median"] for line in lines(path) if AUTO in series_of(line)}
        assert all(auto[line["P"]] <= 1.03 * line["seconds_per_step"]["median"] for line in lines(path))


def series_of(line):
    return {series for _, series, _ in line["curves"]}


def test_the_batch_grows_with_the_ranks_for_weak_scaling_alone(swept):
    strong, weak = map(lines, swept)
    assert {line["settings"]["batch_size"] for line in strong} == {100}
    assert all(line["settings"]["batch_size"] == 100 * line["P"] for line in weak)
    for found, scaling_ in ((strong, "strong"), (weak, "weak")):
        assert {name for line in found for *_, name in line["curves"]} == {scaling_}


def test_images_are_split_by_height_and_memory_is_watched():
    small = machine.checked(json.loads((machine.SHIPPED / "ethernet-1g.json").read_text()))
    study = Study({"nets": ["vgg16"], "ranks": [1, 2], "batch_size": 128, "schemes": [*SCHEMES, AUTO]})
    found = [line for line in predicted.records(study, small) if line["P"] > 1]
    assert {series for line in found for series in series_of(line)} == {
        "batch",
        "model",
        "height",
    }  # of the planner's none fits
    assert not any(line["fits"] for line in found) and {line["outputs"] for line in found} == {1000}


def test_the_shape_is_that_of_the_data_set_that_is_named(tmp_path):
    out = tmp_path / "s.jsonl"
    finished = program("sweep", "--dataset", "airfoil", "--predict", "1,2", "--schemes", "batch", "--out", out)
    assert finished.returncode == 0, finished.stderr
    assert [(line["shape"], line["outputs"], line["P"]) for line in lines(out)] == [([4], 1, 1), ([4], 1, 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--predict", "1,2", "--machine", "no-machine"], "machine 'no-machine': no such file"),
        (["--predict", "1,2", "--schemes", "rows"], "must be one of batch, model, 2d, height, auto, not 'rows'"),
        (["--predict", "1,0"], "whole number of at least 1"),
        (["--predict", "2", "--nets", "vgg99"], "unknown net 'vgg99'"),
        (["--predict", "2", "--schemes", "2d"], "there is nothing to run"),
        (["--predict", "2", "--nets", "vgg16", "--shape", "16"], "takes images"),
    ],
)
def test_bad_predictions_are_refused(arguments, message, tmp_path):
    finished = program("sweep", "--out", tmp_path / "s.jsonl", *arguments)
    assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_figures_of_predictions_alone_and_with_what_was_measured(swept, tmp_path):
    arguments = ["--nets", "mlp:16,16,relu", "--ranks", "1,2", "--schemes", "batch,model", "--steps", 8, "--repeats", 1]
    finished = program("sweep", *arguments, "--out", tmp_path / "m.jsonl")
    assert finished.returncode == 0, finished.stderr
    for reports in ([], [tmp_path / "m.jsonl"]):
        out = tmp_path / f"{len(reports)}.png"
        finished = program("plot", "speedup", *reports, *swept, "--out", out)
        assert finished.returncode == 0, finished.stderr
        assert is_figure(out)
    lines_of = curves.read([tmp_path / "m.jsonl", *swept])
    measured = [line for line in lines_of if not line.is_predicted]
    assert {line.panel.scaling for line in measured} == {"strong"} and len(measured) == 2
    beside = {line.name for line in lines_of if line.is_predicted and line.panel == measured[0].panel}
    assert beside == {"batch", "model", "2d", "auto"}
    figure, said = scaling.draw(lines_of, "speedup")
    assert all("beside other programs" in line for line in said)  # as the tests themselves may be
    assert len([axes for axes in figure.axes if axes.axison]) == 2


@pytest.mark.parametrize(("width", "batch_size"), [(32, 8), (64, 65536), (1024, 100), (2048, 16)])
def test_the_winner_on_the_map_is_the_cheapest_of_all_and_what_the_planner_takes(width, batch_size):
    net = mlp(width)
    point = explain_map.point(net, 8, batch_size, CORI)
    seconds = {scheme: one for scheme, one in point["seconds"].items() if one}
    cost = cost_of(net, parse_grid(point["grid"]), point["plan"], batch_size)
    assert min(seconds.values()) == seconds[point["winner"]] == pytest.approx(cost.seconds, rel=1e-5)
    chosen, _ = Planner(net, 8, batch_size, CORI).best()
    parallel = min(one for scheme, one in seconds.items() if scheme != "serial")
    assert parallel == pytest.approx(chosen.seconds, rel=3e-2)
    assert point["speedup"] == pytest.approx(seconds["serial"] / min(seconds.values()), rel=1e-5)


def test_the_map_of_the_fastest_schemes(tmp_path):
    net = "explain", "--net", "mlp:W,W,W,relu", "--shape", 16, "--outputs", 2, "--ranks", 8
    sizes = "--widths", "32,512,2048", "--batch-sizes", "8,256,65536"
    finished = program(*net, *sizes, "--map", tmp_path / "t.png")
    assert finished.returncode == 0, finished.stderr
    assert is_figure(tmp_path / "t.png")
    result = json.loads((tmp_path / "t.json").read_text())
    winners = {(p["width"], p["batch_size"]): p["winner"] for p in result["points"]}
    assert result["predicted"] and winners[32, 8] == "serial" and winners[2048, 8] == "model" and winners[32, 65536] == "batch"
    for bad in (["--machine", "none"], ["--map", tmp_path / "t.json"], ["--net", "vgg16"]):
        finished = program(*net, "--map", tmp_path / "u.png", *bad)
        assert finished.returncode == 2 and finished.stderr.count("\n") == 1


@pytest.mark.parametrize("width, smallest", [(1024, 4096), (512, 8192)])
def test_the_smallest_batch_with_which_32_ranks_are_20_times_as_fast(width, smallest):  # as docs/which-grid.md has it
    def speedup(batch_size):
        chosen, _ = Planner(mlp(width), 32, batch_size, CORI).best()
        return cost_of(mlp(width), {}, "out", batch_size).seconds / chosen.seconds

    assert speedup(smallest // 2) < 20 <= speedup(smallest)
