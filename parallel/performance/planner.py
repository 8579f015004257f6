"""The planner: which grid, and for each layer which placement, makes the fastest training step.

For one grid the best placement of all layers is a shortest path. A *segment* is a layer with weights and what follows it up to
the next one (a layer with branches, all of it). Between segments the activations lie in some state: their placements along the
axes, and what stays together. From each state each choice for the next segment leads to one other state, at the price of the
work that the rank does on the way: the redistributions that the choice needs, the layers, and the sums of their gradients.
Everything is placed by `parallel/placement/placer.py` and priced by `parallel/performance/cost.py`, as it would run.

Grids are looked at in the order of a lower bound of their time, until the bound of the next one is above the best plan's time.
Where a plan needs more memory than a rank may have, bytes are given a price, which is raised until they fit.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from nn import Conv2d
from nn.summary import rows
from parallel.performance.cost import Cost, busiest, local_shape
from parallel.grid.collectives import all_reduce_elements
from parallel.grid.process_grid import AXES
from parallel.placement.placer import Placer
from parallel.placement.place_network import checked, splits
from parallel.placement.plans import FEWEST, choices, weighted_in
from parallel.performance.workload import STATE, Walk

TIE = 0.03  # by which predictions must differ to count: the model is no more exact than that
BATCH_SIZE = 128  # samples of a global minibatch, where nobody says how many
PRICES = (0.0, *(10.0**exponent for exponent in range(-12, -5)))  # seconds for each byte of memory, to be tried in turn


class NoRoom(ValueError):
    """No plan fits the memory of a rank."""


@dataclass
class Candidate:
    """A grid with its best plan. cost: of a step. bound: seconds that the grid takes at least; all there is of one that was
    not looked at. reason: why it can't be chosen, or nothing."""

    sizes: dict
    bound: float
    cost: Cost | None = None
    reason: str = ""

    @property
    def grid(self):
        """As on the command line."""
        return ",".join(f"{axis}={size}" for axis, size in self.sizes.items() if size > 1) or "batch=1"

    @property
    def plan(self):
        """As on the command line: one word if all layers have the same."""
        words = self.cost.placed.plan
        return words[0] if len(set(words)) == 1 else ",".join(words)

    @property
    def seconds(self):
        return self.cost.seconds if self.cost else math.inf


