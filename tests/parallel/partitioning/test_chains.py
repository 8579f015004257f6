"""Which networks are chains of layers, and that the costs of a chain are those of its hypergraph."""

import numpy as np
import pytest

from gridgrad.nn import Conv2d, Flatten, Linear, LocalResponseNorm, MaxPool2d, ReLU, Residual, Sequential, SparseLinear
from gridgrad.parallel.partitioning.chains import chain_of, owners
from gridgrad.parallel.partitioning.network_hypergraph import of_network


def chain():
    layers = [Conv2d(3, 7, 3), ReLU(), MaxPool2d(2), Conv2d(7, 5, 3), ReLU(), Flatten(), Linear(5 * 3 * 2, 11), Linear(11, 4)]
    return Sequential(layers, input_shape=(12, 10, 3))


def test_the_costs_of_a_chain_are_those_of_its_hypergraph():
    net, rng = chain(), np.random.default_rng(0)
    layers, names = chain_of(net)
    assert names == ("0", "3", "6", "7") and layers.filters.tolist() == [7, 5, 11, 4, 1]
    model = of_network(net, neuron_blocks=None)
    for ranks in (1, 2, 3, 5):
        counts = np.array([rng.multinomial(n, np.full(ranks, 1 / ranks)) for n in layers.filters])
        found = owners(counts, names)
        parts = model.parts(found)
        traffic = model.hypergraph.traffic(parts, ranks)
        assert layers.volume(counts) == pytest.approx(traffic.sum())
        assert layers.messages(counts).sum() == np.count_nonzero(traffic)
        assert layers.loads(counts) == pytest.approx(model.hypergraph.part_weights(parts, ranks), rel=1e-6)


@pytest.mark.parametrize(
    "layers",
    [
        [Conv2d(3, 4, 3), Residual([Conv2d(4, 4, 1), Conv2d(4, 4, 1)]), Flatten(), Linear(320, 2)],
        [Conv2d(3, 4, 3), LocalResponseNorm(3), Flatten(), Linear(320, 2)],
        [Flatten(), SparseLinear(np.eye(360, 5, dtype=bool)), Linear(5, 2)],
    ],
)
def test_branches_neighbours_and_sparse_layers_make_no_chain(layers):
    assert chain_of(Sequential(layers, input_shape=(12, 10, 3))) is None
