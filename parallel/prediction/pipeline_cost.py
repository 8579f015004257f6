"""The predicted time of a training step of a pipeline: its schedule, played through in virtual time.

| what                     | how long it takes                                                                                |
|--------------------------|--------------------------------------------------------------------------------------------------|
| F, I, W, and B = I + W   | the passes of the chunk for a micro-batch, with the collectives within its stage                 |
| adding up gradients      | a pass over the parameters, in W or B of every micro-batch                                       |
| U                        | the sums of gradients in full, as if they began after the last backward, and the update          |
| SEND, RECV               | of a partition: the copies into messages and out of them                                         |
| a message                | an exchange between two ranks of the machine file                                                |

A chunk is on one stage (`pipeline_step_time`), or it is what a hypergraph partition computes between two exchanges, and every
rank has its part of it (`partition_step_time`). All times are those of the rank with the most work along the other axes. As in
training, no barrier divides steps, and no sender waits for a message. Links and shared cores are as in
`parallel/grid/virtual_time.py`. The planner compares `SCHEDULES` with `MULTIPLES` of micro-batches. Those with the lowest
bounds come first, until no other can be faster: passes spread evenly over the ranks, or the longest layer alone, bound it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import inf

from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.process_grid import BATCH, MODEL, STAGE
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.generators import repeat
from gridgrad.parallel.pipeline.schedule import Route, Schedule
from gridgrad.parallel.pipeline.simulate import Memory, Simulation, TableTimes, simulate
from gridgrad.parallel.placement.plan import weighted_in
from gridgrad.parallel.plans.hypergraph import between_exchanges
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.prediction.chunk_cost import OPS, chunk_costs, cost_of, layer_costs, message_seconds, planned_cuts
from gridgrad.parallel.prediction.cost import local_shape
from gridgrad.parallel.prediction.critical_path import grids_of_ranks
from gridgrad.parallel.prediction.machine import Machine
from gridgrad.parallel.prediction.step_prediction import RankStep, StepPrediction, gradients_kept, memory_of
from gridgrad.parallel.prediction.workload import Workload

STEPS = 3  # that are played; the last one counts, because the ranks begin it at different times as in training
SCHEDULES = "zb-h1", "1f1b", "interleaved:2"
MULTIPLES = 1, 2, 4  # micro-batches for each stage


@dataclass(frozen=True)
class PipelinePrediction(StepPrediction):
    """A predicted training step of a pipeline; of an asynchronous one, per minibatch."""

    pipeline: str  # the name of the schedule
    micro_batches: int
    cuts: tuple | None  # where chunks begin; None of a partition
    chunks: dict  # {(rank, chunk): the ChunkCost of what the rank has of it}
    schedule: Schedule  # of one step, complete; of an asynchronous pipeline, of several minibatches
    times: TableTimes
    played: Simulation  # of several steps
    counted: tuple  # the numbers of the two updates between which the time counts, from 0

    def held(self, rank):
        """The ChunkCosts of a rank."""
        return [self.chunks[rank, chunk] for chunk in self.schedule.route.held(rank)]


@dataclass(frozen=True)
class PipelineWork:
    """What the ranks of a pipeline compute and send for a micro-batch, whatever the schedule."""

    chunks: dict  # {(rank, chunk): ChunkCost}
    sent: dict  # {(sender, receiver, SEND_F or SEND_B, chunk): bytes}
    sizes: dict  # {axis: ranks}
    axis: str  # along which the ranks are
    machine: Machine
    itemsize: int
    copies: dict = field(default_factory=dict)  # {(rank, op, chunk): seconds} of copies into messages and out of them

    def step(self, named, make, micro_batches, cuts=None, gradients=0):
        """The PipelinePrediction of a ScheduleSpec. gradients: of all parameters, kept of other minibatches."""
        ranks = self.sizes.get(self.axis, 1)
        if named.in_flight:
            settled = ranks + min(named.in_flight, 4 * ranks)  # minibatches until the pipeline is full, or drains again
            schedule, steps, counted = named.complete(make(4 * settled)), 1, (settled, 3 * settled)
        else:
            schedule, steps, counted = named.complete(make(micro_batches)), STEPS, (STEPS - 2, STEPS - 1)
        times, memory = self._times(micro_batches), self._memory(bool(named.in_flight) and named.stash)
        played = simulate(repeat(schedule, steps), times, memory, self.machine.sharing[1])
        updates = [[event.stop for event in row if event.instruction.op == "U"] for row in played.events]
        first, last = (max(ends[number] for ends in updates) for number in counted)
        seconds = (last - first) / (counted[1] - counted[0])
        gradients += gradients_kept(micro_batches)
        found = tuple(self._rank_step(rank, played, seconds, micro_batches, gradients) for rank in range(ranks))
        parts = self._parts(max(range(ranks), key=lambda rank: found[rank].busy), found, micro_batches)
        how = named.name, micro_batches, cuts, self.chunks, schedule
        return PipelinePrediction(seconds, found, parts, *how, times, played, counted)

    def held(self, rank):
        """The ChunkCosts of a rank."""
        return [chunk for (place, _), chunk in self.chunks.items() if place == rank]

    def _times(self, micro_batches):
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

    def _memory(self, stash):
        """The Memory of activations, of the gradients that W needs between I and W, and of parameters."""
        activations = {place: cost.elements * self.itemsize for place, cost in self.chunks.items()}
        postponed = {place: cost.postponed * self.itemsize for place, cost in self.chunks.items()}
        weights = {place: cost.parameters * self.itemsize for place, cost in self.chunks.items()}
        return Memory(activations, postponed, weights, stash)

    def _rank_step(self, rank, played, seconds, micro_batches, gradients):
        """The RankStep of a rank. seconds: of a step."""
        held, row = self.held(rank), played.schedule.rows[rank]
        busy = played.busy[rank] / sum(one.op == "U" for one in row)
        received = sum(one.op.startswith("RECV") for one in row) * micro_batches / played.schedule.micro_batches
        sent = [nbytes for (sender, *_), nbytes in self.sent.items() if sender == rank]
        parameters, waiting = sum(chunk.parameters for chunk in held), max(0.0, seconds - busy)
        # activations: all that is kept for micro-batches, versions of parameters too; the rest is for one of them at a time
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

    def _parts(self, rank, ranks, micro_batches):
        """The `parts` of the StepPrediction that a rank bounds. ranks: the RankSteps of all."""
        held, mine = self.held(rank), ranks[rank]
        sums, moving = sum(chunk.sums for chunk in held), micro_batches * sum(chunk.moving for chunk in held)
        update = sum(chunk.seconds["U"] for chunk in held) - sums
        compute = mine.busy - update - sums - moving
        return {"compute": compute, "update": update, "gradients": sums, "activations": moving, "waiting": mine.waiting}


# ----- stages


def pipeline_step_time(net, asked, batch_size, machine):
    """The PipelinePrediction of a network on a grid with stages. asked: a PlacementSpec with grid, plan and pipelines, by
    default 1f1b with the micro-batches of a ScheduleSpec and the cuts of `planned_cuts`. ValueError if they do not fit."""
    pipeline, stages, cuts = asked.pipelines.pipeline, asked.grid[STAGE], asked.pipelines.cuts
    named = schedule_names.parse("1f1b" if pipeline is None else pipeline)
    micro_batches = named.micro_batches(stages, asked.pipelines.micro_batches)
    if micro_batches > batch_size:
        raise ValueError(f"{micro_batches} micro-batches of a minibatch of {batch_size}: use at most one for each sample")
    samples = -(-batch_size // micro_batches)
    if cuts is None:
        layers = layer_costs(net, asked, samples, machine)
        cuts = planned_cuts(layers, asked, machine, named, micro_batches, net.dtype.itemsize)
    named.check_cuts(cuts, stages)
    work = stage_work(net, asked, samples, machine, cuts, named.route(stages))
    return work.step(named, partial(named.schedule, stages), micro_batches, tuple(cuts))


def stage_work(net, asked, samples, machine, cuts, route, at=None):
    """The PipelineWork of the stages of a network. route: which stage has which chunk; the others as for `chunk_costs`."""
    costs, sent = chunk_costs(net, asked, samples, machine, cuts, at), {}
    chunks = {(rank, chunk): costs[chunk] for rank in range(route.ranks) for chunk in route.held(rank)}
    for chunk, (before, here) in enumerate(pairwise(stage for (stage,) in route.places), 1):
        if before != here:
            sent[before, here, "SEND_F", chunk - 1] = sent[here, before, "SEND_B", chunk] = costs[chunk].taken
    return PipelineWork(chunks, sent, asked.grid, STAGE, machine, net.dtype.itemsize)


@dataclass(frozen=True)
class Pipelines:
    """What is asked for of a pipeline; what is None is chosen."""

    pipeline: str | None = None  # the name of a schedule
    micro_batches: int | None = None  # of a minibatch
    cuts: Sequence[int] | None = None  # the positions in `net.layers` at which new chunks begin

    @property
    def is_asked_for(self):
        """Whether there must be a pipeline."""
        return self.pipeline is not None or self.cuts is not None

    def options(self, net, stages, most):
        """Yield (ScheduleSpec, number of micro-batches). most: micro-batches that leave no rank without a sample."""
        parts = sum(bool(weighted_in([layer])) for layer in net.layers)
        for name in [self.pipeline] if self.pipeline else SCHEDULES:
            named = schedule_names.parse(name)
            chunks = named.route(stages).chunks
            if not self.is_asked_for and chunks > max(parts, stages) or self.cuts is not None and chunks != len(self.cuts) + 1:
                continue
            if self.micro_batches or named.file or named.in_flight:
                yield named, named.micro_batches(stages, self.micro_batches)
            else:
                for count in sorted({max(1, min(multiple * stages, most)) for multiple in MULTIPLES}):
                    yield named, count

    def times(self, net, asked, batch_size, machine, limit=inf):
        """Yield the PipelinePredictions of the options on a grid, as long as one may take less than `limit` seconds; none if
        the cuts do not fit. asked: a PlacementSpec with grid, plan and memory. ValueError if other things do not fit."""
        stages, layers, bounds = asked.grid[STAGE], {}, []
        for named, count in self.options(net, stages, batch_size // asked.grid[BATCH]):
            if count not in layers:
                layers[count] = layer_costs(net, asked, -(-batch_size // count), machine)
            computed = [layer.computed for layer in layers[count]]
            bounds.append((count * max(sum(computed) / stages, max(computed)), len(bounds), named, count))
        for bound, _, named, count in sorted(bounds):
            if bound > limit:
                break
            cuts = self.cuts
            if cuts is None:
                cuts = planned_cuts(layers[count], asked, machine, named, count, net.dtype.itemsize)
            chosen = replace(asked, pipelines=Pipelines(named.name, count, cuts))
            found = pipeline_step_time(net, chosen, batch_size, machine)
            if found.memory <= asked.memory:
                limit = min(limit, found.seconds)
            yield found


# ----- hypergraph partitions


def partition_step_time(net, asked, batch_size, machine):
    """The PipelinePrediction of a network whose parts have owners, in the order of training (`times_of_work`). asked: a
    PlacementSpec with grid, plan, owners and pipelines. ValueError if they do not fit, or if branches exchange channels."""
    named, ranks = schedule_names.parse(asked.pipelines.pipeline), asked.grid.get(MODEL, 1)
    micro_batches = named.micro_batches(ranks, asked.pipelines.micro_batches)
    if micro_batches > (1 if named.in_flight else batch_size):
        raise ValueError(f"pipeline {named.name} has no {micro_batches} micro-batches of a minibatch of {batch_size}")
    samples = -(-batch_size // micro_batches)
    work, route, works = partition_work(net, asked, samples, machine, grids_of_ranks(net, asked, machine))
    order = times_of_work(works)
    others = (named.in_flight or 1) - 1  # gradients of several minibatches at a time
    return work.step(named, lambda count: named.schedule_on(route, count, order), micro_batches, gradients=others)


def partition_work(net, asked, samples, machine, grids):
    """(PipelineWork, Route, [`chunk_works` of each rank]) of parts with owners. samples: of a global micro-batch."""
    parts, senders, copies, sent, works = {}, {}, {}, {}, []
    for rank, grid in enumerate(grids):
        work, costs, exchanged = _of_rank(net, grid, asked, samples, machine)
        works.append(work)
        parts |= {(rank, number): cost for number, cost in enumerate(costs)}
        for number, (messages, seconds) in enumerate(exchanged, 1):
            chunks = {"SEND_F": number - 1, "RECV_F": number, "SEND_B": number, "RECV_B": number - 1}
            copies |= {(rank, op, chunks[op]): taken for op, taken in seconds.items()}
            for op, other, nbytes in messages:
                sent[rank, other, op, chunks[op]] = nbytes
                if op == "SEND_F":
                    senders.setdefault(number, {}).setdefault(other, []).append(rank)
    route = Route.everywhere(len(grids), [senders.get(number, {}) for number in range(len(works[0]))])
    return PipelineWork(parts, sent, asked.grid, MODEL, machine, net.dtype.itemsize, copies), route, works


def _of_rank(net, grid, asked, samples, machine):
    """(the `chunk_works` of a rank, the ChunkCosts of its chunks, for each exchange what `_exchanged` says of it)."""
    placed, itemsize = place(net, grid, asked.plan, None, asked.owners), net.dtype.itemsize
    chunks, exchanges = between_exchanges(placed.layers)
    shape, first, costs, exchanged = local_shape(placed.input, samples, grid), True, [], []
    for number, chunk in enumerate(chunks):
        if number:
            shape, *found = _exchanged(exchanges[number - 1], shape, samples, itemsize, machine, grid)
            exchanged.append(found)
        workload = Workload(shape, samples, itemsize)
        workload.first = first
        costs.append(cost_of(workload, chunk, grid, machine, number == len(chunks) - 1))
        shape, first = workload.shape, workload.first
    return chunk_works(placed, chunks, grid), costs, exchanged


def _exchanged(exchange, shape, samples, itemsize, machine, grid):
    """(shape behind an exchange, [(SEND_F or SEND_B, receiver, bytes)], {SEND_F, RECV_F, SEND_B or RECV_B: seconds of copies})
    of a rank. shape: of its array before the exchange, samples first."""
    workload = Workload(shape, samples, itemsize)
    workload.first = False  # gradients always travel back
    workload.go([exchange])
    messages, seconds, gone = [], dict.fromkeys(("SEND_F", "RECV_F", "SEND_B", "RECV_B"), 0.0), set()
    for work in workload.works:
        way = OPS[work.phase].replace("I", "B")
        if work.group:
            gone.add(way)
            messages += [(f"SEND_{way}", other, nbytes) for other, nbytes in work.messages(itemsize).items()]
        else:  # copies into messages come before the exchange, those out of them behind it
            seconds[f"{'RECV' if way in gone else 'SEND'}_{way}"] += work.seconds(machine, grid.size, itemsize)
    return workload.shape, messages, seconds


def chunk_works(placed, chunks, grid):
    """[floating-point operations of the forward pass of each chunk on this rank], for a minibatch of one sample a rank."""
    samples = grid.sizes[BATCH]
    workload = Workload(local_shape(placed.input, samples, grid), samples)
    workload.go(placed.layers)
    forward = [work for work in workload.works if work.phase == "forward"]
    names = [{layer.name for layer in leaves(chunk)} for chunk in chunks]
    return [sum(work.flops for work in forward if work.layer in inside) for inside in names]


def times_of_work(works):
    """The TableTimes by which the ranks of a partition choose an order. works: for each rank its `chunk_works`."""
    passes = {"F": 1.0, "B": 2.0}
    parts = [(rank, chunk, work) for rank, of in enumerate(works) for chunk, work in enumerate(of)]
    return TableTimes({(rank, op, chunk): passes[op] * work for rank, chunk, work in parts for op in passes})
