"""How many filters of each layer each rank owns: partitions of a chain of layers, and what they cost.

Every filter of a convolution (every neuron of a dense layer) reads all maps of the layer before it, and has as much work as
the others of its layer. So it does not matter *which* filters a rank owns, but how many: a partition in the coarse grain is a
matrix of counts with a row for each layer and a column for each rank.

A map is sent once from its owner to each other rank that owns any filter of the next layer. With n filters in a layer, n_r of
them at rank r, and the R ranks of the set S owning the next layer, the layer sends n R - (the sum of n_r over r in S) maps.
"""

from dataclasses import dataclass

import numpy as np

from gridgrad.parallel.partitioning.hypergraph import limits_of
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.plans.hypergraph import Owners


@dataclass(frozen=True, eq=False)
class Chain:
    """Layers, each of which reads the outputs of the layer before it and of no other.

    filters: how many each layer has. works: of one filter of each layer, in any unit. costs: of sending one filter's output to
    one other rank, in any unit. An input that someone owns is a first layer of one filter without work, and a loss at some rank
    is a last one. Raises ValueError for a layer without filters, or numbers below zero.
    """

    filters: np.ndarray
    works: np.ndarray
    costs: np.ndarray

    def __post_init__(self):
        for name, kind in (("filters", int), ("works", float), ("costs", float)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), kind))
        if not len(self.filters) == len(self.works) == len(self.costs):
            raise ValueError("a chain of layers: as many filters, works and costs as layers")
        if (self.filters < 1).any() or (self.works < 0).any() or (self.costs < 0).any():
            raise ValueError("a chain of layers: every layer has filters, and works and costs are not below zero")

    @property
    def work(self):
        """The work of all layers."""
        return float(self.filters @ self.works)

    def loads(self, counts):
        """The work of each rank. counts: integers (layers, ranks), as everywhere below."""
        return self.works @ counts

    def volume(self, counts):
        """What all layers send: the connectivity-1 volume, in the unit of the costs."""
        receivers = counts[1:] > 0
        maps = self.filters[:-1] * receivers.sum(1) - (counts[:-1] * receivers).sum(1)
        return float((self.costs[:-1] * maps).sum())

    def messages(self, counts):
        """How many messages each layer sends to the next, (layers - 1,): pairs of different ranks with something to send."""
        senders, receivers = counts[:-1] > 0, counts[1:] > 0
        return senders.sum(1) * receivers.sum(1) - (senders & receivers).sum(1)

    def sent(self, counts):
        """What each rank sends, (ranks,)."""
        receivers = counts[1:] > 0
        others = receivers.sum(1, keepdims=True) - receivers
        return self.costs[:-1] @ (counts[:-1] * others)

    def received(self, counts):
        """What each rank receives, (ranks,)."""
        receivers = counts[1:] > 0
        return self.costs[:-1] @ ((self.filters[:-1, None] - counts[:-1]) * receivers)

    def check(self, counts):
        """`counts` as an array of integers. Raises ValueError if they are not a partition of this chain."""
        counts = np.asarray(counts, int)
        if counts.ndim != 2 or len(counts) != len(self.filters):
            raise ValueError(f"counts: a row for each of the {len(self.filters)} layers, not an array {counts.shape}")
        if (counts < 0).any() or (counts.sum(1) != self.filters).any():
            raise ValueError("counts: those of a layer must not be below zero and add up to its filters")
        return counts


def capacities(chain, speeds, epsilon):
    """The most work that each rank may have, (ranks,): the limits of `limits_of` for the filters, which explains epsilon.

    speeds: the relative speed of each rank, to which its work is proportional. Raises ValueError for bad arguments.
    """
    return limits_of(np.repeat(chain.works, chain.filters), len(speeds), epsilon, speeds)[0]


def chain_of(net, seconds=None):
    """(the Chain of a network, the names of its layers with weights), or None if it has branches or sparse layers.

    The last layer of the chain is the loss. Works and costs are those of `of_network`, which explains `seconds`.
    """
    whole = of_network(net, filter_blocks=1, neuron_blocks=1, seconds=seconds)  # one vertex for each layer
    graph, layers = whole.hypergraph, {layer.name: layer for layer in net.leaves() if layer.kind}
    sizes = np.array([*(layers[name].outputs for name in whole.outputs), 1])
    in_a_row = np.arange(graph.nets)[:, None] + np.arange(2)
    if len(sizes) != graph.vertices or not np.array_equal(graph.pins, in_a_row.ravel()):
        return None
    return Chain(sizes, graph.weights / sizes, np.append(graph.costs, 0) / sizes), tuple(whole.outputs)


def owners(counts, names):
    """The Owners for counts of a network's Chain: filters are dealt out in the order of the ranks. names: of its layers."""
    *outputs, loss = (np.repeat(np.arange(counts.shape[1]), row) for row in counts)
    return Owners(counts.shape[1], dict(zip(names, outputs, strict=True)), loss=int(loss[0]))
