"""The chain of layers in a network, if it is one: its partitions are counts of filters, for which there is a better search."""

import numpy as np

from gridgrad.parallel.partitioning import filter_counts
from gridgrad.parallel.partitioning.filter_counts import Chain
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.plans.owners import Owners


def chain_of(net, seconds=None):
    """(the Chain of a network, the names of its layers with weights), or None if it has branches or sparse layers.

    The last layer of the chain is the loss. Works are operations or picoseconds, and costs elements of a sample, as those of
    `of_network`, which explains `seconds`.
    """
    whole = of_network(net, filter_blocks=1, neuron_blocks=1, seconds=seconds)  # one vertex for each layer
    graph, layers = whole.hypergraph, {layer.name: layer for layer in net.leaves() if layer.kind}
    sizes = np.array([*(layers[name].outputs for name in whole.outputs), 1])
    in_a_row = np.arange(graph.nets)[:, None] + np.arange(2)
    if len(sizes) != graph.vertices or not np.array_equal(graph.pins, in_a_row.ravel()):
        return None
    return Chain(sizes, graph.weights / sizes, np.append(graph.costs, 0) / sizes), tuple(whole.outputs)


def owners(found, names):
    """The Owners for counts of a network's Chain. names: of its layers."""
    *outputs, loss = filter_counts.owners(found)
    return Owners(found.shape[1], dict(zip(names, outputs, strict=True)), loss=int(loss[0]))
