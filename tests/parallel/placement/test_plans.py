"""The words of plans: what is placed where and sent, of autoencoders and redundant layers."""

from itertools import product

import numpy as np
import pytest

from gridgrad.experiments.common import byte_formulas
from gridgrad.nn import MSE, SGD, Linear, Sequential, Sigmoid, Tanh, TiedAutoencoder
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.placement.moves import elements_sent
from gridgrad.parallel.placement.partition import Partition, Split
from gridgrad.parallel.placement.placements import C, Invariant, N, Shard
from gridgrad.parallel.plans.place_network import place
from tests.mpi import mpi
from tests.parallel.equality import block, grids

TWO = GridDescription({"model": 2})


@mpi(2, 3, 4)
def test_a_step_of_an_autoencoder_moves_what_the_formulas_say(comm):
    """The partial sums of the outputs are reduce-scattered, and their gradient is all-gathered. Between the Sigmoid behind it
    and the loss there is an all-to-all in each direction. Of the hidden units nothing moves."""
    for sizes, (inputs, hidden), batch_size in product(grids(comm.size), [(7, 3), (3, 11)], (13, 3)):
        batch, model = sizes["batch"], sizes["model"]
        with ProcessGrid(comm, **sizes) as grid:
            serial = Sequential([TiedAutoencoder(inputs, hidden), Sigmoid()], seed=3, dtype=np.float64)
            net, x = parallelize(serial, grid), np.ones((batch_size, inputs))
            train_step(net, MSE(), SGD(net, 0.1), *block(net, x, x), batch_size)
            counted = {"gradients": 0, "model": 0, "loss": 0}
            for (layer, _), record in grid.tally.records.items():
                counted[layer if layer in counted else "model"] += record.bytes
        ends = Shard(C, Partition.even(inputs, model)), Shard(N, Split(model))
        turned = 2 * sum(elements_sent(*ends, n, (inputs,), model) for n in Partition.even(batch_size, batch).sizes)
        assert {name: comm.allreduce(value) for name, value in counted.items()} == {
            "model": 8 * (2 * batch_size * byte_formulas.all_gather(inputs, model) + turned),
            "gradients": 8 * byte_formulas.all_reduce(inputs * hidden + hidden + inputs, batch),
            "loss": 24 * byte_formulas.all_reduce(1, comm.size),
        }, f"{sizes} {inputs}-{hidden} {batch_size}"


def pair():
    return Sequential([Linear(7, 5), TiedAutoencoder(5, 3)])


def test_plans_name_layers_one_by_one_or_by_kind_or_are_refused():
    assert place(pair(), TWO, "fewest-bytes").plan == ["out", "hidden"]
    assert place(pair(), TWO, "conv=out,linear=in").plan == ["in", "hidden"]
    assert place(pair(), TWO, "redundant,hidden").plan == ["redundant", "hidden"]
    for plan, words in (("out", "takes hidden or replicate, not out"), ("superfluous", "use fewest-bytes, .*redundant")):
        with pytest.raises(ValueError, match=words) as caught:
            place(pair(), TWO, plan)
        assert "\n" not in str(caught.value)


@mpi(2, 3)
def test_only_what_surrounds_redundant_layers_is_sent(comm):
    """Between layers with "in": the sum before it, one all-gather into it, and one in backward out of it."""
    found = {}
    for plan in ("in,redundant,in", "in,redundant,redundant", "redundant"):
        with ProcessGrid(comm, model=comm.size) as grid:
            layers = [Linear(7, 11), Tanh(), Linear(11, 5), Tanh(), Linear(5, 3)]
            net = parallelize(Sequential(layers, dtype=np.float64, input_shape=(7,)), grid, plan)
            train_step(net, MSE(), SGD(net, 0.1), *block(net, np.ones((1, 7)), np.ones((1, 3))), 1)
            found[plan] = {(layer, kind) for (layer, kind), record in grid.tally.records.items() if layer != "loss"}
            held = {parameter.layout.placements.get("model") for layer, parameter in net.parameters if layer.name == "2"}
            assert held == {Invariant()}
    into = {("1", "reduce-scatter"), ("1", "all-gather"), ("2", "all-gather")}
    ends = {("4", "all-gather"), ("output", "reduce-scatter"), ("output", "all-gather")}
    assert list(found.values()) == [into | ends, into, set()]
