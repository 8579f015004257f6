"""What is asked for when a network is placed; once the planner has chosen what was open, all of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gridgrad.nn.arguments import whole_number
from gridgrad.parallel.grid.process_grid import BATCH, ProcessGrid, checked_sizes, parse_grid
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.plans.place_network import shares_by_axis
from gridgrad.parallel.plans.plans import FEWEST_BYTES
from gridgrad.parallel.prediction.pipeline_cost import Pipelines

AUTO = "auto"  # the grid, the plan or the shares that are to be chosen


@dataclass(frozen=True)
class PlacementSpec:
    """How a network is to be placed; None is open. ValueError for what can not be meant whatever the network is."""

    grid: Mapping[str, int] | None = None  # {axis: ranks}
    plan: str | Sequence[str] | None = None  # a text as for `parallelize`, or a word for each layer with weights
    shares: Mapping[str, Sequence[float]] | None = None  # {axis: one number for each of its ranks}
    owners: Mapping[str, Partition] | Owners | None = None  # as for `parallelize`
    pipelines: Pipelines | None = None  # None: the planner considers pipelines only on a grid with several stages
    memory: float | None = None  # bytes that a rank may use

    def __post_init__(self):
        if self.grid is not None:
            checked_sizes(self.grid)
        shares_by_axis(self.shares)
        if self.pipelines and self.pipelines.micro_batches is not None:
            whole_number(self.pipelines.micro_batches, "micro_batches")


OPEN = PlacementSpec()


def sizes_of(grid, ranks):
    """{axis: ranks} of a grid as `parallelize` takes it; None if it is "auto" and there are several ranks."""
    if isinstance(grid, str):
        return parse_grid(grid) if grid != AUTO else None if ranks > 1 else {BATCH: 1}
    if not isinstance(grid, dict | ProcessGrid):
        raise ValueError(f"the grid must be a ProcessGrid, a text such as batch=4,model=2, or auto, not {grid!r}")
    return grid if isinstance(grid, dict) else grid.sizes


def open_plan(plan, sizes):
    """The plan of a PlacementSpec: None where the planner is to choose it. plan: as `parallelize` takes it."""
    if isinstance(plan, list | tuple) and plan and all(isinstance(word, str) for word in plan):
        plan = ",".join(plan)
    if not isinstance(plan, str | None):
        raise ValueError(f"the plan must be a text such as out,in, or a list of such words, not {plan!r}")
    if plan is None and sizes:
        return FEWEST_BYTES
    return None if plan == AUTO else plan
