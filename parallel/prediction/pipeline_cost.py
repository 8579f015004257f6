"""The predicted time of a training step of a pipeline: its schedule, played through in virtual time.

| what                     | how long it takes                                                                              |
|--------------------------|------------------------------------------------------------------------------------------------|
| F, I, W, and B = I + W   | the passes of the chunk for a micro-batch, with the collectives within its stage                |
| adding up gradients      | a pass over the parameters, in W or B of every micro-batch                                      |
| U                        | the sums of gradients in full, as if they began after the last backward, and the update         |
| a message between stages | an exchange between two ranks of the machine file                                              |

All are those of the rank with the most work of each stage. Steps are not divided by a barrier, as in training. Messages travel
over the links of their sender and their receiver, and ranks share cores, as in `parallel/grid/virtual_time.py`.
"""

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from gridgrad.parallel.grid.process_grid import STAGE
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.generators import repeat
from gridgrad.parallel.pipeline.schedule import Schedule
from gridgrad.parallel.pipeline.simulate import Memory, Simulation, TableTimes, simulate
from gridgrad.parallel.prediction.chunk_cost import chunk_costs, layer_costs, message_seconds
from gridgrad.parallel.prediction.machine import Machine
from gridgrad.parallel.prediction.planned_cuts import planned_cuts
from gridgrad.parallel.prediction.step_prediction import RankStep, StepPrediction, gradients_kept, memory_of

STEPS = 3  # that are played; the last one counts, because the ranks begin it at different times as in training


@dataclass(frozen=True)
class PipelinePrediction(StepPrediction):
    """A predicted training step of a pipeline; of an asynchronous one, per minibatch.

    pipeline: the name of the schedule. micro_batches: of a minibatch. cuts: where chunks begin, or None of a partition.
    chunks: {(rank, chunk): the ChunkCost of what the rank has of it}.
    schedule: the Schedule of one step, complete; of an asynchronous pipeline, that of several minibatches. times: its Times.
    played: the Simulation of several steps without a barrier. counted: the numbers of two updates, from 0. The time that counts
    is that between them, when the pipeline is in a steady state.
    """

    pipeline: str
    micro_batches: int
    cuts: tuple | None
    chunks: dict
    schedule: Schedule
    times: TableTimes
    played: Simulation
    counted: tuple

    def held(self, rank):
        """The ChunkCosts of a rank."""
        return [self.chunks[rank, chunk] for chunk in self.schedule.route.held(rank)]


