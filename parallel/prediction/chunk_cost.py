"""The predicted cost of the chunks of a network, which a pipeline runs one micro-batch at a time."""

from dataclasses import dataclass
from math import prod

from gridgrad.parallel.grid.grid_description import GridDescription
from gridgrad.parallel.grid.process_grid import STAGE
from gridgrad.parallel.plans.place_network import check_cuts, place
from gridgrad.parallel.prediction.cost import busiest_of, local_shape
from gridgrad.parallel.prediction.workload import Workload

OPS = {"forward": "F", "backward": "I", "gradients": "W", "loss": "I", "update": "U"}  # of a schedule, by phases of Works


@dataclass(frozen=True)
class ChunkCost:
    """What a chunk costs the rank with the most work of those that hold a part of it.

    seconds: {op: seconds}, of "F", "I" and "W" for one micro-batch and of "U", the sums of gradients and the update, for a
    step. sums: the seconds of the sums alone. moving: the seconds of F, I and W in which the rank communicates with others of
    its stage. added: the seconds of adding the gradients of a micro-batch to those of others. collectives: the numbers of them
    in the passes of one micro-batch and in U, a tuple; sent: the bytes that the rank sends in them.
    parameters: how many the rank holds. elements, postponed, shared: numbers of elements as a Workload counts them, for one
    micro-batch; what is shared serves all. taken, made: bytes that the chunk takes from the one before it, and makes for the
    one behind it, for one micro-batch. flops: of one micro-batch. works: the Works of one micro-batch and of the update, in the
    order of execution, without the sum of the value of the loss, for which nobody waits.
    """

    seconds: dict
    sums: float
    moving: float
    added: float
    collectives: tuple
    sent: tuple
    parameters: int
    elements: int
    postponed: int
    shared: tuple
    taken: int
    made: int
    flops: float
    works: tuple = ()

    @property
    def computed(self):
        """Seconds of the passes for one micro-batch."""
        return sum(self.seconds[op] for op in "FIW")

    def works_of(self, op):
        """The Works of F, I, W, B or U, in the order of execution."""
        return [work for work in self.works if OPS[work.phase] in ("IW" if op == "B" else op)]


def chunk_costs(net, asked, samples, machine, cuts, at=None):
    """The ChunkCost of each chunk of a network, whatever stage it is on.

    net: a serial Sequential; if it takes images, it must have an `input_shape`. asked: a PlacementRequest with grid, plan and
    shares. samples: of a global micro-batch. machine: a Machine. cuts: the positions in `net.layers` at which new chunks begin.
    at: the coordinates of the rank along the other axes, by default those of the rank with the most work.
    ValueError if the plan, the shares or the cuts do not fit.
    """
    check_cuts(cuts, net.layers)
    at = busiest_of(net, asked, machine).coordinates if at is None else at
    grid = GridDescription(asked.grid, at | {STAGE: 0}, machine.node["ranks"])
    placed = place(net, grid, asked.plan, asked.shares, None, cuts, [0] * (len(cuts) + 1))  # as if one rank had all chunks
    found = []
    for number, chunk in enumerate(placed.chunks):
        workload = Workload(local_shape(placed.between[number], samples, grid), samples, net.dtype.itemsize)
        workload.first = number == 0
        found.append(cost_of(workload, chunk, grid, machine, number == len(cuts)))
    return found


def layer_costs(net, asked, samples, machine):
    """The ChunkCost of each layer of `net.layers` as a chunk of its own; see `chunk_costs`."""
    return chunk_costs(net, asked, samples, machine, [*range(1, len(net.layers))])


def cost_of(workload, chunk, grid, machine, is_last):
    """The ChunkCost of a chunk, a list of layers, through which a Workload goes. is_last: whether the loss is behind it."""
    taken = prod(workload.shape) * workload.itemsize
    workload.go(chunk)
    made = prod(workload.shape) * workload.itemsize
    if is_last:
        workload.loss(grid)
    workload.update(chunk, grid)
    seconds, moving, sums, collectives, sent = dict.fromkeys("FIWU", 0.0), 0.0, 0.0, [0, 0], [0, 0]
    works = [work for work in workload.works if is_awaited(work)]
    for work in works:
        op, price = OPS[work.phase], seconds_of_micro_batch(work, machine, grid.size, workload.itemsize)
        seconds[op] += price
        if work.group:
            collectives[op == "U"] += 1
            sent[op == "U"] += work.nbytes
            moving += price if op != "U" else 0.0
            sums += price if op == "U" else 0.0
    parameters, itemsize = workload.parameters, workload.itemsize
    added = machine.operation_seconds("add.forward", (parameters,), 1.0, 0, 3 * parameters * itemsize, itemsize, grid.size)
    added = added if parameters else 0.0
    flops = sum(work.flops for work in works if work.phase != "update")
    done = tuple(collectives), tuple(sent)
    executed = tuple(work for work in workload.executed if is_awaited(work))
    memory = parameters, workload.elements, workload.postponed, workload.shared
    return ChunkCost(seconds, sums, moving, added, *done, *memory, taken, made, flops, executed)


def is_awaited(work):
    """Whether a rank of a pipeline waits for a Work: it does so for all but the sum of the value of the loss."""
    return not (work.phase == "loss" and work.group)


def seconds_of_micro_batch(work, machine, ranks, itemsize):
    """Predicted seconds of a Work of one micro-batch: those that a whole step takes once (`step`) are not counted."""
    return work.seconds(machine, ranks, itemsize) - machine.core.get("step", 0.0) * (work.name == "loss")


def message_seconds(sizes, machine, sender, receiver, nbytes, axis=STAGE):
    """(latency, occupied) in seconds of a message between two ranks of an axis: see `Machine.message_seconds`.

    sizes: {axis: number of ranks}.
    """
    grid = GridDescription(sizes, None, machine.node["ranks"])
    on_node = grid.group(axis).on_node
    return machine.message_seconds(sender // on_node == receiver // on_node, nbytes, grid.size)
