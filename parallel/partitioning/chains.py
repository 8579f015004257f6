"""How many filters of each layer each rank owns: partitions of a chain of layers, what they cost, and good ones by annealing.

Every filter of a convolution (every neuron of a dense layer) reads all maps of the layer before it, and all filters of a layer
have the same work. So only the number of filters that a rank owns matters: a coarse partition is a matrix of counts with a row
for each layer and a column for each rank. A map is sent once from its owner to each other rank that owns any filter of the next
layer. With n filters in a layer, n_r of them at rank r, and the R ranks of the set S owning the next layer, the layer sends
n R - (the sum of n_r over r in S) maps.

In `search` a move gives some filters of one layer from one rank to another. What that changes follows from the counts of the
layer and of its two neighbours, so it takes a few microseconds. Ranks may become too full on the way, at a price.
"""

from dataclasses import dataclass
from math import ceil
from random import Random

import numpy as np

from gridgrad.parallel.partitioning.annealing import anneal
from gridgrad.parallel.partitioning.hypergraph import limits_of
from gridgrad.parallel.partitioning.network_hypergraph import of_network
from gridgrad.parallel.plans.hypergraph import Owners

FIRST, LAST = 1.0, 0.015  # temperatures; all energies are in units of what a layer costs to send, on average
FULL = 100.0  # price of as much work above the capacities as a rank has on average
ATTEMPTS = 5  # with ever higher prices, until no rank is too full
NORM = 8  # "largest": the sum of what the ranks send and receive to this power stands for the largest


@dataclass(frozen=True, eq=False)
class Chain:
    """Layers that each read the one before. An owned input is a layer of one filter without work; a loss is a last layer."""

    filters: np.ndarray  # how many each layer has
    works: np.ndarray  # of one filter of each layer, in any unit
    costs: np.ndarray  # of sending one filter's output to one other rank, in any unit

    def __post_init__(self):
        for name, kind in (("filters", int), ("works", float), ("costs", float)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), kind))

    @property
    def work(self):
        """The work of all layers."""
        return float(self.filters @ self.works)

    def loads(self, counts):
        """The work of each rank. counts: integers (layers, ranks), as everywhere below."""
        return self.works @ counts

    def volume(self, counts):
        """What all layers send: the connectivity-1 volume, in the unit of the costs."""
        return float(self.sent(counts).sum())

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
    """The most work that each rank may have, (ranks,), by `limits_of`."""
    return limits_of(np.repeat(chain.works, chain.filters), len(speeds), epsilon, speeds)[0]


def chain_of(net, seconds=None):
    """(its Chain, with the loss as last layer, names of layers with weights), or None for branches or sparse layers."""
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


class TooFull(ValueError):
    """No partition was found in which no rank has too much work."""


def search(chain, speeds, epsilon=0.1, objective="volume", seed=0, moves=None):
    """Counts (layers, ranks) of small cost, in which no rank has more work than `capacities` says; TooFull if none was found.
    moves: how many to try, by default enough for VGG16. The same arguments give the same counts."""
    most = capacities(chain, speeds, epsilon)
    if moves is None:
        moves = 100_000 if objective == "largest" else min(200_000 * len(most), 5_000_000)
    price = FULL * len(most) / (chain.work or 1.0)
    for attempt in range(ATTEMPTS):
        state = STATES[objective](chain, most, in_order(chain, most), price * 4**attempt)
        found = anneal(state, FIRST, LAST, moves, Random(seed))
        if found is not None:
            return found
    raise TooFull("no partition found in which no rank has too much work: allow more imbalance (epsilon), or use fewer ranks")


def in_order(chain, most):
    """Counts that fill one rank after another with the filters in their order, each up to its share of the work. A filter that
    is heavier than its rank may have changes places, with all that its rank has, with a rank that may have it."""
    shares = np.cumsum(most) / most.sum() * chain.work
    middle = np.repeat(chain.works, chain.filters)
    middle = np.cumsum(middle) - middle / 2
    rank = np.minimum(np.searchsorted(shares, middle), len(most) - 1)
    layer = np.repeat(np.arange(len(chain.filters)), chain.filters)
    counts = np.zeros((len(chain.filters), len(most)), int)
    np.add.at(counts, (layer, rank), 1)
    roomy = iter(np.argsort(-most, kind="stable"))
    for layer in np.argsort(-chain.works, kind="stable"):
        for a in np.flatnonzero(counts[layer]):
            if chain.works[layer] > most[a]:
                b = next(roomy, a)
                counts[:, [a, b]] = counts[:, [b, a]]
    return counts


