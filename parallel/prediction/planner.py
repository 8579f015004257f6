"""The planner: which grid, and for each layer which placement, makes the fastest training step.

For one grid the best placement of all layers is a shortest path over the network (`plan_search.py`). All grids are searched at
once: the search with the lowest bound of its time goes on by one segment of the network, which raises its bound, until the
plans that are complete are faster than every other grid can be. Where a plan needs more memory than a rank may have, bytes are
given a price, which is raised until they fit.

The plan "hypergraph" takes a partitioner seconds for each number of ranks along the axis `model`. It can win only by sending
less, so it is looked at only where the fastest other plan mostly sends (`mostly_sends`). Pipelines are looked at if the caller
asks for that. The ranks of a stage have the grid and the plan that are the best for so many ranks alone. Schedules with the
lowest bounds are played first, until no other can be faster: passes spread evenly over the ranks, or the longest layer alone.
Micro-batches have other statistics in BatchNorm than minibatches, so a network with such layers becomes a pipeline only where
that is asked for.

Candidates whose predicted times differ by less than the machine file or the model is uncertain count as equally fast. Among
them a fixed order decides, so that two measurements of one machine lead to the same choice (`order`).
"""

import heapq
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from operator import itemgetter

from gridgrad.nn import BatchNorm
from gridgrad.parallel.grid.process_grid import AXES, BATCH, HEIGHT, LAYER_AXES, MODEL, STAGE
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.placement.plan import OUTPUTS, weighted_in
from gridgrad.parallel.plans.hypergraph import HYPERGRAPH, Owners
from gridgrad.parallel.plans.place_network import checked
from gridgrad.parallel.plans.plans import FEWEST_BYTES, PLANS, plans_of, words_of
from gridgrad.parallel.prediction.cost import Cost, StepPrediction, cost_of_slowest_rank, costs_of_ranks, played
from gridgrad.parallel.prediction.pipeline_cost import PipelinePrediction, Pipelines, layer_costs, pipeline_step_time
from gridgrad.parallel.prediction.placement_spec import OPEN, PlacementSpec
from gridgrad.parallel.prediction.plan_search import PlanProblem, PlanSearch
from gridgrad.parallel.prediction.workload import memory_of

TOLERANCE = 0.03  # predictions that differ by less, relative, count as equal: the model is no more exact than that
BATCH_SIZE = 128  # samples of a global minibatch, where nobody says how many
WORTH = 5e-3  # seconds of communication in a step that a partition must be able to save: it takes seconds to find one
MOST_PARTS = 16  # of partitions that nobody asked for
MOST_RANKS, MOST_STAGES = 512, 16  # of pipelines that nobody asked for: each number of stages needs a search of its own
SCHEDULES = "zb-h1", "1f1b", "interleaved:2"
MULTIPLES = 1, 2, 4  # micro-batches for each stage
PRICES = (0.0, *(10.0**exponent for exponent in range(-12, -5)))  # of a byte of memory in seconds, tried in turn


@dataclass
class Candidate:
    """A grid with its best plan."""

    sizes: dict  # {axis: ranks}
    bound: float  # a lower bound in seconds of a step with any plan on this grid
    cost: Cost | None = None  # of the plan; of a pipeline as if one stage had all; None where the grid was given up before
    reason: str = ""  # why it cannot be chosen
    played: StepPrediction | None = None  # of all ranks, where they have different work: "hypergraph", or a pipeline
    owners: Owners | None = None  # of the plan "hypergraph", where `cost` is that of the rank that bounds the step

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
    def step(self):
        """The StepPrediction; None where the grid was given up."""
        return self.played or self.cost and self.cost.prediction

    @property
    def seconds(self):
        return self.step.seconds if self.step else math.inf

    @property
    def fits(self):
        """Whether it has a plan that can be chosen."""
        return bool(self.cost and not self.reason)

    @property
    def pipelined(self):
        """The PipelinePrediction, or None if there is no pipeline."""
        return self.played if isinstance(self.played, PipelinePrediction) else None

    @property
    def pipelining(self):
        """The fields of the Pipelines that make the pipeline; {} if there is none."""
        found = self.pipelined
        return {"pipeline": found.pipeline, "micro_batches": found.micro_batches, "cuts": found.cuts} if found else {}


