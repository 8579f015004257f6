"""The search for the fastest plan on one grid: a shortest path over the segments of a network.

A *segment* is a layer with weights and the layers behind it, up to the next one with weights or with branches. Between segments
the search has a *state*. Each choice for the next segment leads to one other state, at the price of the rank's work in between:
redistributions, layers, and sums of gradients. If the ranks that sum the last gradients of one segment also sum the first ones
of the next, one collective does both, which saves its latency.

A layer with branches is a segment of its own. Its branches are searched one after another, each from the state in front of the
layer; the first one may end in any state, and the others have to end in the same. In front of the network is the state that the
choice for the first layer with weights asks for.

After each segment the search has a lower bound for all plans on its grid, so that a grid is dropped early.
"""

from dataclasses import dataclass
from functools import partial
from math import prod

from gridgrad.nn.network_summary import rows
from gridgrad.nn.sequence import leaves, output_shape
from gridgrad.parallel.grid.collectives import all_reduce_elements
from gridgrad.parallel.grid.process_grid import BATCH, MODEL
from gridgrad.parallel.placement.layer_kinds import kind_of
from gridgrad.parallel.placement.placer import Placer
from gridgrad.parallel.placement.plan import weighted, weighted_in
from gridgrad.parallel.plans.place_network import splits
from gridgrad.parallel.plans.plans import FEWEST_BYTES, PLANS, by_axis
from gridgrad.parallel.prediction.cost import slowest_rank
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.workload import Workload, local_shape

NOT_COMPARED = "name", "parameters", "buffers"  # arrays are compared by the other attributes that hold them


@dataclass(eq=False)
class Segment:
    """Layers that run one after another, or one layer whose branches are searched."""

    layers: list
    kind: int  # equal for segments with equal costs
    branches: list  # of lists of Segments


@dataclass(eq=False)
class State:
    """How the activations between two segments are placed, as a Placer says it."""

    shape: tuple
    at: tuple  # the items of {axis: placement}
    order: tuple
    is_first: bool  # no layer in front has parameters


@dataclass(frozen=True)
class SegmentCost:
    """The cost of a segment with one choice from one state."""

    seconds: float  # with sums of gradients and update
    seconds_alone: float  # without
    memory: float  # in bytes
    after: State
    summed: list  # the axes whose ranks sum the gradients of its first and of its last parameter; empty without any