class Planner:
    """net: a serial Sequential. ranks: how many. batch_size: of the global minibatch. machine: a Machine.

    memory: bytes that a rank may use, by default its share of a node's; counted for SGD with momentum, every rank updating all
    of its parameters. grid, plan: where they are given, sizes by axis and a text as of `parallelize`.
    Raises ValueError as `parallelize` does.
    """

    def __init__(self, net, ranks, batch_size, machine, memory=None, grid=None, plan=None, shares=None):
        self.layers, self.shape = checked(net)
        self.net, self.ranks, self.batch_size, self.machine = net, ranks, batch_size, machine
        self.memory = memory or machine.memory(ranks)
        self.plan, self.shares, self.segments = plan, shares, segments(net.layers)
        self.ranks_per_node = machine.node["ranks"]
        self.grids = [{axis: grid.get(axis, 1) for axis in AXES}] if grid else list(self._grids())

    def best(self, shown=5):
        """(the Candidate that is chosen, the others in order, up to `shown` of them looked at to the end).

        Of those that are about as fast as the fastest one, the one with the fewest collectives is chosen: ranks wait for
        each other in each of them, which the model does not know.

        NoRoom if there is none that fits the memory.
        """
        candidates = sorted((Candidate(sizes, self._bound(sizes)) for sizes in self.grids), key=lambda c: c.bound)
        best, looked_at = math.inf, 0
        for candidate in candidates:
            if candidate.bound > (1 + TIE) * best and looked_at > shown:
                candidate.reason = "its products and sums alone take longer"
                continue
            looked_at += 1
            self._look_at(candidate)
            if not candidate.reason:
                best = min(best, candidate.seconds)
        good = sorted((c for c in candidates if c.cost and not c.reason), key=lambda c: c.seconds)
        if not good:
            raise NoRoom(self._no_room(candidates))
        alike = [candidate for candidate in good if candidate.seconds <= (1 + TIE) * good[0].seconds]
        chosen = min(alike, key=lambda candidate: candidate.cost.collectives)
        others = [c for c in good if c is not chosen] + [c for c in candidates if c.cost and c.reason]
        return chosen, others + [c for c in candidates if not c.cost]

    # ----- grids

    def _grids(self):
        """The sizes of all grids without a rank that has nothing to do, as far as there are any; else of all."""
        has_images = any(layer.kind == "conv" for layer in self.layers)
        height = self.shape[0] if has_images else 1
        width = max(layer.outputs for layer in self.layers)
        every = list(factors(self.ranks, 3 if has_images else 2))
        useful = [(b, m, h) for b, m, h in every if b <= self.batch_size and h <= height and m <= max(width, self.batch_size)]
        for b, m, h in useful or every:
            if h > 1 and "height" in (self.plan or ""):
                continue  # images are cut along one axis alone
            yield {"batch": b, "height": h, "model": m}

    def _bound(self, sizes):
        """Seconds that no plan for a grid can take less than: two of the three products of each layer at full speed, spread
        over all ranks; and, of the parameters spread over the model axis, the sums of gradients and the update."""
        samples = -(-self.batch_size // sizes["batch"]) / (sizes["height"] * sizes["model"])
        held, itemsize = self._parameters // sizes["model"], self.net.dtype.itemsize
        group = busiest(sizes, self.ranks_per_node, self.shares).group("batch", "height")
        products = 2 * self._flops * samples / (self.machine.peak * 4 / itemsize)
        sums = self.machine.collective_seconds("all-reduce", group, self.ranks, all_reduce_elements(held, group.size, group.rank) * itemsize)
        update = self.machine.operation_seconds("update", (held,), 1.0, 0, 5 * held * itemsize, itemsize, self.ranks)
        return products + sums + update

    @cached_property
    def _parameters(self):
        return sum(p.size for layer in self.layers for p in layer.parameters)

    @cached_property
    def _flops(self):
        """Of a forward pass of one sample."""
        return sum(row.flops for row in rows(self.net, self.shape))

    # ----- one grid

    def _look_at(self, candidate):
        """Find the best plan for a grid that fits the memory: the dearest bytes say at once whether there is any."""
        free, *between, dearest = PRICES
        for price in (free, dearest):
            candidate.cost = self._best_plan(candidate.sizes, price)
            if candidate.cost.memory <= self.memory:
                break
        else:
            candidate.reason = f"needs {candidate.cost.memory / 2**30:.2f} GiB a rank, of {self.memory / 2**30:.2f}"
            return
        if price == dearest:
            costs = (self._best_plan(candidate.sizes, price) for price in between)
            candidate.cost = next((cost for cost in costs if cost.memory <= self.memory), candidate.cost)

    def _best_plan(self, sizes, price):
        """The Cost of the plan that is the fastest on a grid, bytes of memory having a price in seconds."""
        words = self.plan or self._shortest_path(sizes, price)
        return Cost(self.net, busiest(sizes, self.ranks_per_node, self.shares), words, self.batch_size, self.machine, self.shares)

    def _shortest_path(self, sizes, price):
        """The text of the plan whose seconds, and bytes of memory times their price, are the fewest."""
        outline = busiest(sizes, self.ranks_per_node, self.shares)
        states = {None: (0.0, [])}
        for segment in self.segments:
            ahead = {}
            for state, (total, words) in states.items():
                for choice in self._choices(segment, sizes):
                    value, after = self._step(segment, choice, state, outline, price)
                    if after not in ahead or total + value < ahead[after][0]:
                        ahead[after] = total + value, words + [choice] * len(weighted_in(segment))
            states = ahead
        ends = [(total + self._step([], None, state, outline, price)[0], words) for state, (total, words) in states.items()]
        return ",".join(min(ends)[1])

    def _choices(self, segment, sizes):
        """The words that a plan may have for the layers of a segment."""
        layers = weighted_in(segment)
        if sizes["model"] == 1:
            return FEWEST[:1]
        strips = sizes["height"] == 1 and all(layer.kind == "conv" for layer in layers)
        return (*FEWEST, "replicate", "height") if strips else (*FEWEST, "replicate")

    def _step(self, segment, choice, state, outline, price):
        """(price, state behind) of a segment with a choice, from a state; of none: of what brings the outputs to the loss."""
        layers = weighted_in(segment)
        shape, at, order = state or (self.shape, None, None)
        chosen = choices(layers, [choice] * len(layers))
        placer = Placer(outline, chosen, shape, splits(outline.sizes, self.shares), at=at, order=order)
        walk = Walk(local_shape(placer.layout, self.batch_size, outline), self.batch_size, self.net.dtype.itemsize)
        walk.first = state is None
        placer.place(segment)
        if not segment:
            placer.finish()
        walk.go(placer.layers)
        walk.update(placer.layers, outline)
        seconds = sum(work.seconds(self.machine, outline.size, walk.itemsize) for work in walk.works)
        return seconds + price * walk.memory, (placer.shape, tuple(placer.at.items()), placer.order)

    def _no_room(self, candidates):
        """What to say where no plan fits: which layer is the largest, where it is cut the most."""
        least = min((c for c in candidates if c.cost), key=lambda c: c.cost.memory)
        layer = max(self.layers, key=lambda layer: sum(p.size for p in layer.parameters))
        most = sum(p.size for p in layer.parameters) * self.net.dtype.itemsize * (2 + STATE)
        return (
            f"no plan for {self.ranks} ranks fits {self.memory / 2**30:.3g} GiB a rank: the least, grid {least.grid}, needs "
            f"{least.cost.memory / 2**30:.3g}; the largest layer is {layer.name} {layer!r}, whose parameters, gradients and "
            f"momentum take {most / 2**30:.3g} GiB over all ranks: use more ranks, more memory, or a smaller batch"
        )


def why_lost(other, chosen):
    """In words, what makes one Candidate slower than another."""
    if other.reason:
        return other.reason
    if other.seconds < chosen.seconds:
        counts = f"{other.cost.collectives} collectives instead of {chosen.cost.collectives}"
        return f"{counts}, for {milliseconds(chosen.seconds - other.seconds)} that the model may be wrong about"
    mine, theirs = other.cost.parts, chosen.cost.parts
    names = {
        "compute": "computing", "update": "the update", "gradients": "sums of gradients", "activations": "moving activations"
    }  # fmt: skip
    more = sorted(((mine[part] - theirs[part], name) for part, name in names.items()), reverse=True)
    worse = [f"{milliseconds(value)} more for {name}" for value, name in more if value > 0.05 * abs(more[0][0])][:2]
    better = [f"{milliseconds(-value)} less for {name}" for value, name in more[::-1] if -value > 0.05 * abs(more[0][0])][:1]
    return ", ".join(worse + better) or "no difference that counts"


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g} ms"


def segments(layers):
    """The top layers in runs: each begins with one that has weights, but the first, which has all before it too."""
    runs = [[]]
    for layer in layers:
        if weighted_in([layer]) and weighted_in(runs[-1]):
            runs.append([])
        runs[-1].append(layer)
    return runs


def factors(n, count):
    """All three whole numbers whose product is n; the last one is 1 where `count` is 2."""
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    for first in divisors:
        if count == 2:
            yield first, n // first, 1
        else:
            yield from ((first, second, n // first // second) for second in divisors if (n // first) % second == 0)