def pipeline_step_time(net, asked, batch_size, machine):
    """The PipelinePrediction of a network on a grid with the axis `stage`.

    net: a serial Sequential; if it takes images, it must have an `input_shape`. asked: a PlacementRequest with grid, plan and
    pipelines. Of these the schedule is by default 1f1b, with 4 micro-batches for each stage, or 1 if it is asynchronous; and
    the cuts those of `planned_cuts`. batch_size: of the global minibatch. machine: a Machine.
    ValueError if they do not fit each other.
    """
    pipeline, stages, cuts = asked.pipelines.pipeline, asked.grid[STAGE], asked.pipelines.cuts
    named = schedule_names.parse("1f1b" if pipeline is None else pipeline)
    route = named.route(stages)
    micro_batches = named.micro_batches(stages, asked.pipelines.micro_batches)
    if micro_batches > batch_size:
        raise ValueError(f"{micro_batches} micro-batches of a minibatch of {batch_size}: use at most one for each sample")
    samples, itemsize = -(-batch_size // micro_batches), net.dtype.itemsize
    if cuts is None:
        cuts = planned_cuts(layer_costs(net, asked, samples, machine), asked, machine, named, micro_batches, itemsize)
    named.check_cuts(cuts, stages)
    work = stage_work(net, asked, samples, machine, cuts, route)
    return work.step(named, partial(named.schedule, stages), micro_batches, tuple(cuts))


def stage_work(net, asked, samples, machine, cuts, route, at=None):
    """The PipelineWork of the stages of a network. route: which stage has which chunk. The others: see `chunk_costs`."""
    costs, sent = chunk_costs(net, asked, samples, machine, cuts, at), {}
    chunks = {(rank, chunk): costs[chunk] for rank in range(route.ranks) for chunk in route.held(rank)}
    for chunk, (before, here) in enumerate(pairwise(place for (place,) in route.places), 1):
        if before != here:
            sent[before, here, "SEND_F", chunk - 1] = sent[here, before, "SEND_B", chunk] = costs[chunk].taken
    return PipelineWork(chunks, sent, asked.grid, STAGE, machine, net.dtype.itemsize)


@dataclass(frozen=True)
class PipelineWork:
    """What the ranks of a pipeline compute and send for a micro-batch, whatever the schedule.

    chunks: {(rank, chunk): ChunkCost}. sent: {(sender, receiver, op, chunk): bytes}. sizes: {axis: number of ranks}. axis:
    along which the ranks are. itemsize: bytes of a number. copies: {(rank, op, chunk): seconds} of the copies into messages and
    out of them.
    """

    chunks: dict
    sent: dict
    sizes: dict
    axis: str
    machine: Machine
    itemsize: int
    copies: dict = field(default_factory=dict)

    def step(self, named, make, micro_batches, cuts=None, gradients=0):
        """The PipelinePrediction.

        named: the schedule, a result of `schedule_names.parse`. make: a function of a number of micro-batches that returns its
        Schedule without messages. micro_batches: of a step. cuts: see there. gradients: of all parameters, how many a rank
        keeps of other minibatches.
        """
        ranks = self.sizes.get(self.axis, 1)
        if named.in_flight:
            settled = ranks + min(named.in_flight, 4 * ranks)  # minibatches until the pipeline is full, or drains again
            schedule, steps, counted = named.complete(make(4 * settled)), 1, (settled, 3 * settled)
        else:
            schedule, steps, counted = named.complete(make(micro_batches)), STEPS, (STEPS - 2, STEPS - 1)
        times, memory = self.times(micro_batches), self.memory(bool(named.in_flight) and named.stash)
        played = simulate(repeat(schedule, steps), times, memory, self.machine.core.get("crowd", 1))
        seconds, gradients = period(played, *counted), gradients + gradients_kept(micro_batches)
        found = tuple(self.rank_step(rank, played, seconds, micro_batches, gradients) for rank in range(ranks))
        parts = self.parts(max(range(ranks), key=lambda rank: found[rank].busy), found, micro_batches)
        return PipelinePrediction(
            seconds, found, parts, named.name, micro_batches, cuts, self.chunks, schedule, times, played, counted
        )

    def held(self, rank):
        """The ChunkCosts of a rank."""
        return [chunk for (place, _), chunk in self.chunks.items() if place == rank]

    def times(self, micro_batches):
        """The TableTimes of the instructions, while all ranks compute."""
        core, table = self.machine.core, dict(self.copies)
        for (rank, chunk), cost in self.chunks.items():
            for op in "FIW":
                table[rank, op, chunk] = cost.seconds[op] + (cost.added if op == "W" and micro_batches > 1 else 0.0)
            table[rank, "U", None] = table.get((rank, "U", None), core.get("step", 0.0)) + cost.seconds["U"]
        flights = {}
        for (sender, receiver, *send), nbytes in self.sent.items():
            latency, occupied = message_seconds(self.sizes, self.machine, sender, receiver, nbytes, self.axis)
            flights[sender, receiver, *send] = latency + core.get("wait", 0.0), occupied
        return TableTimes(table, flights)

    def memory(self, stash):
        """The Memory of parameters and activations; between I and W also of the gradients that W needs."""
        activations = {place: cost.elements * self.itemsize for place, cost in self.chunks.items()}
        weights = {place: cost.parameters * self.itemsize for place, cost in self.chunks.items()}
        postponed = {place: cost.postponed * self.itemsize for place, cost in self.chunks.items()}
        return Memory(activations, postponed, weights, stash)

    def rank_step(self, rank, played, seconds, micro_batches, gradients):
        """The RankStep of a rank. seconds: of a step."""
        held, row = self.held(rank), played.schedule.rows[rank]
        busy = played.busy[rank] / sum(one.op == "U" for one in row)
        received = sum(one.op.startswith("RECV") for one in row) * micro_batches / played.schedule.micro_batches
        sent = [nbytes for (sender, *_), nbytes in self.sent.items() if sender == rank]
        parameters, waiting = sum(chunk.parameters for chunk in held), max(0.0, seconds - busy)
        # What is kept for micro-batches counts as activations, also further versions of the parameters; the other memory is
        # that of one micro-batch at a time.
        kept = played.peak_memory[rank] // self.itemsize - parameters
        shared = map(max, zip(*(chunk.shared for chunk in held)))
        return RankStep(
            busy,
            waiting,
            bytes=micro_batches * (sum(sent) + sum(chunk.sent[0] for chunk in held)) + sum(chunk.sent[1] for chunk in held),
            messages=micro_batches * len(sent),
            collectives=round(received) + sum(chunk.collectives[0] * micro_batches + chunk.collectives[1] for chunk in held),
            memory_of=memory_of(self.itemsize, parameters, kept, *shared, gradients),
            open=played.peak_open[rank],
        )

    def parts(self, rank, ranks, micro_batches):
        """Seconds of the step of a rank by what takes them, see StepPrediction. ranks: the RankSteps of all."""
        held, mine = self.held(rank), ranks[rank]
        sums, moving = sum(chunk.sums for chunk in held), micro_batches * sum(chunk.moving for chunk in held)
        update = sum(chunk.seconds["U"] for chunk in held) - sums
        compute = mine.busy - update - sums - moving
        return {"compute": compute, "update": update, "gradients": sums, "activations": moving, "waiting": mine.waiting}


def period(played, first, last):
    """Seconds of a step: from when all ranks have done their update `first` until they have done `last`, counted from 0."""
    ends = [[event.stop for event in row if event.instruction.op == "U"] for row in played.events]
    return (max(of[last] for of in ends) - max(of[first] for of in ends)) / (last - first)
