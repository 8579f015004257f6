"""The least that ranks have to send for a layer: in closed form, and beside what plans send."""

import pytest

from gridgrad.experiments.common.problems import published
from gridgrad.experiments.parts.explain_report import layer_rows, least_sum
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.cost import Cost, slowest_rank
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.planner import Planner, every_grid

CORI = machine.read("cori-haswell")
NETS = {"mlp:30,70,20,relu": ((50,), 30), "lenet5": ((28, 28, 1), 10), "resnet20": ((32, 32, 3), 10)}


@pytest.mark.parametrize(
    ("price", "whole", "ranks", "expected"),
    [
        ((1, 1, 1), (100, 100, 100), 8, 3 * 25),  # a cube: each rank has one of eight smaller ones
        ((1, 1, 1), (1000, 1000, 1), 2, 500 + 500 + 1),  # nothing but the smallest array is needed whole
        ((0, 1, 1), (100, 100, 100), 4, 25 + 25),  # one array is everywhere
        ((1, 1, 1), (7, 5, 3), 1, 7 + 5 + 3),
    ],
)
def test_the_least_sum_in_closed_form(price, whole, ranks, expected):
    assert least_sum(price, whole, ranks) == pytest.approx(expected)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_no_plan_sends_less_for_a_layer(name, ranks):
    shape, outputs = NETS[name]
    net, bounded = published(name, list(shape), outputs), 0
    for sizes in every_grid(ranks, ("batch", "height", "model") if len(shape) == 3 else ("batch", "model")):
        for plan in ("out", "in", "replicate", "fewest-bytes"):
            cost = Cost(net, slowest_rank(net, PlacementSpec(sizes, plan)), plan, 192, CORI)
            rows = layer_rows(cost)
            assert [row for row in rows if row["bound_bytes"] > row["bytes"] * (1 + 1e-9) + 1e-3] == [], (sizes, plan)
            assert sum(row["bytes"] for row in rows) == pytest.approx(cost.prediction.bytes, rel=1e-3, abs=64)
            assert sum(row["seconds"] for row in rows) == pytest.approx(cost.seconds)
            bounded += sum(row["bound_bytes"] > 0 for row in rows)
    assert bounded


def test_layers_are_in_the_order_of_the_network_whatever_runs_as_one():
    net = published("cifar-cnn", [32, 32, 3], 10)
    rows = layer_rows(Cost(net, slowest_rank(net, PlacementSpec({"model": 2}, "out")), "out", 16, CORI))
    *layers, _, _ = rows
    assert [int(row["layer"]) for row in layers] == sorted(int(row["layer"]) for row in layers)
    assert [kind for row in layers for kind in row["kinds"]] == [type(layer).__name__ for layer in net.leaves()]
    assert {row["placement"] for row in layers} == {"out"}


def test_unequal_shares_have_no_bound():
    net = published("mlp:30,20,relu", [50], 10)
    cost = Cost(
        net, slowest_rank(net, PlacementSpec({"model": 2}, "out", {"model": [3, 1]})), "out", 16, CORI, {"model": [3, 1]}
    )
    assert not any(row["bound_bytes"] for row in layer_rows(cost))


@pytest.mark.parametrize("grid", [None, {"batch": 2, "model": 2}, {"stage": 2, "batch": 2}])
def test_no_step_takes_less_than_the_bound_of_its_grid(grid):
    planner = Planner(published("lenet5", [28, 28, 1], 10), 4, 64, CORI, PlacementSpec(grid=grid, pipelines=Pipelines()))
    chosen, others = planner.best()
    assert all(0 < one.bound <= one.seconds * (1 + 1e-9) for one in (chosen, *others))
