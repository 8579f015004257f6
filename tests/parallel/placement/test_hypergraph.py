"""The plan "hypergraph": what is sent, and what it refuses. Random networks train with any partition."""

import numpy as np
import pytest

from gridgrad.nn import (
    LOSSES,
    SGD,
    Concat,
    Conv2d,
    Flatten,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    SparseLinear,
)
from gridgrad.nn.device import to_host, xp
from gridgrad.nn.layer import Block, Parameter
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans import hypergraph
from gridgrad.parallel.plans.hypergraph import Owners, Pairs
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.training.steps import train_step
from tests.mpi import mpi
from tests.parallel.equality import block

SHAPE, CLASSES, SAMPLES = (8, 7, 3), 4, 9


def branching():
    """Branches that take one array together, and ones that begin with a layer without weights or are empty."""
    return [
        Conv2d(3, 7, 3, padding=1), ReLU(), MaxPool2d(2),
        Residual([Conv2d(7, 6, 3, 2, 1), ReLU(), Conv2d(6, 9, 3, padding=1)], [Conv2d(7, 9, 1, 2)]), ReLU(),
        Concat([Conv2d(9, 3, 1)], [Conv2d(9, 2, 1), ReLU(), Conv2d(2, 4, 3, padding=1)],
               [MaxPool2d(3, 1, 1), Conv2d(9, 2, 1)], []),
        Flatten(), Linear(18 * 2 * 2, 11), ReLU(), Linear(11, CLASSES),
    ]  # fmt: skip


def neighbours():
    """Channels that others need for a normalisation, and features that few neurons need."""
    sparse = np.random.default_rng(2).random((9, 17)) < 0.2
    return [Conv2d(3, 5, 1), LocalResponseNorm(3), Residual([ReLU(), Conv2d(5, 5, 1)]), Flatten(), Linear(5 * 56, 9),
            SparseLinear(sparse), ReLU(), Linear(17, CLASSES)]  # fmt: skip


def net_of(layers, dtype=np.float64):
    return Sequential(layers(), seed=3, dtype=dtype, input_shape=SHAPE)


def random_owners(layers, ranks, seed):
    """Random Owners of outputs. Parts have any sizes, and some are empty."""
    rng = np.random.default_rng(seed)
    found = weighted(net_of(layers))

    def draw(shape):
        weights = rng.random(ranks) ** 3 * (rng.random(ranks) < 0.8)
        weights[rng.integers(ranks)] += 0.1
        return rng.choice(ranks, shape, p=weights / weights.sum())

    outputs = {layer.name: draw(layer.outputs) for layer in found}
    return Owners(ranks, outputs, loss=int(rng.integers(ranks)))


@mpi(2, 3, 4)
def test_bytes_and_messages_on_the_wire_are_those_of_the_hypergraph(comm):
    """For each rank: forward its messages, and backward those that return to it."""
    rng, ranks, rank = np.random.default_rng(1), comm.size, comm.rank
    x, y = rng.standard_normal((SAMPLES, *SHAPE)), rng.integers(0, CLASSES, SAMPLES)
    for layers, grain in ((branching, "coarse"), (branching, "fine"), (neighbours, "coarse")):
        owners, net = random_owners(layers, ranks, 1), net_of(layers)
        pairs = {layer.name: rng.integers(0, ranks, (layer.inputs, layer.outputs))
                 for layer in weighted(net) if layer.kind == "conv" and grain == "fine"}  # fmt: skip
        arranged = np.sort if layers is neighbours else np.asarray  # neighbours are counted exactly if they are together
        outputs = {name: arranged(found) for name, found in owners.outputs.items()}
        owners = Owners(ranks, outputs, pairs, owners.loss)
        model = of_network(net, grain, neuron_blocks=None)
        traffic = model.hypergraph.traffic(model.parts(owners), ranks)
        with ProcessGrid(comm, model=ranks) as grid:
            net = parallelize(net, grid, "hypergraph", owners=owners)
            optimizer = SGD(net, 0.05)
            grid.tally.clear()
            train_step(net, LOSSES["cross-entropy"](), optimizer, *block(net, x, y), len(x))
            records = [record for (_, kind), record in grid.tally.records.items() if kind == "exchange"]
        both = traffic[:, rank], traffic[:, :, rank]
        assert sum(record.bytes for record in records) == sum(map(np.sum, both)) * len(x) * 8, (layers, grain)
        assert sum(record.messages for record in records) == sum(map(np.count_nonzero, both)), (layers, grain)


def test_pairs_begin_as_the_serial_weight_which_is_never_drawn_as_a_whole(monkeypatch):
    weight, held, drawn, initialise = Conv2d(6, 5, 3).weight, np.array([1, 2, 4, 10, 24, 25, 29]), [], Parameter.initialise
    weight.value = xp.empty(weight.shape, np.float64)
    weight.initialise(1, "0.weight")
    monkeypatch.setattr(Parameter, "initialise", lambda one, *stream: (drawn.append(one.value.shape), initialise(one, *stream)))
    for most, shapes in ((1 << 20, [(3, 3, 4, 5)]), (100, [(3, 3, 2, 5)] * 2), (1, [(3, 3, 1, 5)] * 4)):
        monkeypatch.setattr(hypergraph, "DRAWN", most)
        drawn.clear()
        pairs = Pairs(weight).placed(Block((slice(0, 3), slice(0, 3), held)))
        pairs.value = xp.empty(pairs.block_shape, np.float64)
        pairs.initialise(1, "0.weight")
        assert np.array_equal(to_host(pairs.value), to_host(weight.value).reshape(3, 3, 30)[..., held]) and drawn == shapes


def test_owners_and_plans_that_do_not_fit_are_refused_in_one_line():
    owners = random_owners(neighbours, 2, 0)
    for changed, plan, words in (
        (Owners(3, owners.outputs), "hypergraph", "3 ranks"),
        (Owners(2, owners.outputs | {"0": [0, 1, 1]}), "hypergraph", "5 outputs, not 3"),
        (Owners(2, owners.outputs, {"5": np.zeros((9, 17), int)}), "hypergraph", "is sparse"),
        (owners.outputs, "hypergraph", "needs owners"),
        (owners, "out", "plan hypergraph"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            place(net_of(neighbours), GridDescription({"model": 2}), plan, owners=changed)
        assert "\n" not in str(caught.value)
