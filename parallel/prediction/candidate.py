"""What the planner compares: grids with their plans, the order of those that are equally fast, and why the others lost."""

import math
from dataclasses import dataclass

from gridgrad.parallel.grid.process_grid import LAYER_AXES, STAGE
from gridgrad.parallel.plans.owners import Owners
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


def why_lost(other, chosen):
    """In words, what makes one Candidate slower than another."""
    if other.reason:
        return other.reason
    if other.seconds < chosen.seconds:
        more, fewer = (candidate.step.bounding.collectives for candidate in (other, chosen))
        why = f"{more} collectives instead of {fewer}"
        if other.pipelined and not chosen.pipelined:
            why = "a pipeline, whose prediction leaves out more"
        elif more == fewer:
            why = "as many collectives, and later in the order of grids and plans"
        return f"{why}, for {milliseconds(chosen.seconds - other.seconds)} that the model may be wrong about"
    mine, theirs = other.step.parts, chosen.step.parts
    names = {
        "compute": "computing", "update": "the update", "gradients": "sums of gradients", "activations": "moving activations",
        "waiting": "waiting for other ranks",
    }  # fmt: skip
    more = sorted(((mine.get(part, 0.0) - theirs.get(part, 0.0), name) for part, name in names.items()), reverse=True)
    worse = [f"{milliseconds(value)} more for {name}" for value, name in more if value > 0.05 * abs(more[0][0])][:2]
    better = [f"{milliseconds(-value)} less for {name}" for value, name in more[::-1] if -value > 0.05 * abs(more[0][0])][:1]
    return ", ".join(worse + better) or "no difference that counts"


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g} ms"
