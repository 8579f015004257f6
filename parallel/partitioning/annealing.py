"""Simulated annealing of partitions (Kirkpatrick et al. 1983), and what improves a partition of any hypergraph by it.
`chains.py` has the moves for chains of layers, which are much faster."""

from math import exp, inf
from random import Random

import numpy as np

FIRST, LAST = 0.2, 0.05  # temperatures of `refine`, in units of the average cost of a net
FULL = 500.0  # price of as much work above the limits as a part has on average, in that unit
SINGLE = 0.5  # how often a vertex moves alone
ROUNDED, LOWER = 1e-6, 1e-9  # an excess that is due to rounding; what an energy must be lower by to count as lower


def anneal(state, first, last, moves, random):
    """The copy of the state with the least energy among those without excess; None if there was none."""
    # state.propose(uniform): (change of the energy, change of the excess) of a random move, or None; then either `accept` or
    # `reject` is called. Both are in the unit of the temperatures, which go from first to last.
    uniform, temperature, cooling = random.random, first, (last / first) ** (1 / moves)
    now, excess, best, found = 0.0, state.excess, inf, None
    if excess < ROUNDED:
        best, found = now, state.copy()
    for _ in range(moves):
        temperature *= cooling
        proposed = state.propose(uniform)
        if proposed is None:
            continue
        change, more = proposed
        if change + more > 0 and uniform() >= exp(-(change + more) / temperature):
            state.reject()
            continue
        state.accept()
        now, excess = now + change, excess + more
        if excess < ROUNDED and now < best - LOWER:
            best, found = now, state.copy()
    return found


def refine(graph, parts, k, epsilon=0.1, speeds=None, seed=0, moves=1_000_000):
    """The part of each vertex, int64 (V,), with at most the volume of `parts`. No part gets more work than `limits` says, or
    than it has already. The same arguments give the same partition. moves: some microseconds each."""
    most = np.maximum(graph.limits(k, epsilon, speeds)[0], graph.part_weights(parts, k))
    return np.array(anneal(VerticesInParts(graph, parts, k, most), FIRST, LAST, moves, Random(seed)))


class VerticesInParts:
    """A partition of a hypergraph, in plain lists, which Python reads faster than arrays."""

    # A move takes a vertex, or all vertices of one of its nets in the same part, to the part of a neighbour: in the fine grain
    # the channels of a filter at a rank, or the filters to which it applies a channel, one of which alone would seldom gain.

    excess = 0.0  # of the parts at the beginning

    def __init__(self, graph, parts, k, most):
        average, unit = max(1.0, graph.weights.sum() / k), float(graph.costs.mean()) or 1.0
        degrees = np.bincount(graph.pins, minlength=graph.vertices)
        of_vertices = graph.net_of_pin[np.argsort(graph.pins, kind="stable")]
        self.nets_of = [some.tolist() for some in np.split(of_vertices, np.cumsum(degrees)[:-1])]
        self.pins = [some.tolist() for some in np.split(graph.pins, graph.offsets[1:-1])]
        table = np.zeros((graph.nets, k), np.int64)
        np.add.at(table, (graph.net_of_pin, parts[graph.pins]), 1)
        self.pins_in = table.tolist()  # of each net in each part
        self.costs, self.weights = (graph.costs / unit).tolist(), (graph.weights / average).tolist()
        self.most, self.loads = (most / average).tolist(), (graph.part_weights(parts, k) / average).tolist()
        self.part = parts.tolist()

    def copy(self):
        return self.part[:]

    def propose(self, uniform):
        part, nets_of, pins, weights, loads, most = self.part, self.nets_of, self.pins, self.weights, self.loads, self.most
        vertex = int(uniform() * len(part))
        nets, a = nets_of[vertex], part[vertex]
        if not nets:
            return None
        near = pins[nets[int(uniform() * len(nets))]]
        b = part[near[int(uniform() * len(near))]]
        if a == b:
            return None
        group = (vertex,)
        if uniform() > SINGLE:
            group = [other for other in pins[nets[int(uniform() * len(nets))]] if part[other] == a]
        weight = sum([weights[other] for other in group])
        over_a, over_b = loads[a] - most[a], loads[b] - most[b]
        more = FULL * (max(0.0, over_a - weight) - max(0.0, over_a) + max(0.0, over_b + weight) - max(0.0, over_b))
        self.move = group, a, b, weight
        return self.moved_pins(group, a, b), more

    def moved_pins(self, group, a, b):
        """Move the vertices of a group from part a to part b in `pins_in`; returns what that adds to the volume."""
        nets_of, pins_in, costs, change = self.nets_of, self.pins_in, self.costs, 0.0
        for vertex in group:
            for net in nets_of[vertex]:
                here = pins_in[net]
                here[a] -= 1
                if not here[a]:
                    change -= costs[net]
                if not here[b]:
                    change += costs[net]
                here[b] += 1
        return change

    def accept(self):
        group, a, b, weight = self.move
        for vertex in group:
            self.part[vertex] = b
        self.loads[a] -= weight
        self.loads[b] += weight

    def reject(self):
        group, a, b, _ = self.move
        self.moved_pins(group, b, a)
