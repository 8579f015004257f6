"""What plans place where and send: autoencoders, redundant layers, and the master and slaves of Marques 2016."""

from itertools import product

import numpy as np
import pytest

from gridgrad.experiments.common import byte_formulas
from gridgrad.experiments.papers import marques2016_scaling as volumes
from gridgrad.nn import (
    MSE,
    SGD,
    Conv2d,
    Flatten,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Sigmoid,
    SoftmaxCrossEntropy,
    Tanh,
    TiedAutoencoder,
)
from gridgrad.nn.sequence import shapes
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.placement.moves import elements_sent
from gridgrad.parallel.placement.partition import Partition, Split
from gridgrad.parallel.placement.placements import MASTER, C, Invariant, N, Shard
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


# ----- the plan "marques"

SHAPE = 13, 12, 3


def images():
    """Layers as those of the paper's networks, with sizes that nothing divides, and a branch."""
    layers = [Conv2d(3, 7, 5), LocalResponseNorm(5), MaxPool2d(2), Residual([Conv2d(7, 7, 3, padding=1, bias=False)]),
              Conv2d(7, 11, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(11, 5)]  # fmt: skip
    return Sequential(layers, input_shape=SHAPE)


@mpi(2, 3, 4)
def test_a_step_of_marques_sends_what_equation_5_1_says(comm):
    x, y = np.ones((6, *SHAPE), np.float32), np.zeros(6, int)
    for sizes in grids(comm.size):
        ranks = sizes["model"]
        for weights in (None, [3, 0, 1.5, 1][:ranks], [0] * (ranks - 1) + [1]):
            with ProcessGrid(comm, **sizes) as grid:
                net = parallelize(images(), grid, "marques", shares={"model": tuple(weights)} if weights else None)
                expected = []
                for layer, before, after in shapes(images().layers, SHAPE):
                    if layer.kind == "conv":
                        kernels = tuple(net.splits["model"].of_length(layer.outputs).sizes)
                        expected.append(volumes.MarquesConvolution(before, after, layer.window.kernel, kernels))
                train_step(net, SoftmaxCrossEntropy(), SGD(net, 0.1), *block(net, x, y), 6)
                mine = sum(record.bytes for (_, kind), record in grid.tally.records.items() if kind.startswith("hand"))
                assert comm.allreduce(mine) == volumes.marques_step(6, expected, sizes["batch"]), (sizes, weights)
                rank = grid.coordinates["model"]
                assert mine == 0 or not weights or rank == MASTER or weights[rank], "a slave without kernels sends nothing"