class PlanProblem:
    """What the searches on all grids share. shape: of a sample. flops: of each segment, forward for a sample."""

    def __init__(self, net, shape, batch_size, machine, shares=None):
        self.net, self.shape, self.batch_size, self.machine, self.shares = net, shape, batch_size, machine, shares
        self.itemsize, self._kinds = net.dtype.itemsize, {}
        self.segments = self._segments(net.layers)
        self.parameters = sum(p.size for layer in weighted(net) for p in layer.parameters)
        flops = {row.name: row.flops for row in rows(net, shape)}
        self.flops = [sum(flops.get(leaf.name, 0) for leaf in leaves(segment.layers)) for segment in self.segments]

    def _segments(self, layers):
        """The Segments of layers; the first also has what is before its layer with weights."""
        runs, searched = [[]], []
        for layer in layers:
            has_weights = bool(weighted_in([layer]))
            if has_weights and kind_of(layer).joins_whole is not None:
                searched.append(layer)
            if layer in searched or has_weights and weighted_in(runs[-1]) or runs[-1] and runs[-1][-1] in searched:
                runs.append([])
            runs[-1].append(layer)
        segments = []
        for run in filter(None, runs):
            kind = self._kinds.setdefault(tuple(map(alike, run)), len(self._kinds))
            branches = run[0].children if run[0] in searched else ()
            segments.append(Segment(run, kind, [self._segments(branch) for branch in branches]))
        return segments

    def arithmetic(self, sizes, index=0):
        """A lower bound for the seconds of the segments from `index` on: their products at peak speed, on all ranks."""
        # three products a layer, of the first one two, because it needs no gradient of its input; if the machine file has
        # tables, only two of each are counted, because an algorithm may save a part of the third
        samples = -(-self.batch_size // sizes[BATCH]) * sizes[BATCH] / prod(sizes.values())
        products = 2 * sum(self.flops[index:])
        if not self.machine.tables:
            products += sum(self.flops[max(index, 1) :])
        return products * samples / (self.machine.peak * 4 / self.itemsize)


class PlanSearch:
    """The search on one grid. sizes: {axis: ranks}. bound: seconds that every plan takes at least, as far as is known."""

    # A way to a state is (the sum of the costs, the words of the layers with weights). The best ways are kept by (state, axes
    # whose ranks sum the last gradients). price: seconds for a byte of memory; None: costs without gradients, for the bound.

    def __init__(self, problem, sizes):
        self.problem, self.sizes, self.splits = problem, sizes, splits(sizes, problem.shares)
        asked = PlacementSpec(sizes, FEWEST_BYTES, problem.shares)  # the rank is the same for all plans that are tried
        self.grid = slowest_rank(problem.net, asked, *problem.machine.sharing)
        self._costs, self._states = {}, {}  # {(what, words, State before): SegmentCost}, and the States that there are
        self._first = weighted(problem.net)[0]
        self._starts = {}  # {words of the first layer with weights: the State in front of the network}
        for words in self._choices([self._first]):
            placer = Placer(self.grid, by_axis([self._first], words), problem.shape, self.splits)
            self._starts[words] = self._state(placer, True)
        self._begins = {(state, None): (0.0, ()) for state in self._starts.values()}
        self._done, self._ways = 0, self._begins  # behind the segments that are done
        self.bound = problem.arithmetic(sizes) + self._sums_and_update()

    @property
    def is_complete(self):
        return self._done == len(self.problem.segments)

    def advance(self):
        """Compute the costs of the next segment, and raise the bound."""
        self._ways = self._through([self.problem.segments[self._done]], self._ways, None)
        self._done += 1
        least = min(seconds for seconds, _ in self._ways.values())
        self.bound = max(self.bound, least + self.problem.arithmetic(self.sizes, self._done) + self._sums_and_update())

    def plan(self, price):
        """The text of the plan with the smallest sum of seconds and memory times `price`, seconds per byte."""
        ways = self._through(self.problem.segments, self._begins, price)
        ends = self._behind(ways, "output", lambda placer, _: placer.finish(), price)
        return ",".join(min(ends.values())[1])

    def _sums_and_update(self):
        """A lower bound for the seconds of gradient sums and update: all parameters are sharded along the axis model."""
        machine, ranks, itemsize = self.problem.machine, self.grid.size, self.problem.itemsize
        held = self.problem.parameters // self.grid.sizes[MODEL]
        group = self.grid.group(*(axis for axis in self.grid.sizes if axis != MODEL))
        sent = all_reduce_elements(held, group.size, group.rank) * itemsize
        sums = machine.collective_seconds("all-reduce", group, ranks, sent)
        return sums + machine.operation_seconds("update", (held,), 1.0, 0, 5 * held * itemsize, itemsize, ranks)

    def _saved(self, axes):
        """Seconds that one sum of gradients along these axes takes less than two of half the size."""
        machine, group = self.problem.machine, self.grid.group(*axes)
        wait = machine.core.get("wait", 0.0) if group.size > 1 else 0.0
        return machine.collective_seconds("all-reduce", group, self.grid.size, 0) + wait

    # ----- from ways to ways

    def _through(self, segments, ways, price):
        """The best ways through segments."""
        for segment in segments:
            if segment.branches:
                ways = self._through_branches(segment, ways, price)
            else:
                ways = self._behind(ways, segment.kind, lambda placer, _: placer.place(segment.layers), price, segment.layers)  # noqa: B023
        return ways

    def _through_branches(self, segment, ways, price):
        """The best ways through a layer with branches."""
        (layer,), (first, *others), found = segment.layers, segment.branches, {}
        for start, begins in by_state(ways):
            end_first = lambda placer, _: placer.end_first(layer.name, kind_of(layer).joins_whole)  # noqa: E731
            for end, ends in by_state(self._behind(self._through(first, begins, price), (layer, "first"), end_first, price)):
                end_as = lambda placer, _: placer.end_as(dict(end.at), end.order, layer.name)  # noqa: B023, E731
                for branch in others:
                    again = {(start, summed): way for (_, summed), way in ends.items()}
                    ends = self._behind(self._through(branch, again, price), (layer, end), end_as, price)
                for place, way in self._behind(ends, (layer, "join"), partial(join, layer, start), price).items():
                    found[place] = min(found.get(place, way), way)
        return found

    def _behind(self, ways, what, act, price, layers=()):
        """The best ways behind what `act` adds to a Placer and a Workload, with each choice for `layers`. what: names it."""
        found, layers = {}, weighted_in(layers)
        choices = self._choices(layers)
        for (state, summed), (value, before) in ways.items():
            for words in choices:
                if layers and layers[0] is self._first and self._starts.get(words[:1], state) is not state:
                    continue
                key = what, words, state
                if key not in self._costs:
                    self._costs[key] = self._cost(state, act, by_axis(layers, words))
                cost, last = self._costs[key], summed
                if price is None:
                    ahead = value + cost.seconds_alone
                else:
                    ahead = value + (cost.seconds + price * cost.memory)
                    if cost.summed:
                        ahead -= self._saved(summed[0]) if cost.summed[0] == summed else 0.0
                        last = cost.summed[-1]
                if (cost.after, last) not in found or ahead < found[cost.after, last][0]:
                    found[cost.after, last] = ahead, before + words
        return found

    def _choices(self, layers):
        """The words for these layers that are tried, the same for all of them."""
        kinds = {layer.kind for layer in layers}
        words = [word for word, plan in PLANS.items() if plan.is_tried(kinds, self.sizes, self.problem.shape)]
        are_equal = self.sizes[MODEL] == 1 or not layers  # on one rank of the axis model
        return [len(layers) * (word,) for word in (words[:1] if are_equal else words)]

    def _state(self, placer, is_first):
        """The State at which a Placer is; the same object for the same state."""
        found = placer.shape, tuple(placer.at.items()), placer.order, is_first
        return self._states.setdefault(found, State(*found))

    def _cost(self, state, act, plans):
        """The SegmentCost of what `act` adds to a Placer and a Workload from a state."""
        problem, grid = self.problem, self.grid
        placer = Placer(grid, plans, state.shape, self.splits, start=(state.at, state.order))
        workload = Workload(local_shape(placer.layout, problem.batch_size, grid), problem.batch_size, problem.itemsize)
        workload.first = state.is_first
        act(placer, workload)
        workload.go(placer.layers)
        alone, first = workload.seconds(problem.machine, grid.size), len(workload.works)
        workload.update(placer.layers, grid)
        seconds = alone + workload.seconds(problem.machine, grid.size, first)
        memory = sum(workload.memory_of.values())
        summed = [p.layout.sharing for leaf in leaves(placer.layers) for p in leaf.parameters]
        return SegmentCost(seconds, alone, memory, self._state(placer, workload.first), summed[:1] + summed[-1:])


def join(layer, start, placer, workload):
    """Add what runs behind the branches of a layer, which began in the State `start`."""
    shapes = [output_shape(branch, start.shape) for branch in layer.children]
    workload.branches = lambda layer: shapes  # the work in them has been counted
    workload.first = start.is_first
    workload.add(layer)
    workload.first = False
    placer.shape = layer.output_shape(start.shape)


def by_state(ways):
    """[(state, the ways to it)]."""
    found = {}
    for (state, summed), way in ways.items():
        found.setdefault(state, {})[state, summed] = way
    return found.items()


def alike(layer):
    """What the costs of a layer depend on, equal for layers that differ in nothing but names; else the layer itself."""
    values = (getattr(value, "shape", value) for name, value in vars(layer).items() if name not in NOT_COMPARED)
    found = type(layer), *values
    try:
        hash(found)
    except TypeError:
        return layer
    return found
