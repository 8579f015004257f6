"""How the ranks of a pipeline share a network: the chunks of this rank, and what travels between chunks.

| function       | chunks                                                         | axis    |
|----------------|----------------------------------------------------------------|---------|
| `by_stages`    | consecutive layers, each chunk on one rank of the axis         | `stage` |
| `by_exchanges` | the layers between two exchanges of a hypergraph partition; every rank has its part of each chunk | `model` |
"""

from dataclasses import dataclass

from gridgrad.parallel.grid.process_grid import MODEL, STAGE
from gridgrad.parallel.pipeline.schedule import Route
from gridgrad.parallel.pipeline.simulate import Times
from gridgrad.parallel.plans.hypergraph import between_exchanges
from gridgrad.parallel.prediction.pipeline_cost import chunk_works, times_of_work
from gridgrad.parallel.training.boundaries import ExchangeBoundary, StageBoundary


@dataclass(frozen=True)
class StageMap:
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
    """The StageMap of a Placed network whose chunks are on the axis `stage`."""
    here, places = grid.coordinates[STAGE], [place for (place,) in route.places]
    boundaries = {
        number: StageBoundary(placed.between[number], grid.coordinates, *places[number - 1 : number + 1], here)
        for number in range(1, len(places))
    }
    return StageMap(STAGE, {number: placed.chunks[number] for number in route.held(here)}, boundaries, route, cuts=tuple(cuts))


def by_exchanges(placed, grid):
    """The StageMap of a Placed network with the plan "hypergraph". Collective.

    Work is counted in floating-point operations, by which the ranks agree in what order to compute. ValueError as in
    `between_exchanges`.
    """
    chunks, exchanges = between_exchanges(placed.layers)
    boundaries = {number: ExchangeBoundary(exchange) for number, exchange in enumerate(exchanges, 1)}
    group = grid.group(MODEL)
    senders = [{}, *({rank: found for rank, found in enumerate(group.comm.allgather(boundaries[number].senders)) if found}
                     for number in range(1, len(chunks)))]  # fmt: skip
    works = group.comm.allgather(chunk_works(placed, chunks, grid))
    route = Route.everywhere(grid.sizes[MODEL], senders)
    return StageMap(MODEL, dict(enumerate(chunks)), boundaries, route, times_of_work(works))