class Volume:
    """Counts that are annealed, with what all ranks send as the energy. Plain lists, which Python reads faster than arrays."""

    def __init__(self, chain, most, counts, price=0.0):
        # price: of a unit of work above a capacity
        self.works, self.most, self.price = chain.works.tolist(), most.tolist(), price
        self.unit = float((chain.filters * chain.costs)[:-1].mean() or 1.0) if len(chain.filters) > 1 else 1.0
        self.costs, self.filters = (chain.costs / self.unit).tolist(), chain.filters.tolist()
        self.counts, self.last = counts.tolist(), len(counts) - 1  # rows of layers
        self.owners = [np.flatnonzero(row).tolist() for row in counts]  # the ranks that own any filter of each layer
        self.loads = chain.loads(counts).tolist()  # the work of each rank
        self.excess = price * sum(max(0.0, load - limit) for load, limit in zip(self.loads, self.most))

    def copy(self):
        return np.array(self.counts)

    def propose(self, uniform):
        counts, owners, loads, most, last = self.counts, self.owners, self.loads, self.most, self.last
        layer = int(uniform() * (last + 1))
        mine = owners[layer]
        a, where = mine[int(uniform() * len(mine))], uniform()
        # To a rank that owns some of a neighbour or of this layer already; seldom to any other.
        others = (
            owners[layer + 1] if where < 0.35 and layer < last
            else mine if where < 0.7
            else owners[layer - 1] if where < 0.9 and layer
            else None
        )  # fmt: skip
        b = int(uniform() * len(loads)) if others is None else others[int(uniform() * len(others))]
        if a == b:
            return None
        k, load_a, load_b, weight = counts[layer][a], loads[a], loads[b], self.works[layer]
        if k > 1:
            k = amount(k, load_a - most[a], most[b] - load_b, weight, uniform)
        after_a, after_b = load_a - k * weight, load_b + k * weight
        more = (
            (after_a - most[a] if after_a > most[a] else 0.0) - (load_a - most[a] if load_a > most[a] else 0.0)
            + (after_b - most[b] if after_b > most[b] else 0.0) - (load_b - most[b] if load_b > most[b] else 0.0)
        )  # fmt: skip
        self.move = layer, a, b, k
        return self.change(layer, a, b, k), self.price * more

    def change(self, layer, a, b, k):
        """What it adds to the energy to give k filters of a layer from rank a to rank b."""
        row, change = self.counts[layer], 0.0
        if layer < self.last:
            after = self.counts[layer + 1]
            if after[a]:
                if not after[b]:
                    change = self.costs[layer] * k
            elif after[b]:
                change = -self.costs[layer] * k
        if layer:
            before, filters, cost = self.counts[layer - 1], self.filters[layer - 1], self.costs[layer - 1]
            if k == row[a]:
                change -= cost * (filters - before[a])
            if not row[b]:
                change += cost * (filters - before[b])
        return change

    def accept(self):
        layer, a, b, k = self.move
        row, owners = self.counts[layer], self.owners[layer]
        row[a] -= k
        if not row[a]:
            owners.remove(a)
        if not row[b]:
            owners.append(b)
        row[b] += k
        self.loads[a] -= k * self.works[layer]
        self.loads[b] += k * self.works[layer]

    def reject(self):
        """Nothing has changed."""


class Messages(Volume):
    """The same, with how many messages all ranks send: each costs as much as an average layer, and the volume little."""

    VOLUME = 0.02

    def change(self, layer, a, b, k):
        change = self.VOLUME * super().change(layer, a, b, k)
        row = self.counts[layer]
        leaves, enters = k == row[a], not row[b]
        if leaves or enters:
            for other in (layer - 1, layer + 1):
                if 0 <= other <= self.last:
                    counts = self.counts[other]
                    change += (enters - leaves) * len(self.owners[other])
                    change += (leaves and counts[a] > 0) - (enters and counts[b] > 0)
        return change


class Largest(Volume):
    """The same, with the norm of what each rank sends and receives, which the largest of them rules."""

    def __init__(self, chain, most, counts, price=0.0):
        super().__init__(chain, most, counts, price)
        layers = [slice(max(layer - 1, 0), layer + 2) for layer in range(len(chain.filters))]
        self.near = [(part, Chain(chain.filters[part], chain.works[part], chain.costs[part])) for part in layers]
        self.traffic = self.next = (chain.sent(counts) + chain.received(counts)) / self.unit
        self.energy = self.next_energy = norm(self.traffic)

    def change(self, layer, a, b, k):
        part, chain = self.near[layer]
        before = np.array(self.counts[part])
        after, row = before.copy(), min(layer, 1)
        after[row, a] -= k
        after[row, b] += k
        change = chain.sent(after) + chain.received(after) - chain.sent(before) - chain.received(before)
        self.next = self.traffic + change / self.unit
        self.next_energy = norm(self.next)
        return self.next_energy - self.energy

    def accept(self):
        super().accept()
        self.traffic, self.energy = self.next, self.next_energy


STATES = {"volume": Volume, "messages": Messages, "largest": Largest}  # by what is minimised


def norm(traffic):
    """A smooth function of what each rank sends and receives that is close to the largest."""
    largest = float(traffic.max())
    return largest * float(((traffic / largest) ** NORM).sum()) ** (1 / NORM) if largest > 0 else 0.0


def amount(owned, excess, space, weight, uniform):
    """How many of the `owned` filters to move: as rank b has space for, as rank a has too many, one, some, or all."""
    kind = uniform()
    if kind < 0.4 and weight:
        k = int(space / weight)
    elif kind < 0.6 and weight:
        k = ceil(excess / weight)
    elif kind < 0.7:
        k = 1
    elif kind < 0.8:
        k = 1 + int(uniform() * owned)
    else:
        k = owned
    return k if 1 <= k <= owned else owned
