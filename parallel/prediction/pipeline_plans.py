"""Which schedule, how many micro-batches and which cuts make the fastest pipeline on one grid.

The schedules `1f1b`, `zb-h1` and, where there are layers enough, `interleaved:2` are compared, with as many micro-batches as
there are stages, and 2 and 4 times as many. A lower bound of each is known before its cuts are searched for and it is played
through: its passes spread evenly over the ranks, or the longest layer alone. Those with the lowest bounds are played first,
until no other can be faster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from gridgrad.parallel.grid.process_grid import BATCH, STAGE
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.placement.plan import weighted_in
from gridgrad.parallel.prediction.chunk_cost import layer_costs
from gridgrad.parallel.prediction.pipeline_cost import pipeline_step_time
from gridgrad.parallel.prediction.planned_cuts import planned_cuts

SCHEDULES = "zb-h1", "1f1b", "interleaved:2"
MULTIPLES = 1, 2, 4  # micro-batches for each stage
MOST_PLAYED = 24  # pipelines of one grid: the others are not looked at


@dataclass(frozen=True)
class Pipelines:
    """What is asked for of a pipeline. What is None is chosen.

    pipeline: the name of a schedule. micro_batches: into how many parts a minibatch is cut. cuts: the positions in
    `net.layers` at which new chunks begin.
    """

    pipeline: str | None = None
    micro_batches: int | None = None
    cuts: Sequence[int] | None = None

    @property
    def is_asked_for(self):
        """Whether there must be a pipeline."""
        return self.pipeline is not None or self.cuts is not None

    def options(self, net, stages, most):
        """Yield (parsed schedule name, number of micro-batches). most: micro-batches that leave no rank without a sample."""
        parts = sum(bool(weighted_in([layer])) for layer in net.layers)
        for name in [self.pipeline] if self.pipeline else SCHEDULES:
            named = schedule_names.parse(name)
            chunks = named.route(stages).chunks
            if not self.is_asked_for and chunks > max(parts, stages) or self.cuts is not None and chunks != len(self.cuts) + 1:
                continue
            if self.micro_batches or named.file or named.in_flight:
                yield named, named.micro_batches(stages, self.micro_batches)
            else:
                for count in sorted({max(1, min(multiple * stages, most)) for multiple in MULTIPLES}):
                    yield named, count

    def times(self, net, asked, batch_size, machine, limit=inf):
        """Yield the PipelinePredictions of what is considered on a grid, as long as one may take less than `limit` seconds.

        There are none if the cuts that are asked for do not fit. asked: a PlacementRequest with grid, plan and memory. The
        other arguments are those of `pipeline_step_time`. ValueError if anything else that is asked for does not fit.
        """
        stages, layers, bounds = asked.grid[STAGE], {}, []
        for named, count in self.options(net, stages, batch_size // asked.grid[BATCH]):
            if count not in layers:
                layers[count] = layer_costs(net, asked, -(-batch_size // count), machine)
            computed = [layer.computed for layer in layers[count]]
            bounds.append((count * max(sum(computed) / stages, max(computed)), len(bounds), named, count))
        for bound, _, named, count in sorted(bounds)[:MOST_PLAYED]:
            if bound > limit:
                break
            cuts = self.cuts
            if cuts is None:
                cuts = planned_cuts(layers[count], asked, machine, named, count, net.dtype.itemsize)
            chosen = replace(asked, pipelines=Pipelines(named.name, count, cuts))
            found = pipeline_step_time(net, chosen, batch_size, machine)
            if found.memory <= asked.memory:
                limit = min(limit, found.seconds)
            yield found