def order(candidate):
    """What orders Candidates that are equally fast, and depends on no measurement."""
    # Pipelines come last, because their predictions leave out the most. Then the fewest collectives come first, in which ranks
    # wait for each other; the fewest axes; and the most ranks along batch, on which every network trains.
    sizes = candidate.sizes
    most = [-sizes.get(axis, 1) for axis in (*LAYER_AXES, STAGE)]
    axes, pipeline = sum(size > 1 for size in sizes.values()), candidate.pipelining.get("pipeline", "")
    return candidate.pipelined is not None, candidate.step.bounding.collectives, axes, most, pipeline


class NoRoom(ValueError):
    """No plan fits the memory of a rank."""


class Planner:
    """Finds the grid and the plan with the fastest predicted step. asked: a PlacementSpec, by default with a rank's share of
    the node's memory, for `memory_of`. partition(ranks): Owners; without it there is no plan "hypergraph"."""

    def __init__(self, net, ranks, batch_size, machine, asked=OPEN, partition=None):
        self.layers, self.shape = checked(net)
        self.net, self.ranks, self.batch_size, self.machine = net, ranks, batch_size, machine
        self.memory = asked.memory or machine.memory(ranks)
        self.plan, self.shares, self.partition = asked.plan, asked.shares, partition
        self.plans = plans_of(words_of(self.plan, self.layers)) if self.plan else []
        self.limit = 1 + max(TOLERANCE, machine.uncertainty)  # times up to this one, relative to the shortest, count as equal
        self.pipelines, self.grid = asked.pipelines, asked.grid
        self.problem = PlanProblem(net, self.shape, batch_size, machine, asked.shares)
        self.grids = [{axis: self.grid.get(axis, 1) for axis in AXES}] if self.grid else list(self._grids())
        self.stages = self._stages()

    def best(self, shown=5, progress=lambda: None):
        """(the Candidate that is chosen, the others in order: the `shown` fastest ones with their plans, and the rest).
        progress: called once for each of the `steps` that the planning takes at the most. NoRoom if none fits the memory."""
        if self._must_be_pipeline:
            candidates = list(self._pipelined(math.inf, progress))
            if not candidates:
                raise ValueError(f"cuts {','.join(map(str, self.pipelines.cuts))}: no pipeline here has as many chunks")
        elif any(plan.needs_owners for plan in self.plans):
            candidates = list(self._partitioned())
            if not candidates:
                where = "a grid with several ranks along the axis model and none along height"
                raise ValueError(f"plan '{self.plan}' needs {where}")
        else:
            candidates = self._searched(shown, progress)
            fastest = min((c for c in candidates if c.fits), key=lambda c: c.seconds, default=None)
            if self.partition and self.plan is None and (not fastest or mostly_sends(fastest.cost)):
                with suppress(ValueError):  # no partitioner is installed, or there is no hypergraph of such a network
                    candidates += self._partitioned()
            candidates += self._pipelined(min((c.seconds for c in candidates if c.fits), default=math.inf), progress)
        return self._ranked(candidates)

    def _searched(self, shown, progress):
        """A Candidate for each grid."""
        number, heap, candidates, good = count(), [], [], []  # number: which of several equal ones in the heap is the first
        for sizes in self.grids:
            search = PlanSearch(self.problem, sizes)
            candidates.append(Candidate(sizes, search.bound))
            heapq.heappush(heap, (search.bound, next(number), search, candidates[-1]))
        while heap:
            bound, _, search, candidate = heapq.heappop(heap)
            if len(good) > shown and bound > self.limit * good[0].seconds:
                break
            if candidate.cost:
                good.append(candidate)
                continue
            progress()
            if self.plan is None and not search.is_complete:
                search.advance()
                candidate.bound = search.bound
                heapq.heappush(heap, (search.bound, next(number), search, candidate))
                continue
            self._complete(candidate, search)
            if not candidate.reason:
                heapq.heappush(heap, (candidate.seconds, next(number), search, candidate))
        return candidates

    def _partitioned(self):
        """Yield a Candidate with the plan "hypergraph" for each grid that may have it."""
        found = {}  # {ranks: Owners}
        for sizes in self.grids:
            ranks = sizes[MODEL]
            if not PLANS[HYPERGRAPH].fits(sizes) or ranks == 1 or ranks > MOST_PARTS and self.plan is None:
                continue
            if ranks not in found:
                found[ranks] = self.partition(ranks)
            asked = PlacementSpec(sizes, HYPERGRAPH, self.shares, found[ranks])
            costs = costs_of_ranks(self.net, asked, self.batch_size, self.machine)
            step = played(costs)
            bound, reason = self.problem.arithmetic(sizes), too_large(step.memory, self.memory)
            yield Candidate(sizes, bound, costs[step.bound_by], reason, step, found[ranks])

    def _pipelined(self, fastest, progress):
        """Yield a Candidate for each pipeline that is played through. fastest: seconds of the best other plan."""
        asked_for = self.pipelines or Pipelines()
        for stages in self.stages:
            progress()
            best = self._of_stage(stages)
            sizes, layers, options = best.sizes | {STAGE: stages}, {}, []
            cost, bound = self._cost(sizes, best.plan), self.problem.arithmetic(sizes)
            asked = PlacementSpec(sizes, best.plan, self.shares, memory=self.memory)
            for named, micro_batches in self._schedules(asked_for, stages, self.batch_size // sizes[BATCH]):
                if micro_batches not in layers:
                    layers[micro_batches] = layer_costs(self.net, asked, -(-self.batch_size // micro_batches), self.machine)
                computed = [layer.computed for layer in layers[micro_batches]]
                options.append((micro_batches * max(sum(computed) / stages, max(computed)), named, micro_batches))
            limit = self.limit * fastest
            for least, named, micro_batches in sorted(options, key=itemgetter(0)):
                if least > limit:
                    break
                chosen = replace(asked, pipelines=Pipelines(named.name, micro_batches, asked_for.cuts))
                found = pipeline_step_time(self.net, chosen, self.batch_size, self.machine, layers[micro_batches])
                reason = too_large(found.memory, self.memory)
                if not reason:
                    fastest, limit = min(fastest, found.seconds), min(limit, found.seconds)
                yield Candidate(sizes, bound, cost, reason, found)

    def _schedules(self, asked_for, stages, most):
        """Yield (ScheduleSpec, number of micro-batches). most: micro-batches that leave no rank without a sample."""
        parts, cuts = sum(bool(weighted_in([layer])) for layer in self.net.layers), asked_for.cuts
        for name in [asked_for.pipeline] if asked_for.pipeline else SCHEDULES:
            named = schedule_names.parse(name)
            chunks = named.route(stages).chunks
            if not asked_for.is_asked_for and chunks > max(parts, stages) or cuts is not None and chunks != len(cuts) + 1:
                continue
            if asked_for.micro_batches or named.file or named.in_flight:
                yield named, named.micro_batches(stages, asked_for.micro_batches)
            else:
                for micro_batches in sorted({max(1, min(multiple * stages, most)) for multiple in MULTIPLES}):
                    yield named, micro_batches

    def _of_stage(self, stages):
        """The best Candidate for the ranks of one of so many stages, if they had the whole network."""
        rest = self.grid and self.grid | {STAGE: 1}
        for memory in (self.memory * stages, math.inf):  # more micro-batches than stages need less than the first
            asked = PlacementSpec(rest, self.plan, self.shares, memory=memory)
            with suppress(NoRoom):
                return Planner(self.net, self.ranks // stages, self.batch_size, self.machine, asked).best(shown=0)[0]

    @property
    def _must_be_pipeline(self):
        """Whether the request leaves nothing but a pipeline."""
        if self.grid:
            return self.grid.get(STAGE, 1) > 1
        return self.pipelines is not None and self.pipelines.is_asked_for

    def _stages(self):
        """The numbers of stages of the pipelines that are considered. ValueError if there must be some and are none."""
        if self.grid:
            return [self.grid[STAGE]] if self._must_be_pipeline else []
        most = min(len(self.layers), MOST_STAGES)
        found = [stages for stages in range(2, most + 1) if self.ranks % stages == 0]
        if self._must_be_pipeline and not found:
            words = f"the number of stages must divide it, and be from 2 to {most} here"
            raise ValueError(f"no pipeline for {self.ranks} ranks: {words}")
        if self._must_be_pipeline:
            return found
        suitable = self.pipelines and self.plan is None and not self.shares and self.ranks <= MOST_RANKS
        return found if suitable and not any(isinstance(leaf, BatchNorm) for leaf in self.net.leaves()) else []

    @property
    def steps(self):
        """How often `best` says that it has got on, at the most."""
        return len(self.grids) * (1 if self.plan else 1 + len(self.problem.segments)) + len(self.stages)

    def _ranked(self, candidates):
        """What `best` returns, from all Candidates."""
        complete = sorted((c for c in candidates if c.fits), key=lambda c: c.seconds)
        if not complete:
            raise NoRoom(self._no_room(candidates))
        limit = self.limit * complete[0].seconds
        alike = [candidate for candidate in complete if candidate.seconds <= limit]
        if self.machine.uncertainty and self.plan is None:
            others = [self._by_default(c) for c in alike if not c.pipelined and c.sizes[MODEL] > 1]
            alike = [c for c in others if c.seconds <= limit and c.step.memory <= self.memory] + alike
        chosen = min(alike, key=order)  # of equal ones the first
        given_up = sorted((c for c in candidates if not c.cost), key=lambda c: c.bound)
        for candidate in given_up:
            candidate.reason = "a lower bound of its time is above the time of the plans that are shown"
        return chosen, [c for c in complete if c is not chosen] + [c for c in candidates if c.cost and c.reason] + given_up

    def _by_default(self, candidate):
        """The Candidate of the same grid with the plan FEWEST_BYTES; the same one if that is its plan."""
        cost = self._cost(candidate.sizes, FEWEST_BYTES)
        same = cost.placed.plan == candidate.cost.placed.plan
        return candidate if same else Candidate(candidate.sizes, candidate.bound, cost)

    def _cost(self, sizes, plan):
        return cost_of_slowest_rank(self.net, PlacementSpec(sizes, plan, self.shares), self.batch_size, self.machine)

    def _grids(self):
        """Yield the sizes of grids with at most as many ranks on an axis as there are samples, rows of an image, or samples and
        outputs of the widest layer; of all grids if there is no such one."""
        columns = (layer.weight.shape[OUTPUTS] for layer in self.layers)
        most = {BATCH: self.batch_size, MODEL: max(self.batch_size, *columns)}
        if any(layer.kind == "conv" for layer in self.layers):
            most[HEIGHT] = self.shape[0]
        every = list(every_grid(self.ranks, tuple(most)))
        useful = [sizes for sizes in every if all(size <= most[axis] for axis, size in sizes.items())]
        for sizes in useful or every:
            if all(plan.fits(sizes) for plan in self.plans):
                yield {axis: sizes.get(axis, 1) for axis in AXES}

    def _complete(self, candidate, search):
        """Find the best plan of a grid that fits the memory: the dearest bytes say at once whether there is any."""

        def best_plan(price):
            return self._cost(search.sizes, self.plan or search.plan(price))

        free, *between, dearest = PRICES
        candidate.cost = best_plan(free)
        if candidate.step.memory > self.memory:
            candidate.cost = best_plan(dearest)
            candidate.reason = too_large(candidate.step.memory, self.memory)
            if not candidate.reason:
                cheaper = (cost for cost in map(best_plan, between) if cost.prediction.memory <= self.memory)
                candidate.cost = next(cheaper, candidate.cost)

    def _no_room(self, candidates):
        """What to say where no plan fits: what needs the least memory, and the largest layer."""
        least = min((c for c in candidates if c.cost), key=lambda c: c.step.memory)
        layer = max(self.layers, key=lambda layer: sum(p.size for p in layer.parameters))
        most = sum(memory_of(self.net.dtype.itemsize, sum(p.size for p in layer.parameters), 0, 0).values())
        return (
            f"no plan for {self.ranks} ranks fits {self.memory / 2**30:.3g} GiB a rank: the least, grid {least.grid}, needs "
            f"{least.step.memory / 2**30:.3g}; the largest layer is {layer.name} {layer!r}, whose parameters, gradients and "
            f"momentum take {most / 2**30:.3g} GiB over all ranks: use more ranks, more memory, or a smaller batch"
        )


def too_large(needed, given):
    """In words, that a plan needs too many bytes; empty if it does not."""
    return f"needs {needed / 2**30:.2f} GiB a rank, of {given / 2**30:.2f}" if needed > given else ""


def mostly_sends(cost):
    """Whether communication takes most of a Cost's step, and long enough to save."""
    seconds = cost.parts["gradients"] + cost.parts["activations"]
    return seconds > max(WORTH, cost.seconds / 2)


def every_grid(ranks, axes):
    """{axis: size} of every grid of so many ranks over these axes."""
    first, *rest = axes
    if not rest:
        yield {first: ranks}
        return
    small = [d for d in range(1, math.isqrt(ranks) + 1) if ranks % d == 0]
    for size in small + [ranks // d for d in reversed(small) if d * d != ranks]:
        yield from ({first: size} | others for others in every_grid(ranks // size, rest))
