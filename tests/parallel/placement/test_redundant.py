"""The plan word "redundant": layers that every rank of the model axis computes alike, without any sum of their gradients."""

from itertools import product

import numpy as np
import pytest

from gridgrad.experiments.parts.explain_layers import layer_rows
from gridgrad.nn import MSE, SGD, Adam, Linear, Sequential, SoftmaxCrossEntropy, Tanh, TiedAutoencoder
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.faults.checks import ReplicaCheck
from gridgrad.parallel.grid.grid_description import GridDescription
from gridgrad.parallel.placement.placements import Invariant
from gridgrad.parallel.plans.fewest_bytes import fewest_bytes
from gridgrad.parallel.plans.plans import words_of
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import read
from gridgrad.parallel.sync import power_sgd
from tests.mpi import mpi
from tests.parallel.equality import RANKS, assert_same, block, grids, on_cpus, on_first, parallel, serial

WIDTHS = 7, 11, 5, 3
PLANS = "in,redundant,in", "in,redundant,redundant", "redundant", "out,redundant,out"


def mlp(dtype=np.float64):
    layers = [layer for a, b in zip(WIDTHS, WIDTHS[1:], strict=False) for layer in (Linear(a, b), Tanh())]
    return Sequential(layers[:-1], 3, dtype, (WIDTHS[0],))


def sgd(net):
    return SGD(net, lr=0.05, momentum=0.9)


def batches():
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((size, WIDTHS[0])), rng.integers(0, WIDTHS[-1], size)) for size in (9, 1, 4, 9, 2)]


@mpi(*RANKS, long=(5, 6, 7))
def test_every_way_to_sum_gradients_equals_serial(comm):
    expected = on_first(comm, serial, mlp(), sgd, "cross-entropy", batches())
    ways = [{}, {"update": "sharded"}, {"reduction": "overlap:1", "update": "sharded"}, {"reduction": "overlap:1"}]
    ways += [{"reduction": "shared"}, {"reduction": "shared", "update": "whole"}] if on_cpus(comm) else []
    for sizes, (plan, way) in product(grids(comm.size), zip(PLANS * 2, ways, strict=False)):
        with ProcessGrid(comm, **sizes) as grid:
            found = parallel(mlp(), grid, plan, sgd, "cross-entropy", batches(), **way)
        assert_same(found, expected, 1e-10, f"{sizes} {plan} {way}")


@mpi(4, 6, 8, long=(8,))
def test_the_copies_stay_the_same_bit_by_bit(comm, monkeypatch):
    """Beside such a layer ranks hold blocks of other sizes; and nodes may divide the groups that sum the same in other ways."""
    monkeypatch.setattr(power_sgd, "UNCOMPRESSED_STEPS", 1)
    ways = [
        {"reduction": reduction, "update": update, "reduce_dtype": dtype}
        for reduction, update, dtype in product(("plain", "overlap:1"), ("whole", "sharded"), ("same", "float16"))
    ]
    ways += [{"reduction": "shared", "update": update} for update in ("whole", "sharded") if on_cpus(comm)]
    ways += [{"reduction": "powersgd:1"}]
    several = [sizes for sizes in grids(comm.size) if min(sizes.values()) > 1]
    for sizes, ranks_per_node in product(several, (3, 8) if comm.size == 4 else (3,)):
        monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", str(ranks_per_node))
        with ProcessGrid(comm, **sizes) as grid:
            for way, plan in product(ways, PLANS[1::2]):
                net = parallelize(mlp(np.float32), grid, plan, **way)
                optimizer, loss = Adam(net, 0.01), SoftmaxCrossEntropy()
                for x, y in batches()[:3]:
                    net.learn(x, y, loss, optimizer)
                ReplicaCheck(net, optimizer, 1).after_step(0)


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
