"""How the ranks of a pipeline share a network: where it is cut, the chunks of this rank, and what travels between chunks."""

from dataclasses import dataclass
from itertools import accumulate

from gridgrad.nn.network_summary import rows
from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.process_grid import MODEL, STAGE
from gridgrad.parallel.pipeline.schedule import Route, shortest
from gridgrad.parallel.pipeline.simulate import TableTimes
from gridgrad.parallel.plans.hypergraph import between_exchanges
from gridgrad.parallel.plans.place_network import checked
from gridgrad.parallel.prediction.pipeline_cost import chunk_works, times_of_work
from gridgrad.parallel.training.messages import ExchangeBoundary, StageBoundary

PASSES = 80.0  # floating-point operations that take as long as reading or writing one element of a large array
PRODUCTS = 3  # products of matrices in a training step, each as large as that of forward


@dataclass(frozen=True)
class StageMap:
    """The chunks of this rank, and what travels between chunks."""

    axis: str  # along which the ranks of a pipeline are
    chunks: dict  # {number: layers} of this rank
    boundaries: dict  # {number of a chunk: the boundary before it}
    route: Route
    times: TableTimes | None = None  # by which the order of a schedule is chosen
    cuts: tuple | None = None  # the positions of the layers with which the second and later chunks begin


def by_stages(placed, grid, route, cuts):
    """The StageMap of a Placed network with each chunk of consecutive layers on one rank of the axis `stage`."""
    here, places = grid.coordinates[STAGE], [place for (place,) in route.places]
    boundaries = {
        number: StageBoundary(placed.between[number], grid.coordinates, *places[number - 1 : number + 1], here)
        for number in range(1, len(places))
    }
    return StageMap(STAGE, {number: placed.chunks[number] for number in route.held(here)}, boundaries, route, cuts=tuple(cuts))


def by_exchanges(placed, grid):
    """The StageMap of a Placed network with the plan "hypergraph": every rank has its part of each chunk, the layers between
    two exchanges. The order of computing follows from floating-point operations. ValueError within branches. Collective."""
    chunks, exchanges = between_exchanges(placed.layers)
    boundaries = {number: ExchangeBoundary(exchange) for number, exchange in enumerate(exchanges, 1)}
    group = grid.group(MODEL)
    senders = [{}, *({rank: found for rank, found in enumerate(group.comm.allgather(boundaries[number].senders)) if found}
                     for number in range(1, len(chunks)))]  # fmt: skip
    works = group.comm.allgather(chunk_works(placed, chunks, grid))
    route = Route.everywhere(grid.sizes[MODEL], senders)
    return StageMap(MODEL, dict(enumerate(chunks)), boundaries, route, times_of_work(works))


def balanced_cuts(net, chunks):
    """The positions in `net.layers` at which chunks begin that take about the same time, by floating-point operations and
    memory traffic. ValueError unless `net` has an input shape or begins with a Linear layer."""
    return cuts_of(layer_work(net), chunks)


def layer_work(net):
    """The work of each layer of `net.layers` for one sample in a training step, in floating-point operations."""
    _, shape = checked(net)
    found = {row.name: PRODUCTS * row.flops + 2 * PASSES * row.elements for row in rows(net, shape)}
    return [sum(found.get(leaf.name, 0.0) for leaf in leaves([layer])) for layer in net.layers]


def cuts_of(work, chunks):
    """Where to cut a list of works into consecutive parts such that the largest sum of a part is as small as possible."""
    sums = [0.0, *accumulate(work)]
    return shortest(len(work), chunks, lambda chunk, start, end: sums[end] - sums[start])
