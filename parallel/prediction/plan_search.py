"""The search for the fastest plan on one grid: a shortest path over the segments of a network.

A *segment* is a layer with weights and the layers behind it up to the next one with weights; a layer with branches is in one
segment as a whole. Between segments the search has a *state*: the shape of the activations, their placements along the axes,
and the order of the axes that shard the samples. Each choice for the next segment leads to one other state, at the price of the
rank's work in between: redistributions, layers, and sums of gradients. After each segment the search has a lower bound for all
plans on its grid, so that a grid is dropped early.
"""

from dataclasses import dataclass

from gridgrad.nn.network_summary import rows
from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.collectives import all_reduce_elements
from gridgrad.parallel.grid.process_grid import BATCH, MODEL
from gridgrad.parallel.placement.placer import Placer
from gridgrad.parallel.placement.plan import weighted, weighted_in
from gridgrad.parallel.plans.place_network import splits
from gridgrad.parallel.plans.plans import FEWEST_BYTES, PLANS, by_axis
from gridgrad.parallel.prediction.cost import local_shape, slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.workload import Workload


class PlanProblem:
    """What the searches on all grids share. shape: of a sample. flops: of each segment, forward for a sample."""

    def __init__(self, net, shape, batch_size, machine, shares=None):
        self.net, self.shape, self.batch_size, self.machine, self.shares = net, shape, batch_size, machine, shares
        self.itemsize = net.dtype.itemsize
        self.segments = segments(net.layers)
        self.parameters = sum(p.size for layer in weighted(net) for p in layer.parameters)
        flops = {row.name: row.flops for row in rows(net, shape)}
        self.flops = [sum(flops.get(leaf.name, 0) for leaf in leaves(run)) for run in self.segments]


@dataclass(frozen=True)
class SegmentCost:
    """The cost of a segment with one choice from one state."""

    seconds: float  # with sums of gradients and update
    seconds_alone: float  # without
    memory: float  # in bytes
    after: tuple  # the state after the segment


class PlanSearch:
    """The search on one grid. sizes: {axis: ranks}. bound: seconds that every plan takes at least, as far as is known."""

    def __init__(self, problem, sizes):
        self.problem, self.sizes = problem, sizes
        asked = PlacementSpec(sizes, FEWEST_BYTES, problem.shares)  # the rank is the same for all plans that are tried
        self.grid = slowest_rank(problem.net, asked, *problem.machine.sharing)
        self._costs = {}  # {(segment, choice, state): SegmentCost}; they do not depend on the price of memory
        self._done, self._alone = 0, {None: 0.0}  # segments done; the least seconds_alone by state
        self.bound = self.arithmetic(0) + self._sums_and_update()

    @property
    def is_complete(self):
        return self._done == len(self.problem.segments)

    def advance(self):
        """Compute the costs of the next segment, and raise the bound."""
        ahead = {}
        for state, total in self._alone.items():
            for _, step in self._ahead(self._done, state):
                ahead[step.after] = min(total + step.seconds_alone, ahead.get(step.after, float("inf")))
        self._alone, self._done = ahead, self._done + 1
        self.bound = max(self.bound, min(ahead.values()) + self.arithmetic(self._done) + self._sums_and_update())

    def plan(self, price):
        """The text of the plan with the smallest sum of seconds and memory times `price`, seconds per byte."""
        states = {None: (0.0, [])}
        for index, segment in enumerate(self.problem.segments):
            ahead, count = {}, len(weighted_in(segment))
            for state, (total, words) in states.items():
                for choice, step in self._ahead(index, state):
                    value = total + step.seconds + price * step.memory
                    if step.after not in ahead or value < ahead[step.after][0]:
                        ahead[step.after] = value, words + [choice] * count
            states = ahead
        ends = []
        for state, (total, words) in states.items():
            step = self._cost([], None, state)
            ends.append((total + step.seconds + price * step.memory, words))
        return ",".join(min(ends)[1])

    def arithmetic(self, index=0):
        """A lower bound for the seconds of the segments from `index` on: their matrix products at peak speed, on all ranks."""
        # three products a layer, of the first one two, because it needs no gradient of its input; if the machine file has
        # tables, only two of each are counted, because an algorithm may save a part of the third
        problem, sizes = self.problem, self.sizes
        samples = -(-problem.batch_size // sizes[BATCH]) * sizes[BATCH] / self.grid.size
        products = 2 * sum(problem.flops[index:])
        if not problem.machine.tables:
            products += sum(problem.flops[max(index, 1) :])
        return products * samples / (problem.machine.peak * 4 / problem.itemsize)

    def _sums_and_update(self):
        """A lower bound for the seconds of gradient sums and update: all parameters are sharded along the axis model."""
        machine, ranks, itemsize = self.problem.machine, self.grid.size, self.problem.itemsize
        held = self.problem.parameters // self.grid.sizes[MODEL]
        group = self.grid.group(*(axis for axis in self.grid.sizes if axis != MODEL))
        sent = all_reduce_elements(held, group.size, group.rank) * itemsize
        sums = machine.collective_seconds("all-reduce", group, ranks, sent)
        return sums + machine.operation_seconds("update", (held,), 1.0, 0, 5 * held * itemsize, itemsize, ranks)

    def _ahead(self, index, state):
        """Yield (choice, SegmentCost) for each choice for the segment with this index. state: before it."""
        segment = self.problem.segments[index]
        kinds = {layer.kind for layer in weighted_in(segment)}
        words = [word for word, plan in PLANS.items() if plan.is_tried(kinds, self.sizes, self.problem.shape)]
        for choice in words[:1] if self.sizes[MODEL] == 1 else words:  # on one rank of the axis model all are the same
            key = index, choice, state
            if key not in self._costs:
                self._costs[key] = self._cost(segment, choice, state)
            yield choice, self._costs[key]

    def _cost(self, segment, choice, state):
        """The SegmentCost of a segment with a choice, from a state. An empty segment brings the outputs to the loss."""
        problem, grid = self.problem, self.grid
        layers = weighted_in(segment)
        shape, start = (state[0], state[1:]) if state else (problem.shape, None)
        plans = by_axis(layers, [choice] * len(layers))
        placer = Placer(grid, plans, shape, splits(grid.sizes, problem.shares), start=start)
        workload = Workload(local_shape(placer.layout, problem.batch_size, grid), problem.batch_size, problem.itemsize)
        workload.first = state is None
        placer.place(segment)
        if not segment:
            placer.finish()
        workload.go(placer.layers)
        alone = workload.seconds(problem.machine, grid.size)
        workload.update(placer.layers, grid)
        after = placer.shape, tuple(placer.at.items()), placer.order
        return SegmentCost(workload.seconds(problem.machine, grid.size), alone, sum(workload.memory_of.values()), after)


def segments(layers):
    """The top-level layers as lists, each from a layer with weights on; the first also has all layers before it."""
    runs = [[]]
    for layer in layers:
        if weighted_in([layer]) and weighted_in(runs[-1]):
            runs.append([])
        runs[-1].append(layer)
    return runs
