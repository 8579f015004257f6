"""What each rank does in a training step, one action after another, for simulators that have rules of their own: the Works that
the cost model prices and, of a pipeline, its instructions. Only how long a collective or a message takes is left open.

A collective stands where its rank waits for it; only the sum of the value of the loss, which overlaps with all of backward, is
moved behind the sums of gradients, where it is waited for. What else overlaps with computing does not overlap here.
"""

from typing import NamedTuple

from gridgrad.parallel.grid.process_grid import AXES, MODEL, STAGE, GridDescription, places
from gridgrad.parallel.pipeline.schedule import other_end, peers, with_announcements
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.pipeline_cost import partition_work, pipeline_step_time, stage_work


class Compute(NamedTuple):
    """An operation, with the seconds that the machine file gives it."""

    layer: str  # the name of what it belongs to
    seconds: float  # copies included
    flops: float = 0.0


class Collective(NamedTuple):
    """A collective of a group, with what this rank sends."""

    layer: str
    kind: str  # a row of `parallel/grid/collectives.py`
    ranks: tuple  # the numbers of those of its group, in its order
    place: int  # of this rank among them
    nbytes: int  # that this rank sends
    messages: dict | None = None  # {place of another rank: bytes for it alone}; None where all work together in an algorithm


class Send(NamedTuple):
    """A message of a pipeline, for which the rank does not wait."""

    receiver: int
    nbytes: int
    tag: int  # of this message, the same at the receiver, and from 1


class Expect(NamedTuple):
    """The same at its receiver, which announces it some instructions before it needs it."""

    sender: int
    nbytes: int
    tag: int


class Receive(NamedTuple):
    """The receiver waits for it."""

    sender: int
    nbytes: int
    tag: int


def step_actions(net, asked, batch_size, machine):
    """[the actions of each rank of a grid in a training step]. asked: a PlacementSpec with grid and plan. All micro-batches
    count as large as the largest one. ValueError if these do not fit, or if the steps of a pipeline overlap (async:K)."""
    sizes = {axis: asked.grid.get(axis, 1) for axis in AXES}
    grids = [GridDescription(sizes, at, machine.node["ranks"]) for at in places(sizes)]
    if sizes[STAGE] > 1:
        return _of_pipeline(net, asked, batch_size, machine, grids, STAGE)
    if asked.owners is not None and asked.pipelines is not None and asked.pipelines.pipeline is not None:
        return _of_pipeline(net, asked, batch_size, machine, grids, MODEL)
    first = Cost(net, grids[0], asked.plan, batch_size, machine, asked.shares, asked.owners)
    plan, actions = first.placed.plan, []  # the plan is chosen once, and not for each rank
    for grid in grids:
        cost = Cost(net, grid, plan, batch_size, machine, asked.shares, asked.owners)
        *works, update = [work for work in cost.executed if work.is_awaited]
        loss = [work for work in cost.executed if not work.is_awaited]
        actions.append(list(_of_works([*works, *loss, update], grid, machine, cost.itemsize)))
    return actions


def _of_works(works, grid, machine, itemsize):
    """Yield the actions for Works."""
    for work in works:
        if work.group is None:
            yield Compute(work.layer, work.seconds(machine, grid.size, itemsize), work.flops)
            continue
        if wait := machine.core.get("wait", 0.0):
            yield Compute(work.layer, wait)
        messages = work.messages(itemsize)
        yield Collective(work.layer, work.name, grid.ranks_of(work.group), work.group.rank, work.nbytes, messages)


def _of_pipeline(net, asked, batch_size, machine, grids, axis):
    """The actions of ranks that follow the schedule of a pipeline: of stages, or of a partition along the axis model."""
    found = pipeline_step_time(net, asked, batch_size, machine)
    if not found.schedule.synchronous:
        raise ValueError(f"pipeline {found.pipeline}: its steps overlap, so that there is no single step to write")
    samples = -(-batch_size // found.micro_batches)
    works, actions = {}, []  # works: {coordinates along the other axes: the PipelineWork of the ranks along this one}
    for grid in grids:
        others = tuple(at for other, at in grid.coordinates.items() if other != axis)
        if others not in works and axis == STAGE:
            works[others] = stage_work(net, asked, samples, machine, found.cuts, found.schedule.route, grid.coordinates)
        elif others not in works:
            beside = [one for one in grids if one.coordinates | {MODEL: 0} == grid.coordinates | {MODEL: 0}]
            works[others] = partition_work(net, asked, samples, machine, beside)
        actions.append(list(_of_row(found, works[others], axis, grid)))
    return actions


def _of_row(found, work, axis, grid):
    """Yield the actions of one rank of a pipeline. work: the PipelineWork of the ranks beside it along the axis."""
    rank, route, machine = grid.coordinates[axis], found.schedule.route, work.machine

    def messages(instruction):
        """Yield (other rank, bytes, tag) of the messages of a SEND or RECV."""
        sends = instruction.op.startswith("SEND")
        send = instruction if sends else other_end(instruction)
        tag = 1 + 2 * (send.micro_batch * route.chunks + send.chunk) + (send.op == "SEND_B")
        for other in peers(route, rank, instruction):
            ends = (rank, other) if sends else (other, rank)
            if nbytes := work.sent.get((*ends, send.op, send.chunk), 0):
                yield grid.rank_beside(axis, other), nbytes, tag

    for instruction, announced in with_announcements(found.schedule.rows[rank]):
        yield from (Expect(*message) for one in announced for message in messages(one))
        op, chunk, _ = instruction
        copies = work.copies.get((rank, op, chunk), 0.0)
        if op.startswith("SEND"):
            if copies:
                yield Compute(op, copies)
            yield from (Send(*message) for message in messages(instruction))
        elif op.startswith("RECV"):
            yield from (Receive(*message) for message in messages(instruction))
            if copies:
                yield Compute(op, copies)
        elif op == "U":
            if step := machine.core.get("step", 0.0):
                yield Compute("step", step)
            for held in work.held(rank):
                yield from _of_works(held.works_of(op), grid, machine, work.itemsize)
        else:
            held = work.chunks[rank, chunk]
            yield from _of_works(held.works_of(op), grid, machine, work.itemsize)
            if op in "WB" and found.micro_batches > 1 and held.added:
                yield Compute("add", held.added)
