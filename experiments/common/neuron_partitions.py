"""Partitions of the neurons of a network of SparseLinear layers among ranks, and what they cost in a training step."""

import numpy as np

from gridgrad.parallel.partitioning import mt_kahypar
from gridgrad.parallel.partitioning.network_hypergraph import measure


def partitions(model, ranks, epsilon, seed):
    """{name: the part of each vertex} of the partitions to compare.

    model: the NetworkHypergraph. "hypergraph" is that of Mt-KaHyPar; "rows" gives each rank consecutive neurons of each layer,
    which have as many weights as those of the others; "random" gives each as many neurons of each layer, drawn at random. So
    these two divide every layer evenly; `naive.horizontal` counts neurons, not weights, and `naive.random` looks at no layers.
    epsilon: how much more work than the mean a part of "hypergraph" may have. Raises ValueError if Mt-KaHyPar fails.
    """
    graph, random = model.hypergraph, np.random.default_rng(seed)
    rows, shuffled = np.zeros(graph.vertices, np.int64), np.zeros(graph.vertices, np.int64)
    for vertices in model.outputs.values():
        weights = graph.weights[vertices]
        before = weights.cumsum() - weights / 2
        rows[vertices] = np.minimum(before * ranks / max(1, weights.sum()), ranks - 1)
        shuffled[vertices] = random.permutation(len(vertices)) % ranks
    return {"hypergraph": mt_kahypar.partition(graph, ranks, epsilon, seed=seed), "random": shuffled, "rows": rows}


def measures(net, model, parts, ranks, batch_size):
    """What a partition costs, as a dict that is a row of a table.

    activations: how many of a sample are sent forward, counted once for each rank that gets them. MB a step: of forward and
    backward. largest rank: of that, what the rank sends and receives that does so most. messages: of a step. balance: the
    largest number of weights of a rank, by the mean. products: the size of the products of the largest rank, of the inputs that
    it needs and the neurons that it owns, by that of a rank's even share of the dense products.
    """
    found, megabytes = measure(model, parts, ranks), 2 * net.dtype.itemsize * batch_size / 1e6
    return {
        "activations": found.volume,
        "MB a step": found.volume * megabytes,
        "largest rank": found.most_moved * megabytes,
        "messages": 2 * found.messages,
        "balance": float(found.work.max()),
        "products": share_of_products(net, model.owners(parts, ranks)),
    }


def share_of_products(net, owners):
    """See `measures`: products."""
    mine, dense = np.zeros(owners.ranks), 0
    for layer in net.layers:
        if layer.kind == "linear":
            dense += layer.inputs * layer.outputs
            for rank in range(owners.ranks):
                columns = np.flatnonzero(owners.outputs[layer.name] == rank)
                mine[rank] += len(layer.inputs_of(columns)) * len(columns)
    return float(mine.max() / (dense / owners.ranks))
