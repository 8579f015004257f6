"""What a partition of a network's hypergraph costs: work, volume, messages, and the most that one rank sends or receives."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Measures:
    """Volumes are elements of one sample in a forward pass; backward as many travel back. Messages are those of a minibatch."""

    work: np.ndarray  # (ranks,), in shares of the mean, or of the rank's share by speed: the largest one is max/avg
    volume: int  # what travels to all ranks together
    largest_array: int  # the most of one array
    messages: int  # pairs of ranks with something to send, summed over the arrays
    most_sent: int  # of a rank
    most_received: int
    most_moved: int  # the largest sum of both, which is what a rank sends in a training step, forward and backward together
    partition: tuple = field(repr=False)  # the NetworkHypergraph, the part of each vertex, and the number of ranks

    @cached_property
    def star(self):
        """The elements that travel if each divided array is gathered, as its layer makes it, at the best rank for that, and
        then sent whole, after pooling, to each rank that needs any of it; None for a fine grain."""
        model, parts, ranks = self.partition
        return None if model.pairs else star(model, parts, ranks)


OBJECTIVES = {"volume": "volume", "messages": "messages", "largest": "most_moved"}  # what to minimise: the measure that says it


def measure(model, parts, ranks, speeds=None):
    """The Measures of a partition. model: a NetworkHypergraph. speeds: see `limits_of`."""
    graph = model.hypergraph
    traffic = graph.traffic(parts, ranks)
    speeds = np.ones(ranks) if speeds is None else np.asarray(speeds, float)
    work = graph.part_weights(parts, ranks) / (max(1, graph.weights.sum()) * speeds / speeds.sum())
    sent, received = traffic.sum(axis=(0, 2)), traffic.sum(axis=(0, 1))
    return Measures(
        work, int(traffic.sum()), int(traffic.sum(axis=(1, 2)).max()), int(np.count_nonzero(traffic)), int(sent.max()),
        int(received.max()), int((sent + received).max()), (model, parts, ranks),
    )  # fmt: skip


def star(model, parts, ranks):
    """The elements of a sample that travel forward by way of a root for each array, see `Measures.star`, in a coarse grain."""
    graph, total = model.hypergraph, 0
    needed = graph.pins != graph.roots[graph.net_of_pin]
    for group in range(len(graph.group_names)):
        nets = np.flatnonzero(graph.groups == group)
        users = np.unique(parts[graph.pins[needed & (graph.groups[graph.net_of_pin] == group)]])
        gathered = np.bincount(parts[graph.roots[nets]], model.unpooled[nets], ranks)
        others = np.full(ranks, len(users))  # for each possible root: the ranks that it sends the array to
        others[users] -= 1
        total += (gathered.sum() - gathered + graph.costs[nets].sum() * others).min()
    return int(total)
