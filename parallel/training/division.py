"""How the ranks of a pipeline share a network: the chunks of this rank, and what travels between chunks.

| function       | chunks                                                         | axis    |
|----------------|----------------------------------------------------------------|---------|
| `by_stages`    | consecutive layers, each chunk on one rank of the axis         | `stage` |
| `by_exchanges` | the layers between two exchanges of a hypergraph partition; every rank has its part of each chunk | `model` |
"""

from dataclasses import dataclass

from nn.sequence import leaves
from parallel.grid.process_grid import STAGE
from parallel.performance.cost import local_shape
from parallel.performance.workload import Workload
from parallel.pipeline.route import Route
from parallel.pipeline.times import TableTimes, Times
from parallel.placement.plans import CHOSEN
from parallel.placement.redistribute import Redistribute
from parallel.training.boundaries import ExchangeBoundary, StageBoundary


@dataclass(frozen=True)
class Division:
    """axis: along which the ranks of a pipeline are. chunks: {number: layers} of this rank. boundaries: {number of a chunk: the
    boundary before it}. route: the Route. times: a Times by which the order of a schedule is chosen, or None. cuts: the
    positions of the layers with which its second and later chunks begin, or None."""

    axis: str
    chunks: dict
    boundaries: dict
    route: Route
    times: Times | None = None
    cuts: tuple | None = None


def by_stages(placed, grid, route, cuts):
    """The Division of a Placed network whose chunks are on the axis `stage`."""
    here, places = grid.coordinates[STAGE], [place for (place,) in route.places]
    boundaries = {
        number: StageBoundary(placed.between[number], grid.coordinates, *places[number - 1 : number + 1], here)
        for number in range(1, len(places))
    }
    return Division(STAGE, {number: placed.chunks[number] for number in route.held(here)}, boundaries, route, cuts=tuple(cuts))


def by_exchanges(placed, grid):
    """The Division of a Placed network with the plan "hypergraph". Collective.

    Work is counted in floating-point operations, by which the ranks agree in what order to compute. ValueError for a network
    with branches that exchange channels within them.
    """
    chunks, boundaries = [[]], {}
    for layer in placed.layers:
        if type(layer) is Redistribute and layer.is_exchange and layer.moves("forward"):
            boundaries[len(chunks)] = ExchangeBoundary(layer)
            chunks.append([])
            continue
        if layer.children and any(isinstance(leaf, Redistribute) for leaf in leaves([layer])):
            raise ValueError(
                f"layer {layer.name}: a partition has no pipeline where branches of the network exchange channels: "
                f"use a grid with the axis stage"
            )
        chunks[-1].append(layer)
    group = grid.group(CHOSEN)
    senders = [{}, *({rank: found for rank, found in enumerate(group.comm.allgather(boundaries[number].senders)) if found}
                     for number in range(1, len(chunks)))]  # fmt: skip
    works = group.comm.allgather(chunk_works(placed, chunks, grid))
    table = {(rank, op, number): times * work for rank, of in enumerate(works) for number, work in enumerate(of)
             for op, times in (("F", 1.0), ("B", 2.0))}  # fmt: skip
    route = Route.everywhere(grid.sizes[CHOSEN], senders)
    return Division(CHOSEN, dict(enumerate(chunks)), boundaries, route, TableTimes(table))


def chunk_works(placed, chunks, grid):
    """The floating-point operations of the forward pass of each chunk on this rank, for a minibatch of one sample a rank."""
    samples = grid.sizes["batch"]
    workload = Workload(local_shape(placed.input, samples, grid), samples)
    workload.go(placed.layers)
    found = []
    for chunk in chunks:
        inside = {layer.name for layer in leaves(chunk)}
        found.append(sum(work.flops for work in workload.works if work.phase == "forward" and work.layer in inside))
    return found
