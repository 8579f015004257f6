"""From a serial network to this rank's part of it on a grid, with everything given."""

from collections.abc import Callable, Mapping, Sequence

from gridgrad.nn.sequential import Sequential
from gridgrad.parallel.grid.process_grid import MODEL, STAGE, ProcessGrid
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.plans.place_network import check_cuts, place
from gridgrad.parallel.plans.plans import plans_of, words_of
from gridgrad.parallel.prediction.pipeline_cost import Pipelines
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.sync.reduction import BlockingReduction, Reduction
from gridgrad.parallel.training.network import ParallelSequential
from gridgrad.parallel.training.pipelined import PipelinedSequential
from gridgrad.parallel.training.stage_map import balanced_cuts, by_exchanges, by_stages


def distribute(
    net: Sequential,
    grid: ProcessGrid,
    plan: str = "fewest-bytes",
    reduction: Callable[[ParallelSequential], Reduction] = BlockingReduction,
    shares: Mapping[str, Sequence[float]] | None = None,
    owners: Mapping[str, Partition] | Owners | None = None,
    pipeline: str | None = None,
    micro_batches: int | None = None,
    cuts: Sequence[int] | None = None,
) -> ParallelSequential:
    """Place a serial network on a grid, with everything given: nothing is chosen or measured. Collective.

    ValueError if the plan, the shares, the owners, the pipeline or the cuts do not fit the network or the grid.

    Parameters
    ----------
    net : Sequential
        A serial network; one that was never used costs no memory.
    grid : ProcessGrid
        The grid. With an update protocol, that of this rank's worker: see `divide`.
    plan : str
        As in `parallelize`.
    reduction : function
        Returns a Reduction for a parallel network, such as one of the classes.
    shares, owners, pipeline, micro_batches, cuts
        As in `parallelize`; shares are numbers.

    Returns
    -------
    This rank's part of the network. It has no memory yet, unless `net` has: then it gets the values of `net`.

    Examples
    --------
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import Linear, Sequential
    >>> from gridgrad.parallel import BlockingReduction, ProcessGrid, distribute
    >>> with ProcessGrid(MPI.COMM_WORLD, batch=MPI.COMM_WORLD.size) as grid:
    ...     net = distribute(Sequential([Linear(3, 2)]), grid, "replicate", BlockingReduction)
    ...     print(net.allocated, net.size)
    False 8
    """
    pipelines = Pipelines(pipeline, micro_batches, cuts)
    return make_parallel(net, grid, PlacementSpec(grid.sizes, plan, shares, owners, pipelines), reduction)


def make_parallel(net, grid, placing, reduction):
    """What `distribute` returns, from a PlacementSpec in which nothing is open. Collective."""
    asked = placing.pipelines or Pipelines()
    if asked.pipeline is None and grid.sizes[STAGE] == 1:
        if asked.cuts is not None:
            raise ValueError("cuts are for a pipeline: use a grid with the axis stage, such as stage=2")
        placed = place(net, grid, placing.plan, placing.shares, placing.owners)
        parallel = ParallelSequential(placed, grid, net.seed, net.dtype, reduction)
        parallel.micro_batches = asked.micro_batches or 1
    else:
        named = schedule_names.parse("1f1b" if asked.pipeline is None else asked.pipeline)
        is_partition = any(plan.needs_owners for plan in plans_of(words_of(placing.plan, weighted(net))))
        by_partition = is_partition and grid.sizes[STAGE] == 1 < grid.sizes[MODEL]
        placed, stage_map = (partitioned if by_partition else staged)(net, grid, placing, named)
        micro_batches = named.micro_batches(stage_map.route.ranks, asked.micro_batches)
        parallel = PipelinedSequential(placed, grid, net.seed, net.dtype, reduction, stage_map, named, micro_batches)
    parallel.step = net.step
    if net.allocated:
        parallel.load_state_dict(net.state_dict())
    return parallel


def staged(net, grid, placing, named):
    """(Placed, StageMap) of a pipeline on the axis `stage`. named: its schedule, a parsed name."""
    stages, cuts = grid.sizes[STAGE], placing.pipelines and placing.pipelines.cuts
    route = named.route(stages)
    cuts = balanced_cuts(net, route.chunks) if cuts is None else cuts
    check_cuts(cuts, net.layers)
    named.check_cuts(cuts, stages)
    placed = place(net, grid, placing.plan, placing.shares, placing.owners, cuts, [rank for (rank,) in route.places])
    return placed, by_stages(placed, grid, route, cuts)


def partitioned(net, grid, placing, named):
    """(the Placed network, its StageMap) of a pipeline of a hypergraph partition. Collective."""
    if placing.pipelines.cuts is not None:
        raise ValueError("cuts are for the axis stage: the chunks of a partition lie between its exchanges")
    placed = place(net, grid, placing.plan, placing.shares, placing.owners)
    return placed, by_exchanges(placed, grid)
