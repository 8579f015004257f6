"""Improve a partition of a hypergraph by simulated annealing. A move takes a vertex, or all vertices of one of its nets in the
same part, to the part of a neighbour. In the fine grain the latter are the channels of a filter at a rank, or all filters to
which it applies a channel: moving only one of them would seldom gain anything. A vertex should be in few nets, since a move
looks at all of them."""

from math import exp
from random import Random

import numpy as np

from gridgrad.parallel.partitioning.hypergraph import limits_of

FIRST, LAST = 0.2, 0.05  # temperatures, in units of the average cost of a net
FULL = 500.0  # price of as much work above the limits as a part has on average, in that unit
SINGLE = 0.5  # how often a vertex moves alone
TOLERANCE = 1e-6  # of sums that were rounded


def refine(graph, parts, k, epsilon=0.1, speeds=None, seed=0, moves=1_000_000):
    """The part of each vertex, int64 (V,), with at most the volume of `parts`. It keeps `limits_of`; a part that has more work
    at the beginning gets no more. The same arguments give the same partition. moves: some microseconds each."""
    parts = graph.check_parts(parts, k)
    limits, _ = limits_of(graph.weights, k, epsilon, speeds)
    limits = np.maximum(limits, graph.part_weights(parts, k))
    average = max(1.0, graph.weights.sum() / k)
    unit = float(graph.costs.mean()) or 1.0
    degrees = np.bincount(graph.pins, minlength=graph.vertices)
    of_vertices = graph.net_of_pin[np.argsort(graph.pins, kind="stable")]
    nets_of = [some.tolist() for some in np.split(of_vertices, np.cumsum(degrees)[:-1])]
    pins = [some.tolist() for some in np.split(graph.pins, graph.offsets[1:-1])]
    table = np.zeros((graph.nets, k), np.int64)
    np.add.at(table, (graph.net_of_pin, parts[graph.pins]), 1)
    pins_in = table.tolist()  # of each net in each part
    costs, weights = (graph.costs / unit).tolist(), (graph.weights / average).tolist()
    most, loads = (limits / average).tolist(), (graph.part_weights(parts, k) / average).tolist()
    part = parts.tolist()
    uniform, temperature, cooling = Random(seed).random, FIRST, (LAST / FIRST) ** (1 / moves)
    now = best = excess = 0.0
    found = part[:]
    for _ in range(moves):
        temperature *= cooling
        vertex = int(uniform() * len(part))
        nets, a = nets_of[vertex], part[vertex]
        if not nets:
            continue
        near = pins[nets[int(uniform() * len(nets))]]
        b = part[near[int(uniform() * len(near))]]
        if a == b:
            continue
        group = (vertex,)
        if uniform() > SINGLE:
            group = [other for other in pins[nets[int(uniform() * len(nets))]] if part[other] == a]
        weight = sum([weights[other] for other in group])
        over_a, over_b = loads[a] - most[a], loads[b] - most[b]
        more = FULL * (max(0.0, over_a - weight) - max(0.0, over_a) + max(0.0, over_b + weight) - max(0.0, over_b))
        change = more
        for other in group:
            for net in nets_of[other]:
                here = pins_in[net]
                here[a] -= 1
                if not here[a]:
                    change -= costs[net]
                if not here[b]:
                    change += costs[net]
                here[b] += 1
        if change <= 0 or uniform() < exp(-change / temperature):
            for other in group:
                part[other] = b
            loads[a] -= weight
            loads[b] += weight
            now, excess = now + change - more, excess + more
            if excess < TOLERANCE and now < best - TOLERANCE:
                best, found = now, part[:]
        else:
            for other in group:
                for net in nets_of[other]:
                    pins_in[net][a] += 1
                    pins_in[net][b] -= 1
    return np.array(found)
