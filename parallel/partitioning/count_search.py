"""Good partitions of a chain of layers by simulated annealing over counts (`filter_counts.py`).

A move gives some filters of one layer from one rank to another. What it changes of the volume follows from the counts of the
layer and of its two neighbours alone, so a move takes a few microseconds. Ranks may become too full on the way, at a price; the
best partition in which no rank is too full is what is returned.
"""

from math import ceil, exp
from random import Random

import numpy as np

from gridgrad.parallel.partitioning.filter_counts import Chain, capacities

FIRST, LAST = 1.0, 0.015  # temperatures; all energies are in units of what a layer costs to send, on average
FULL = 100.0  # price of as much work above the capacities as a rank has on average
ATTEMPTS = 5  # with ever higher prices, until no rank is too full
NORM = 8  # "largest": the sum of what the ranks send and receive to this power stands for the largest


class TooFull(ValueError):
    """No partition was found in which no rank has too much work."""


def search(chain, speeds, epsilon=0.1, objective="volume", seed=0, moves=None):
    """Counts (layers, ranks) of small cost, in which no rank has more work than `capacities` says.

    speeds: the relative speed of each rank; `[1] * N` for N equal ones. objective: "volume", what all send; "messages", how
    many they send, and the volume next to it; "largest", what the rank that sends and receives most sends and receives.
    moves: how many to try; by default enough for VGG16. The same arguments give the same counts. Raises TooFull if no partition
    was found in which each rank has at most that work.
    """
    most = capacities(chain, speeds, epsilon)
    if objective not in ENERGIES:
        raise ValueError(f"objective: {', '.join(ENERGIES)}, not {objective}")
    if moves is None:
        moves = 100_000 if objective == "largest" else min(200_000 * len(most), 5_000_000)
    price = FULL * len(most) / (chain.work or 1.0)
    for attempt in range(ATTEMPTS):
        state = SearchState(chain, most, in_order(chain, most))
        found = anneal(state, ENERGIES[objective](chain, state), price * 4**attempt, moves, Random(seed))
        if found is not None:
            return found
    raise TooFull("no partition found in which no rank has too much work: allow more imbalance (epsilon), or use fewer ranks")


def in_order(chain, most):
    """Counts that fill one rank after another with the filters in their order, each up to its share of the work.

    A filter that is heavier than its rank may have changes places, with all that its rank has, with a rank that may have it.
    """
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


class SearchState:
    """A partition that changes: plain lists, which Python reads faster than arrays.

    counts: rows of layers. owners: the ranks that own any filter of a layer. loads: the work of each rank.
    """

    def __init__(self, chain, most, counts):
        self.works, self.most = chain.works.tolist(), most.tolist()
        self.counts = counts.tolist()
        self.owners = [np.flatnonzero(row).tolist() for row in counts]
        self.loads = chain.loads(counts).tolist()

    def move(self, layer, a, b, k):
        """Give k filters of a layer from rank a to rank b."""
        row, owners = self.counts[layer], self.owners[layer]
        row[a] -= k
        if not row[a]:
            owners.remove(a)
        if not row[b]:
            owners.append(b)
        row[b] += k
        self.loads[a] -= k * self.works[layer]
        self.loads[b] += k * self.works[layer]


def average_layer(chain):
    """What the maps of a layer cost to send once, on average; 1 if they cost nothing."""
    return float((chain.filters * chain.costs)[:-1].mean() or 1.0) if len(chain.filters) > 1 else 1.0


def norm(traffic):
    """A smooth function of what each rank sends and receives that is close to the largest."""
    largest = float(traffic.max())
    return largest * float(((traffic / largest) ** NORM).sum()) ** (1 / NORM) if largest > 0 else 0.0


class Volume:
    """The energy "volume": what moves change of it, in units of the average layer."""

    def __init__(self, chain, state):
        self.costs, self.filters = (chain.costs / average_layer(chain)).tolist(), chain.filters.tolist()
        self.counts, self.last = state.counts, len(state.counts) - 1

    def change(self, layer, a, b, k):
        """The energy after `state.move` with these arguments, less that before it."""
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

    def moved(self):
        """The last move whose change was asked for is made."""


class Messages(Volume):
    """The energy "messages": a message costs as much as an average layer, and the volume little."""

    VOLUME = 0.02

    def __init__(self, chain, state):
        super().__init__(chain, state)
        self.owners = state.owners

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


class Largest:
    """The energy "largest": the norm of what the ranks send and receive, which the largest of them rules."""

    def __init__(self, chain, state):
        self.counts = state.counts
        layers = [slice(max(layer - 1, 0), layer + 2) for layer in range(len(chain.filters))]
        self.near = [(part, Chain(chain.filters[part], chain.works[part], chain.costs[part])) for part in layers]
        self.unit = average_layer(chain)
        counts = np.array(state.counts)
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

    def moved(self):
        self.traffic, self.energy = self.next, self.next_energy


ENERGIES = {"volume": Volume, "messages": Messages, "largest": Largest}


def anneal(state, energy, price, moves, random):
    """The counts of least energy, among those in which no rank is too full, that `moves` moves from `state` come upon.

    price: energy for a unit of work that a rank has above its capacity. random: a `Random`. None if there were none.
    """
    uniform, layers, ranks = random.random, range(len(state.counts)), len(state.loads)
    counts, owners, loads, most, works = state.counts, state.owners, state.loads, state.most, state.works
    temperature, cooling = FIRST, (LAST / FIRST) ** (1 / moves)
    excess = sum(max(0.0, load - limit) for load, limit in zip(loads, most))
    tolerance = 1e-9 * sum(most)
    now, best, found = 0.0, float("inf"), None
    if excess <= tolerance:
        best, found = 0.0, np.array(counts)
    for _ in range(moves):
        temperature *= cooling
        layer = int(uniform() * len(layers))
        mine = owners[layer]
        a, where = mine[int(uniform() * len(mine))], uniform()
        # To a rank that owns some of a neighbour or of this layer already; seldom to any other.
        others = (
            owners[layer + 1] if where < 0.35 and layer + 1 in layers
            else mine if where < 0.7
            else owners[layer - 1] if where < 0.9 and layer
            else None
        )  # fmt: skip
        b = int(uniform() * ranks) if others is None else others[int(uniform() * len(others))]
        if a == b:
            continue
        k, load_a, load_b, weight = counts[layer][a], loads[a], loads[b], works[layer]
        if k > 1:
            k = amount(k, load_a - most[a], most[b] - load_b, weight, uniform)
        after_a, after_b = load_a - k * weight, load_b + k * weight
        more = (
            (after_a - most[a] if after_a > most[a] else 0.0) - (load_a - most[a] if load_a > most[a] else 0.0)
            + (after_b - most[b] if after_b > most[b] else 0.0) - (load_b - most[b] if load_b > most[b] else 0.0)
        )  # fmt: skip
        change = energy.change(layer, a, b, k)
        total = change + price * more
        if total <= 0 or uniform() < exp(-total / temperature):
            state.move(layer, a, b, k)
            energy.moved()
            now, excess = now + change, excess + more
            if excess <= tolerance and now < best - 1e-9:
                best, found = now, np.array(counts)
    return found


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
