"""The plan word "redundant": layers that every rank of the model axis computes alike, without any sum of their gradients."""

import numpy as np
import pytest

from gridgrad.experiments.parts.explain_report import layer_rows
from gridgrad.nn import MSE, SGD, Linear, Sequential, Tanh, TiedAutoencoder
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.placement.placements import Invariant
from gridgrad.parallel.plans.fewest_bytes import fewest_bytes
from gridgrad.parallel.plans.plans import words_of
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import read
from tests.mpi import mpi
from tests.parallel.equality import block

WIDTHS = 7, 11, 5, 3
PLANS = "in,redundant,in", "in,redundant,redundant", "redundant", "out,redundant,out"


def mlp(dtype=np.float64):
    layers = [layer for a, b in zip(WIDTHS, WIDTHS[1:], strict=False) for layer in (Linear(a, b), Tanh())]
    return Sequential(layers[:-1], 3, dtype, (WIDTHS[0],))


@mpi(2, 3, 4)
def test_only_what_surrounds_such_layers_is_sent(comm):
    """Between layers with "in": the sum before it, one all-gather into it, and one in backward out of it."""
    found = {}
    for plan in PLANS[:3]:
        with ProcessGrid(comm, model=comm.size) as grid:
            net = parallelize(mlp(), grid, plan)
            x, y = np.ones((1, WIDTHS[0])), np.ones((1, WIDTHS[-1]))
            train_step(net, MSE(), SGD(net, 0.1), *block(net, x, y), 1)
            found[plan] = {(layer, kind) for (layer, kind), record in grid.tally.records.items() if layer != "loss"}
            held = {parameter.layout.placements.get("model") for layer, parameter in net.parameters if layer.name == "2"}
            assert held == {Invariant()}
    assert found["redundant"] == set()
    into = {("1", "reduce-scatter"), ("1", "all-gather"), ("2", "all-gather")}
    assert found["in,redundant,redundant"] == into
    ends = {("output", "reduce-scatter"), ("output", "all-gather")}
    assert found["in,redundant,in"] == into | {("4", "all-gather")} | ends


@mpi(2, 4)
def test_a_step_is_priced_as_it_is_computed(comm):
    """Every rank computes all of such a layer, whatever the number of ranks, and sums nothing for it along the axis."""
    machine = read("ethernet-1g")
    net = network_names.build("mlp:64,32,tanh", 48, 10)
    with ProcessGrid(comm, model=comm.size) as grid:
        description = GridDescription(grid.sizes, grid.coordinates, ranks_per_node=1)
    alone, ours = (
        {row["layer"]: row for row in layer_rows(Cost(net, one, "in,redundant,in", 8, machine))}
        for one in (GridDescription({}), description)
    )
    assert ours["2"]["flops"] == alone["2"]["flops"] and ours["0"]["flops"] < alone["0"]["flops"]
    assert ours["2"]["bound_bytes"] == 0.0 < ours["0"]["bound_bytes"] + ours["4"]["bound_bytes"]
    cost = Cost(net, description, "in,redundant,in", 8, machine)
    assert not [work for work in cost.works if work.layer == "gradients"]


def test_it_is_for_layers_that_can_have_it_and_never_chosen():
    layers = [Linear(4, 4), Linear(4, 4)]
    assert words_of("redundant", layers) == ["redundant"] * 2
    with pytest.raises(ValueError, match="takes hidden or replicate, not redundant"):
        words_of("redundant", [TiedAutoencoder(6, 4)])
    with pytest.raises(ValueError, match="use fewest-bytes, .*redundant"):
        words_of("superfluous", layers)
    allowed = [("out", "in"), ("redundant",), ("out", "in")]
    assert fewest_bytes([(4, 100), (100, 3), (3, 2)], 2, allowed)[1] == "redundant"
    assert fewest_bytes([(4, 100), (100, 3)], 2, [("in", "out"), ("redundant",)]) == ["out", "redundant"]
