"""The predicted cost of the chunks of a network, which a pipeline runs one micro-batch at a time, and where to cut it."""

from dataclasses import dataclass
from itertools import accumulate
from math import inf, prod

from gridgrad.parallel.grid.process_grid import STAGE, GridDescription
from gridgrad.parallel.pipeline.schedule import shortest
from gridgrad.parallel.pipeline.simulate import simulate
from gridgrad.parallel.plans.place_network import check_cuts, place
from gridgrad.parallel.prediction.cost import local_shape, slowest_rank
from gridgrad.parallel.prediction.step_prediction import gradients_kept, memory_of
from gridgrad.parallel.prediction.workload import Workload

OPS = {"forward": "F", "backward": "I", "gradients": "W", "loss": "I", "update": "U"}  # of a schedule, by phases of Works


@dataclass(frozen=True)
class ChunkCost:
    """What a chunk costs the rank with the most work of those that hold a part of it, of one micro-batch unless said."""

    seconds: dict  # {"F", "I", "W", or "U" (the sums of gradients and the update of a step): seconds}
    sums: float  # seconds of the sums in U
    moving: float  # seconds of F, I and W in which the rank communicates with others of its stage
    added: float  # seconds of adding the gradients to those of other micro-batches
    collectives: tuple  # how many (in the passes, in U)
    sent: tuple  # bytes in these collectives
    parameters: int  # that the rank holds
    elements: int  # this and the next two: see Workload
    postponed: int
    shared: tuple  # serves all micro-batches
    taken: int  # bytes that the chunk takes from the one before
    made: int  # bytes that it makes for the next one
    flops: float
    works: tuple = ()  # the Works for which the rank waits, those of the update too, in the order of execution

    @property
    def computed(self):
        """Seconds of the passes."""
        return sum(self.seconds[op] for op in "FIW")

    def works_of(self, op):
        """The Works of F, I, W, B or U, in the order of execution."""
        return [work for work in self.works if OPS[work.phase] in ("IW" if op == "B" else op)]


def chunk_costs(net, asked, samples, machine, cuts, at=None):
    """The ChunkCost of each chunk, whatever stage it is on, for `samples` of a global micro-batch. at: coordinates of the rank
    along the other axes, by default of the one with the most work. ValueError if plan, shares or cuts do not fit."""
    check_cuts(cuts, net.layers)
    at = slowest_rank(net, asked, *machine.sharing).coordinates if at is None else at
    grid = GridDescription(asked.grid, at | {STAGE: 0}, machine.node["ranks"])
    placed = place(net, grid, asked.plan, asked.shares, None, cuts, [0] * (len(cuts) + 1))  # as if one rank had all chunks
    found = []
    for number, chunk in enumerate(placed.chunks):
        workload = Workload(local_shape(placed.between[number], samples, grid), samples, net.dtype.itemsize)
        workload.first = number == 0
        found.append(cost_of(workload, chunk, grid, machine, number == len(cuts)))
    return found


def layer_costs(net, asked, samples, machine):
    """The ChunkCost of each layer of `net.layers` as a chunk of its own."""
    return chunk_costs(net, asked, samples, machine, [*range(1, len(net.layers))])


def cost_of(workload, chunk, grid, machine, is_last):
    """The ChunkCost of a list of layers, through which a Workload goes. is_last: whether the loss is behind it."""
    itemsize = workload.itemsize
    taken = prod(workload.shape) * itemsize
    workload.go(chunk)
    made = prod(workload.shape) * itemsize
    if is_last:
        workload.loss(grid)
    workload.update(chunk, grid)
    seconds, moving, collectives, sent = dict.fromkeys("FIWU", 0.0), [0.0, 0.0], [0, 0], [0, 0]  # in the passes, in U
    works = [work for work in workload.works if is_awaited(work)]
    for work in works:
        op, price = OPS[work.phase], seconds_of_micro_batch(work, machine, grid.size, itemsize)
        seconds[op] += price
        if work.group:
            collectives[op == "U"] += 1
            sent[op == "U"] += work.nbytes
            moving[op == "U"] += price
    parameters, added = workload.parameters, 0.0
    if parameters:
        nbytes = 3 * parameters * itemsize
        added = machine.operation_seconds("add.forward", (parameters,), 1.0, 0, nbytes, itemsize, grid.size)
    flops = sum(work.flops for work in works if work.phase != "update")
    return ChunkCost(
        seconds, moving[1], moving[0], added, tuple(collectives), tuple(sent), parameters, workload.elements,
        workload.postponed, workload.shared, taken, made, flops, tuple(filter(is_awaited, workload.executed)),
    )  # fmt: skip


def is_awaited(work):
    """Whether a rank of a pipeline waits for a Work, as it does not for the sum of the value of the loss."""
    return not (work.phase == "loss" and work.group)


def seconds_of_micro_batch(work, machine, ranks, itemsize):
    """Predicted seconds of a Work of one micro-batch, without what a whole step takes once (`step`)."""
    return work.seconds(machine, ranks, itemsize) - machine.core.get("step", 0.0) * (work.name == "loss")


def message_seconds(sizes, machine, sender, receiver, nbytes, axis=STAGE):
    """(latency, occupied) in seconds of a message between two ranks of an axis. sizes: {axis: ranks}."""
    grid = GridDescription(sizes, None, machine.node["ranks"])
    on_node = grid.group(axis).on_node
    return machine.message_seconds(sender // on_node == receiver // on_node, nbytes, grid.size)


def planned_cuts(layers, asked, machine, named, micro_batches, itemsize):
    """Where in `net.layers` the second and later chunks begin, so that the one that takes longest for a micro-batch, with the
    messages it waits for, is short and all fit the memory, if any cuts do. layers: of `layer_costs`. named: a ScheduleSpec."""
    # each chunk of a rank may take the same part of its memory
    sizes, memory = asked.grid, asked.memory or inf
    ranks = sizes[STAGE]
    route = named.route(ranks)
    open_at_most = {}
    for row in simulate(named.complete(named.schedule(ranks, micro_batches))).kept:
        open_at_most |= row.of_chunk
    places = [place for (place,) in route.places]
    seconds = [0.0, *accumulate(layer.computed for layer in layers)]
    parameters = [0, *accumulate(layer.parameters for layer in layers)]
    elements = [0, *accumulate(layer.elements for layer in layers)]
    taken = [*(layer.taken for layer in layers), layers[-1].made]  # a chunk without layers takes what others have made

    def needed(chunk, start, end):
        versions = open_at_most[chunk] if named.in_flight and named.stash else 1
        kept, gradients = elements[end] - elements[start], gradients_kept(micro_batches)
        held, shared = parameters[end] - parameters[start], map(max, zip((0, 0), *(one.shared for one in layers[start:end])))
        return sum(memory_of(itemsize, held, open_at_most[chunk] * kept, *shared, gradients, versions).values())

    def longest(chunk, start, end):
        found = seconds[end] - seconds[start]
        if chunk and places[chunk] != places[chunk - 1]:
            found += 2 * sum(message_seconds(sizes, machine, places[chunk - 1], places[chunk], taken[start]))
        return found

    def fitting(chunk, start, end):
        fits = needed(chunk, start, end) <= memory / len(route.held(places[chunk]))
        return longest(chunk, start, end) if fits else inf

    return shortest(len(layers), route.chunks, fitting) or shortest(len(layers), route.chunks, longest)
