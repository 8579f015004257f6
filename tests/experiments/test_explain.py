"""What is predicted: by explain, with its pipelines and maps, and by sweeps; and the machine files of calibrate."""

import json
from types import SimpleNamespace

import pytest

from gridgrad.experiments import calibrate
from gridgrad.experiments.common.parallel_schemes import AUTO
from gridgrad.experiments.common.problems import published
from gridgrad.parallel.calibration import this_machine
from gridgrad.parallel.grid.process_grid import parse_grid
from gridgrad.parallel.job.run import UserError
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.cost import cost_of_slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.experiments.figures import is_figure
from tests.experiments.programs import run_main

CORI = machine.read("cori-haswell")


def cost_of(net, sizes, plan, batch_size):
    """The Cost of a step of the rank with the most work on CORI."""
    return cost_of_slowest_rank(net, PlacementSpec(sizes, plan), batch_size, CORI)


@pytest.fixture
def explain(tmp_path, monkeypatch, capsys):
    """A function that calls explain with options and returns (the lines that it prints, the numbers of its --out)."""

    def call(*words):
        run_main(monkeypatch, "explain", *words, "--out", tmp_path / "e.json")
        return capsys.readouterr().out.splitlines(), json.loads((tmp_path / "e.json").read_text())

    return call


def test_the_plan_is_printed_with_its_costs_and_the_runner_ups(explain):
    lines, found = explain("--net", "cifar-cnn", "--ranks", 8, "--batch-size", 64)
    end = lines.index("")
    assert [line.split(":")[0] for line in lines[2:end]] == found["grid"].split(",")
    assert lines[-1].startswith(f"options of train: --grid {found['grid']}")
    assert found["lower_bound"] <= found["seconds"] == pytest.approx((1 + found["gap"]) * found["lower_bound"])
    assert found["seconds"] == pytest.approx(sum(row["seconds"] for row in found["layers"]))
    assert f"{1e3 * found['seconds']:.4g} ms" in lines[end + 1]
    assert found["efficiency"] == pytest.approx(found["one_rank"]["seconds"] / found["seconds"] / 8)
    assert all(row["bytes"] >= row["bound_bytes"] for row in found["layers"])


def test_a_pipeline_is_printed_and_its_schedule_is_drawn(explain, tmp_path):
    net = "--net", "mlp:64,64,64,relu", "--shape", "32", "--ranks", 2, "--batch-size", 64, "--grid", "stage=2"
    how = "--pipeline", "zb-h1", "--micro-batches", 4, "--cuts", 4
    lines, found = explain(*net, *how, "--out", tmp_path / "s.png")
    first, second = found["layers"]
    assert (first["layer"], first["bytes"]) == ("0 Linear .. 3 ReLU", 0) and second["bytes"] == 2 * 64 * 64 * 4
    assert lines[2] == "pipeline zb-h1, 4 micro-batches, cuts 4" and is_figure(tmp_path / "s.png")
    drawn = [line for line in lines if line.startswith("rank ")]
    assert len(drawn) == 2 and "0F0" in drawn[0] and "1I3" in drawn[1] and "1W3" in drawn[1]


def test_the_map_of_the_fastest_schemes(tmp_path, monkeypatch):
    net = "--net", "mlp:W,W,W,relu", "--shape", 16, "--outputs", 2, "--ranks", 8
    run_main(monkeypatch, "explain", *net, "--widths", "32,2048", "--batch-sizes", "8,65536", "--map", tmp_path / "t.png")
    points = json.loads((tmp_path / "t.json").read_text())["points"]
    winners = {(point["width"], point["batch_size"]): point["winner"] for point in points}
    assert winners[32, 8] == "serial" and winners[2048, 8] == "model" and winners[32, 65536] == "batch"
    for point in points:  # the winner is the cheapest of all
        seconds = {scheme: one for scheme, one in point["seconds"].items() if one}
        net = published(f"mlp:{point['width']},{point['width']},{point['width']},relu", [16], 2, "float32")
        cost = cost_of(net, parse_grid(point["grid"]), point["plan"], point["batch_size"])
        assert min(seconds.values()) == seconds[point["winner"]] == pytest.approx(cost.seconds, rel=1e-5)
    assert is_figure(tmp_path / "t.png")


@pytest.mark.parametrize(
    ("scaling", "words"), [("strong", ("--shape", 4, "--outputs", 1)), ("weak", ("--dataset", "airfoil", "--weak"))]
)
def test_each_line_of_a_sweep_is_the_price_of_its_grid_and_plan(scaling, words, tmp_path, monkeypatch):
    sweep = "sweep", "--nets", "mlp:16,16,relu", "--predict", "1,2,4,64", "--batch-size", 100, *words
    run_main(monkeypatch, *sweep, "--out", tmp_path / "s.jsonl")
    found = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    net = published("mlp:16,16,relu", [4], 1)
    for line in found:
        batch_size = 100 * line["P"] if scaling == "weak" else 100
        cost = cost_of(net, parse_grid(line["grid"]), line["plan"], batch_size)
        assert line["predicted"] is True and line["settings"]["batch_size"] == batch_size
        assert line["seconds_per_step"]["median"] == pytest.approx(cost.seconds, rel=1e-5)
        assert (line["rank_bytes"], line["peak_memory"]) == (cost.prediction.bytes, cost.prediction.memory)
    series = {name for line in found if line["P"] == 4 for _, name, _ in line["curves"]}
    assert series == {"batch", "model", "2d", AUTO}


def test_of_a_busy_machine_nothing_is_written(tmp_path, monkeypatch):
    busy, path = SimpleNamespace(verdict="others computed", words="others computed"), tmp_path / "busy.json"
    monkeypatch.setattr(this_machine, "PROBE_SECONDS", -1.0)
    monkeypatch.setattr(calibrate, "seen_asleep", lambda: None)
    monkeypatch.setattr(calibrate, "load_of_job", lambda comm, seen: busy)
    with pytest.raises(UserError, match="this machine is busy"):
        run_main(monkeypatch, "calibrate", "--quick", "--out", path)
    assert not path.exists()
