"""From a serial network to this rank's part of it on a grid, with everything given."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from gridgrad.nn.network_summary import rows
from gridgrad.nn.sequence import leaves
from gridgrad.nn.sequential import Sequential
from gridgrad.parallel.grid.process_grid import MODEL, STAGE, ProcessGrid
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.schedule import Route, shortest
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.hypergraph import Owners, between_exchanges
from gridgrad.parallel.plans.place_network import check_cuts, checked, place
from gridgrad.parallel.plans.plans import plans_of, words_of
from gridgrad.parallel.prediction.pipeline_cost import Pipelines, chunk_works, times_of_work
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.sync.reduction import BlockingReduction, Reduction
from gridgrad.parallel.training.messages import ExchangeBoundary, StageBoundary
from gridgrad.parallel.training.network import ParallelSequential, StageMap

PASSES = 80.0  # floating-point operations that take as long as reading or writing one element of a large array
PRODUCTS = 3  # products of matrices in a training step, each as large as that of forward


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
    stage_map, micro_batches = None, asked.micro_batches or 1
    if asked.pipeline is None and grid.sizes[STAGE] == 1:
        if asked.cuts is not None:
            raise ValueError("cuts are for a pipeline: use a grid with the axis stage, such as stage=2")
        placed = place(net, grid, placing.plan, placing.shares, placing.owners)
    else:
        named = schedule_names.parse("1f1b" if asked.pipeline is None else asked.pipeline)
        is_partition = any(plan.needs_owners for plan in plans_of(words_of(placing.plan, weighted(net))))
        by_partition = is_partition and grid.sizes[STAGE] == 1 < grid.sizes[MODEL]
        placed, stage_map = (by_exchanges if by_partition else by_stages)(net, grid, placing, named)
        micro_batches = named.micro_batches(stage_map.route.ranks, asked.micro_batches)
    parallel = ParallelSequential(placed, grid, net.seed, net.dtype, reduction, micro_batches, stage_map)
    parallel.step = net.step
    if net.allocated:
        parallel.load_state_dict(net.state_dict())
    return parallel


def by_stages(net, grid, placing, named):
    """(Placed, StageMap) of a pipeline with each chunk of consecutive layers on one rank of the axis `stage`."""
    here, stages, cuts = grid.coordinates[STAGE], grid.sizes[STAGE], placing.pipelines and placing.pipelines.cuts
    route = named.route(stages)
    cuts = balanced_cuts(net, route.chunks) if cuts is None else cuts
    check_cuts(cuts, net.layers)
    named.check_cuts(cuts, stages)
    places = [rank for (rank,) in route.places]
    placed = place(net, grid, placing.plan, placing.shares, placing.owners, cuts, places)
    boundaries = {
        number: StageBoundary(placed.between[number], grid.coordinates, *places[number - 1 : number + 1], here)
        for number in range(1, len(places))
    }
    chunks = {number: placed.chunks[number] for number in route.held(here)}
    return placed, StageMap(named, STAGE, chunks, boundaries, route, cuts=tuple(cuts))


def by_exchanges(net, grid, placing, named):
    """(Placed, StageMap) with the plan "hypergraph": every rank has its part of each chunk, the layers between two exchanges.
    The order of computing follows from floating-point operations. ValueError within branches. Collective."""
    if placing.pipelines.cuts is not None:
        raise ValueError("cuts are for the axis stage: the chunks of a partition lie between its exchanges")
    placed = place(net, grid, placing.plan, placing.shares, placing.owners)
    chunks, exchanges = between_exchanges(placed.layers)
    boundaries = {number: ExchangeBoundary(exchange) for number, exchange in enumerate(exchanges, 1)}
    group = grid.group(MODEL)
    of_all = [group.comm.allgather(boundary.senders) for boundary in boundaries.values()]
    senders = [{}, *({rank: found for rank, found in enumerate(of_ranks) if found} for of_ranks in of_all)]
    works = group.comm.allgather(chunk_works(placed, chunks, grid))
    route = Route.everywhere(grid.sizes[MODEL], senders)
    return placed, StageMap(named, MODEL, dict(enumerate(chunks)), boundaries, route, times_of_work(works))


def balanced_cuts(net, chunks):
    """The positions in `net.layers` at which chunks begin that take about the same time, by floating-point operations and
    memory traffic. ValueError unless `net` has an input shape or begins with a Linear layer."""
    _, shape = checked(net)
    found = {row.name: PRODUCTS * row.flops + 2 * PASSES * row.elements for row in rows(net, shape)}
    return cuts_of([sum(found.get(leaf.name, 0.0) for leaf in leaves([layer])) for layer in net.layers], chunks)


def cuts_of(work, chunks):
    """Where to cut a list of works into consecutive parts such that the largest sum of a part is as small as possible."""
    sums = [0.0, *accumulate(work)]
    return shortest(len(work), chunks, lambda chunk, start, end: sums[end] - sums[start])
