"""The search for the fastest plan on one grid: a shortest path over the segments of a network.

A *segment* is a layer with weights and what follows it up to the next one (a layer with branches, all of it). Between segments
the activations lie in some state: their placements along the axes, and what stays together. From each state each choice for
the next segment leads to one other state, at the price of the work that the rank does on the way: the redistributions that the
choice needs, the layers, and the sums of their gradients.

The search advances one segment at a time, and knows after each of them a lower bound of the time of every plan of its grid. So
a grid can be given up as soon as its first layers show that it cannot win.
"""

from dataclasses import dataclass

from nn.sequence import leaves
from nn.summary import rows
from parallel.grid.collectives import all_reduce_elements
from parallel.performance.cost import busiest, local_shape
from parallel.performance.workload import Workload
from parallel.placement.place_network import splits
from parallel.placement.placer import Placer
from parallel.placement.plans import CHOSEN, FEWEST, choices, weighted, weighted_in


class Problem:
    """What the searches of all grids share: the network in segments, and what each of them computes at least.

    net: a serial Sequential. shape: of a sample. batch_size: of the global minibatch. machine: a Machine.
    shares: see `parallelize`.
    flops: of one sample's forward pass, one number a segment. parameters: how many the layers with a choice have.
    """

    def __init__(self, net, shape, batch_size, machine, shares=None):
        self.net, self.shape, self.batch_size, self.machine, self.shares = net, shape, batch_size, machine, shares
        self.itemsize = net.dtype.itemsize
        self.segments = segments(net.layers)
        self.parameters = sum(p.size for layer in weighted(net) for p in layer.parameters)
        self.flops = flops_of_segments(net, self.segments, shape)


@dataclass(frozen=True)
class Step:
    """The cost of a segment with one choice, from one state.

    seconds: of its work, with gradient reductions and update. seconds_alone: without these two. memory: bytes that it needs.
    after: the state after it.
    """

    seconds: float
    seconds_alone: float
    memory: float
    after: tuple


class PlanSearch:
    """The search on one grid. sizes: ranks along each axis. bound: a lower bound in seconds of every plan, as known so far."""

    def __init__(self, problem, sizes):
        self.problem, self.sizes = problem, sizes
        self.outline = busiest(sizes, problem.machine.node["ranks"], problem.shares)
        self._steps = {}  # Steps by segment, choice and state: they are the same whatever memory is worth
        self._done, self._alone = 0, {None: 0.0}  # segments looked at; the least seconds_alone by state
        self.bound = self._rest(0) + self._sums_and_update()

    @property
    def is_complete(self):
        """Whether all segments were looked at."""
        return self._done == len(self.problem.segments)

    def advance(self):
        """Look at one segment more, and raise the bound by what it says."""
        ahead = {}
        for state, total in self._alone.items():
            for _, step in self._ahead(self._done, state):
                ahead[step.after] = min(total + step.seconds_alone, ahead.get(step.after, float("inf")))
        self._alone, self._done = ahead, self._done + 1
        self.bound = max(self.bound, min(ahead.values()) + self._rest(self._done) + self._sums_and_update())

    def plan(self, price):
        """The text of the plan whose seconds, and bytes of memory times their price in seconds, are the fewest."""
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
            step = self._step([], None, state)
            ends.append((total + step.seconds + price * step.memory, words))
        return ",".join(min(ends)[1])

    # ----- lower bounds

    def _rest(self, index):
        """Seconds that the segments from `index` on take at least: their products at full speed, spread over all ranks.

        A layer has three products, the first one two. Where tables were measured, two are counted: an algorithm may save a part
        of the third, the gradient of the input.
        """
        problem, sizes = self.problem, self.sizes
        samples = -(-problem.batch_size // sizes["batch"]) * sizes["batch"] / self.outline.size
        products = 2 * sum(problem.flops[index:])
        if not problem.machine.tables:
            products += sum(problem.flops[max(index, 1) :])
        return products * samples / (problem.machine.peak * 4 / problem.itemsize)

    def _sums_and_update(self):
        """Seconds that the sums of gradients and the update take at least: with parameters spread over the model axis."""
        machine, ranks, itemsize = self.problem.machine, self.outline.size, self.problem.itemsize
        sizes = self.outline.sizes
        held, group = self.problem.parameters // sizes[CHOSEN], self.outline.group(*(axis for axis in sizes if axis != CHOSEN))
        sums = machine.collective_seconds(
            "all-reduce", group, ranks, all_reduce_elements(held, group.size, group.rank) * itemsize
        )
        return sums + machine.operation_seconds("update", (held,), 1.0, 0, 5 * held * itemsize, itemsize, ranks)

    # ----- steps

    def _ahead(self, index, state):
        """(choice, Step) of each choice for a segment, from a state."""
        segment = self.problem.segments[index]
        for choice in self._choices(segment):
            key = index, choice, state
            if key not in self._steps:
                self._steps[key] = self._step(segment, choice, state)
            yield choice, self._steps[key]

    def _choices(self, segment):
        """The choices that are considered for the layers of a segment.

        "height" on the model axis needs convolutions, an undivided axis height, and at most as many ranks as the images have
        rows. With more ranks the plan would still be valid, but ranks without a row only add collectives.
        """
        model = self.sizes["model"]
        if model == 1:
            return FEWEST[:1]
        convolutions = all(layer.kind == "conv" for layer in weighted_in(segment))
        by_height = convolutions and self.sizes["height"] == 1 and model <= self.problem.shape[0]
        return (*FEWEST, "replicate", "height") if by_height else (*FEWEST, "replicate")

    def _step(self, segment, choice, state):
        """The Step of a segment with a choice, from a state; of no segment: of what brings the outputs to the loss."""
        problem, outline = self.problem, self.outline
        layers = weighted_in(segment)
        shape, at, order = state or (problem.shape, None, None)
        chosen = choices(layers, [choice] * len(layers))
        placer = Placer(outline, chosen, shape, splits(outline.sizes, problem.shares), at=at, order=order)
        workload = Workload(local_shape(placer.layout, problem.batch_size, outline), problem.batch_size, problem.itemsize)
        workload.first = state is None
        placer.place(segment)
        if not segment:
            placer.finish()
        workload.go(placer.layers)
        alone = self._seconds(workload.works)
        workload.update(placer.layers, outline)
        after = placer.shape, tuple(placer.at.items()), placer.order
        return Step(self._seconds(workload.works), alone, workload.memory, after)

    def _seconds(self, works):
        return sum(work.seconds(self.problem.machine, self.outline.size, self.problem.itemsize) for work in works)


def segments(layers):
    """The top layers in runs: each begins with one that has weights, but the first, which has all before it too."""
    runs = [[]]
    for layer in layers:
        if weighted_in([layer]) and weighted_in(runs[-1]):
            runs.append([])
        runs[-1].append(layer)
    return runs


def flops_of_segments(net, runs, shape):
    """Operations of the forward pass of one sample, one number a segment."""
    flops = {row.name: row.flops for row in rows(net, shape)}
    return [sum(flops.get(leaf.name, 0) for leaf in leaves(run)) for run in runs]
