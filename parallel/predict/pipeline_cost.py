"""The predicted time of a training step of a pipeline: its schedule, played through in virtual time.

| what                     | how long it takes                                                                              |
|--------------------------|------------------------------------------------------------------------------------------------|
| F, I, W, and B = I + W   | the passes of the chunk for a micro-batch, with the collectives within its stage                |
| adding up gradients      | a pass over the parameters, in W or B of every micro-batch                                      |
| U                        | the sums of gradients in full, as if they began after the last backward, and the update         |
| a message between stages | an exchange between two ranks of the machine file; a rank's messages leave one after another    |

All are those of the rank with the most work of each stage. Steps are not divided by a barrier, as in training. Where ranks
share cores, computing takes less time the more the ranks wait, because a rank that waits yields its core.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import inf

from gridgrad.parallel.grid.process_grid import STAGE
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.memory import Memory
from gridgrad.parallel.pipeline.passes import repeat
from gridgrad.parallel.pipeline.schedule import Schedule
from gridgrad.parallel.pipeline.simulate import Simulation, simulate
from gridgrad.parallel.pipeline.times import TableTimes
from gridgrad.parallel.predict.chunk_cost import chunk_costs, fixed_copies, message_seconds
from gridgrad.parallel.predict.planned_cuts import planned_cuts

STEPS = 3  # that are played; the last one counts, because the ranks begin it at different times as in training


@dataclass(frozen=True)
class StageTime:
    """A rank of a pipeline in a step.

    busy: seconds in which it computes or communicates within its stage. idle: in which it waits for other ranks. memory: bytes
    that it needs at most. open: how many micro-batches are at most open in its chunks.
    """

    busy: float
    idle: float
    memory: float
    open: int


@dataclass(frozen=True)
class PipelineTime:
    """A predicted training step of a pipeline.

    seconds: that it takes; of an asynchronous pipeline, per minibatch. ranks: the StageTime of each rank along the axis stage.
    pipeline: the name of the schedule. micro_batches: of a minibatch. cuts: where chunks begin. chunks: their ChunkCosts.
    schedule: the Schedule of one step, complete; of an asynchronous pipeline, that of several minibatches. times: its Times.
    played: the Simulation of several steps without a barrier. counted: from the end of which update of the ranks until the end
    of which, from 0, the time in it counts; it is then in a steady state.
    """

    seconds: float
    ranks: tuple
    pipeline: str
    micro_batches: int
    cuts: tuple
    chunks: tuple
    schedule: Schedule
    times: TableTimes
    played: Simulation
    counted: tuple

    @property
    def memory(self):
        """Bytes that the rank with the most of them needs."""
        return max(rank.memory for rank in self.ranks)

    @property
    def use(self):
        """The mean share of the time in which a rank is busy."""
        return sum(rank.busy for rank in self.ranks) / (len(self.ranks) * self.seconds)

    @property
    def busiest(self):
        """The number of the rank that is busy for the longest time."""
        return max(range(len(self.ranks)), key=lambda rank: self.ranks[rank].busy)

    def held(self, rank):
        """The ChunkCosts of a rank."""
        return [self.chunks[chunk] for chunk in self.schedule.route.held(rank)]

    @property
    def parts(self):
        """Seconds of the step of the busiest rank by what takes them, named as in `Cost.parts`, and "waiting" for stages."""
        rank = self.ranks[self.busiest]
        held = self.held(self.busiest)
        sums, moving = sum(chunk.sums for chunk in held), self.micro_batches * sum(chunk.moving for chunk in held)
        update = sum(chunk.seconds["U"] for chunk in held) - sums
        compute = rank.busy - update - sums - moving
        return {"compute": compute, "update": update, "gradients": sums, "activations": moving, "waiting": rank.idle}

    @property
    def collectives(self):
        """How many collectives, and messages of other stages, the busiest rank takes part in or waits for in a step."""
        held, row = self.held(self.busiest), self.schedule.rows[self.busiest]
        received = sum(one.op.startswith("RECV") for one in row) / (self.schedule.micro_batches / self.micro_batches)
        return round(received) + sum(chunk.collectives[0] * self.micro_batches + chunk.collectives[1] for chunk in held)


def pipeline_step_time(
    net, sizes, plan, batch_size, machine, pipeline="1f1b", micro_batches=None, cuts=None, memory=inf, shares=None
):  # fmt: skip
    """The PipelineTime of a network on a grid with the axis `stage`.

    net: a serial Sequential; if it takes images, it must have an `input_shape`. sizes: {axis: number of ranks}. plan, shares:
    see `parallelize`. batch_size: of the global minibatch. machine: a Machine. pipeline: the name of a schedule
    (`parallel/pipeline/schedule_names.py`) or a result of `schedule_names.parse`. micro_batches: into how many parts a
    minibatch is cut; by default 4 for each stage, and 1 for an asynchronous schedule. cuts: the positions in `net.layers` at
    which new chunks begin; by default those of `planned_cuts`, which looks at `memory`, the bytes that a rank may use.
    ValueError if they do not fit each other.
    """
    named, stages = schedule_names.parse(pipeline) if isinstance(pipeline, str) else pipeline, sizes[STAGE]
    route = named.route(stages)
    micro_batches = named.micro_batches(stages, micro_batches)
    if micro_batches > batch_size:
        raise ValueError(f"{micro_batches} micro-batches of a minibatch of {batch_size}: use at most one for each sample")
    if cuts is None:
        cuts = planned_cuts(net, sizes, plan, batch_size, machine, named, micro_batches, memory, shares)
    named.check_cuts(cuts, stages)
    chunks = chunk_costs(net, sizes, plan, -(-batch_size // micro_batches), machine, cuts, shares)
    times = times_of(chunks, route, sizes, machine, micro_batches)
    memory = memory_of(held_by(chunks, route), net.dtype.itemsize, named)
    make = partial(named.schedule, stages)
    schedule, played, times, window = play(named, make, stages, micro_batches, times, memory, machine)
    held = [[chunks[chunk] for chunk in route.held(rank)] for rank in range(stages)]
    seconds, ranks = stage_times(played, window, held, fixed_copies(micro_batches), net.dtype.itemsize)
    return PipelineTime(seconds, ranks, named.name, micro_batches, tuple(cuts), tuple(chunks), schedule, times, played, window)


def times_of(chunks, route, sizes, machine, micro_batches):
    """The TableTimes of chunks with these ChunkCosts on the stages of a Route."""
    flights = {}
    for chunk in range(1, route.chunks):
        (before,), (here,) = route.places[chunk - 1], route.places[chunk]
        if before != here:
            for sender, receiver, op, of in ((before, here, "SEND_F", chunk - 1), (here, before, "SEND_B", chunk)):
                latency, occupied = message_seconds(sizes, machine, sender, receiver, chunks[chunk].taken)
                flights[sender, receiver, op, of] = latency + machine.core.get("wait", 0.0), occupied
    return TableTimes(computing(held_by(chunks, route), machine, micro_batches), flights)


def held_by(chunks, route):
    """{(rank, chunk): its ChunkCost} of whole chunks on the stages of a Route."""
    return {(rank, chunk): chunks[chunk] for rank in range(route.ranks) for chunk in route.held(rank)}


def computing(parts, machine, micro_batches):
    """The table of a TableTimes, without messages. parts: {(rank, chunk): its ChunkCost}."""
    table = {(rank, "U", None): machine.core.get("step", 0.0) for rank, _ in parts}
    for (rank, chunk), cost in parts.items():
        for op in "FIW":
            table[rank, op, chunk] = cost.seconds[op] + (cost.added if op == "W" and micro_batches > 1 else 0.0)
        table[rank, "U", None] += cost.seconds["U"]
    return table


def memory_of(parts, itemsize, named):
    """The Memory of {(rank, chunk): its ChunkCost}: parameters, and activations; between I and W also their gradients."""
    activations = {place: cost.elements * itemsize for place, cost in parts.items()}
    weights = {place: cost.parameters * itemsize for place, cost in parts.items()}
    return Memory(activations, activations, weights, stash=bool(named.in_flight) and named.stash)


def play(named, make, ranks, micro_batches, times, memory, machine):
    """Play a pipeline into its steady state; see `PipelineTime` for the results: (schedule, played, times, counted).

    named: the schedule, a result of `schedule_names.parse`. make: a function of a number of micro-batches that returns its
    Schedule without messages. ranks: of the pipeline. micro_batches: of a step. times: the TableTimes while all ranks compute.
    memory: a Memory.
    """
    if named.in_flight:
        settled = ranks + min(named.in_flight, 4 * ranks)  # minibatches until the pipeline is full, or drains again
        schedule, steps, counted = named.complete(make(4 * settled)), 1, (settled, 3 * settled)
    else:
        schedule, steps, counted = named.complete(make(micro_batches)), STEPS, (STEPS - 2, STEPS - 1)
    played = simulate(repeat(schedule, steps), times, memory)
    crowd = machine.core.get("crowd", 1)
    if crowd > 1:
        faster = max(1 / crowd, played.use)
        times = replace(times, table={key: value * faster for key, value in times.table.items()})
        played = simulate(played.schedule, times, memory)
    return schedule, played, times, counted


def stage_times(played, counted, held, copies, itemsize):
    """(seconds of a step, a tuple of the StageTimes of all ranks).

    held: for each rank, its ChunkCosts. copies: how many arrays as large as the parameters a rank keeps beside them.
    """
    seconds, ranks = period(played, *counted), []
    updates = sum(one.op == "U" for one in played.schedule.rows[0])
    for rank, chunks in enumerate(held):
        beside = copies * sum(chunk.parameters for chunk in chunks)
        beside += max(chunk.elements for chunk in chunks)  # gradients of the outputs of layers, of one micro-batch at a time
        kept, busy = played.peak_memory[rank] + beside * itemsize, played.busy[rank] / updates
        ranks.append(StageTime(busy, max(0.0, seconds - busy), kept, played.peak_open[rank]))
    return seconds, tuple(ranks)


def period(played, first, last):
    """Seconds of a step: from when all ranks have done their update `first` until they have done `last`, counted from 0."""
    ends = [[event.stop for event in row if event.instruction.op == "U"] for row in played.events]
    return (max(of[last] for of in ends) - max(of[first] for of in ends)) / (last - first)
