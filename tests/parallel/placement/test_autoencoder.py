"""Autoencoders with sharded hidden units: they send what the formulas say. Random networks compare them with serial ones."""

from itertools import product

import numpy as np
import pytest

from gridgrad.experiments.common import byte_formulas
from gridgrad.nn import MSE, SGD, Linear, ReLU, Residual, Sequential, Sigmoid, TiedAutoencoder
from gridgrad.parallel import PLANS, ProcessGrid, parallelize
from gridgrad.parallel.grid.process_grid import AXES, GridDescription
from gridgrad.parallel.placement.moves import elements_sent
from gridgrad.parallel.placement.partition import Partition, Split
from gridgrad.parallel.placement.placements import C, N, Shard
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.plans.plans import ShardHiddenUnits
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import read
from gridgrad.parallel.prediction.planner import Planner
from gridgrad.parallel.training.steps import train_step
from tests.mpi import mpi
from tests.parallel.equality import RANKS, block, grids

MACHINE = read("cori-haswell")
SIZES = [(7, 3), (3, 11), (13, 1)]  # inputs and hidden units: many ranks get none of some of them


def bytes_on_model(batch_size, inputs, batch, model, itemsize):
    """What all ranks together send along the model axis in a step of a TiedAutoencoder and the Sigmoid behind it.

    The partial sums of the outputs are reduce-scattered, and their gradient is all-gathered. Between the Sigmoid and the loss
    there is an all-to-all in each direction. Of the hidden units nothing moves.
    """
    ends = Shard(C, Partition.even(inputs, model)), Shard(N, Split(model))
    turned = 2 * sum(elements_sent(*ends, n, (inputs,), model) for n in Partition.even(batch_size, batch).sizes)
    return itemsize * (2 * batch_size * byte_formulas.all_gather(inputs, model) + turned)


def alone(inputs, hidden):
    return Sequential([TiedAutoencoder(inputs, hidden), Sigmoid()], seed=3, dtype=np.float64)


def among_others():
    """Its input needs a gradient, and comes from each kind of placement."""
    branch = [Linear(5, 5), Sigmoid(), TiedAutoencoder(5, 7)]
    layers = [Linear(7, 5), ReLU(), TiedAutoencoder(5, 3), Sigmoid(), Residual(branch), TiedAutoencoder(5, 2), Linear(5, 4)]
    return Sequential(layers, seed=3, dtype=np.float64, input_shape=(7,))


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_a_step_moves_what_the_formulas_say(comm):
    for sizes, (inputs, hidden), batch_size in product(grids(comm.size), SIZES, (13, 3)):
        with ProcessGrid(comm, **sizes) as grid:
            net, x = parallelize(alone(inputs, hidden), grid), np.ones((batch_size, inputs))
            train_step(net, MSE(), SGD(net, 0.1), *block(net, x, x), batch_size)
            counted = {"gradients": 0, "model": 0, "loss": 0}
            for (layer, _), record in grid.tally.records.items():
                counted[layer if layer in counted else "model"] += record.bytes
        found = {name: comm.allreduce(value) for name, value in counted.items()}
        parameters = inputs * hidden + hidden + inputs
        assert found == {
            "model": bytes_on_model(batch_size, inputs, **sizes, itemsize=8),
            "gradients": 8 * byte_formulas.all_reduce(parameters, sizes["batch"]),
            "loss": 24 * byte_formulas.all_reduce(1, comm.size),
        }, f"{sizes} {inputs}-{hidden} {batch_size}"


def wide():
    layers = [TiedAutoencoder(60, 24), Sigmoid(), TiedAutoencoder(60, 96), Sigmoid(), Linear(60, 12)]
    return Sequential(layers, input_shape=(60,))


@pytest.mark.parametrize("sizes", [{"batch": 2}, {"model": 3}, {"batch": 2, "model": 2}])
def test_the_operations_of_all_ranks_are_those_of_one(sizes):
    def operations(grid):
        return sum(work.flops for work in Cost(wide(), grid, "fewest-bytes", 12, MACHINE).works if work.phase != "update")

    places = product(*(range(sizes.get(axis, 1)) for axis in AXES))
    grids_of_ranks = [GridDescription(sizes, dict(zip(AXES, place, strict=True))) for place in places]
    assert sum(map(operations, grids_of_ranks)) == operations(GridDescription({}))


def test_each_rank_holds_its_hidden_units_and_the_first_that_has_any_the_bias_of_the_decoder():
    held = []
    for rank in range(4):
        grid = GridDescription({"model": 4}, {"model": rank})
        placed = place(alone(5, 3), grid, "fewest-bytes", shares={"model": (0, 1, 1, 1)})
        held.append([p.block_shape for p in placed.layers[0].parameters])
    assert placed.plan == ["hidden"]
    assert held == [[(5, 0), (0,), (0,)], [(5, 1), (1,), (5,)], [(5, 1), (1,), (0,)], [(5, 1), (1,), (0,)]]


@pytest.mark.parametrize(
    ("layers", "plan", "words"),
    [
        ([TiedAutoencoder(5, 3)], "out", "takes hidden or replicate, not out"),
        ([TiedAutoencoder(5, 3)], "laugier", "takes hidden or replicate, not laugier"),
        ([Linear(5, 3)], "hidden", "has no hidden units"),
        ([Linear(5, 3)], "autoencoder=hidden", "by kind it names conv and linear"),
        ([Linear(5, 3)], "conv=in,linear=in,linear=out", "by kind it names conv and linear"),
    ],
)
def test_plans_that_do_not_fit_are_refused(layers, plan, words):
    with pytest.raises(ValueError, match=words):
        place(Sequential(layers), GridDescription({"model": 2}), plan)


def test_a_plan_by_kind_may_leave_autoencoders_out():
    net = Sequential([Linear(7, 5), TiedAutoencoder(5, 3)])
    for plan, words in (
        ("conv=out,linear=out", ["out", "hidden"]),
        ("conv=out,linear=in,autoencoder=replicate", ["in", "replicate"]),
        ("fewest-bytes", ["out", "hidden"]),
    ):
        assert place(net, GridDescription({"model": 2}), plan).plan == words


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_planner_plans_for_it(ranks):
    for net in (Sequential([TiedAutoencoder(784, 500), Sigmoid()]), among_others()):
        chosen, _ = Planner(net, ranks, 64, MACHINE).best()
        assert "hidden" in chosen.plan or "replicate" in chosen.plan


class OwnAutoencoder(TiedAutoencoder):
    """A layer whose kind no plan of the project names."""

    kind = "own"


class ShardOwnUnits(ShardHiddenUnits):
    word, kinds = "own-hidden", ("own",)


def test_a_kind_of_ones_own_has_the_plans_that_name_it(monkeypatch):
    net = Sequential([OwnAutoencoder(5, 3), Sigmoid(), Linear(5, 4)])
    grid = GridDescription({"model": 2})
    assert place(net, grid, "fewest-bytes").plan[0] == "replicate"  # that takes every kind
    monkeypatch.setitem(PLANS, "own-hidden", ShardOwnUnits())
    assert place(net, grid, "fewest-bytes").plan[0] == "own-hidden"
    placed = place(net, grid, "conv=replicate,linear=out,own=own-hidden")
    assert placed.plan == ["own-hidden", "out"] and placed.layers[0].weight.block_shape == (5, 2)
    with pytest.raises(ValueError, match="takes replicate or own-hidden, not out"):
        place(net, grid, "out")
    assert Cost(net, grid, "fewest-bytes", 8, MACHINE).seconds > 0
