"""What the planner compares: grids with their plans, and the order of those that are equally fast."""

import math
from dataclasses import dataclass

from gridgrad.parallel.grid.process_grid import LAYER_AXES, STAGE
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.pipeline_cost import PipelinePrediction
from gridgrad.parallel.prediction.step_prediction import StepPrediction


@dataclass
class Candidate:
    """A grid with its best plan.

    sizes: ranks along each axis. bound: a lower bound in seconds of a step with any plan on this grid. cost: the Cost of the
    best plan; None where the grid was given up before its plan was complete. reason: why it cannot be chosen, or empty.
    played: the StepPrediction of all ranks, where they have different work and wait for each other: of the plan "hypergraph",
    for which `owners` is the partition and `cost` that of the rank that bounds the step; or of a pipeline, for which `cost` is
    what the whole network would take on one stage. None where all ranks do the same.
    """

    sizes: dict
    bound: float
    cost: Cost | None = None
    reason: str = ""
    played: StepPrediction | None = None
    owners: Owners | None = None

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
    def pipelined(self):
        """The PipelinePrediction, or None if there is no pipeline."""
        return self.played if isinstance(self.played, PipelinePrediction) else None

    @property
    def pipelining(self):
        """The arguments of `distribute` that make the pipeline: a dict, empty if there is none."""
        found = self.pipelined
        return {"pipeline": found.pipeline, "micro_batches": found.micro_batches, "cuts": found.cuts} if found else {}


def order(candidate):
    """By this, candidates that are equally fast are ordered; it depends on no measurement.

    Pipelines come last, because their predictions leave out the most. Otherwise the fewest collectives come first: ranks wait
    for each other in each of them, which the model does not know. Of as many, the fewest axes come first, and then the most
    ranks along batch, on which a network trains whatever its layers are.
    """
    sizes = candidate.sizes
    most = [-sizes.get(axis, 1) for axis in (*LAYER_AXES, STAGE)]
    axes, pipeline = sum(size > 1 for size in sizes.values()), candidate.pipelining.get("pipeline", "")
    return candidate.pipelined is not None, candidate.step.bounding.collectives, axes, most, pipeline
