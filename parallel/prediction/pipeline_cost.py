"""The predicted time of a training step of a pipeline: its schedule, played through in virtual time.

| what                     | how long it takes                                                                                |
|--------------------------|--------------------------------------------------------------------------------------------------|
| F, I, W, and B = I + W   | the passes of the chunk for a micro-batch, with the collectives within its stage                 |
| adding up gradients      | a pass over the parameters, in W or B of every micro-batch                                       |
| U                        | the sums of gradients in full, as if they began after the last backward, and the update          |
| SEND, RECV               | of a partition: the copies into messages and out of them                                         |
| a message                | an exchange between two ranks of the machine file                                                |

A chunk is on one stage (`stage_work`), or it is what a hypergraph partition computes between two exchanges, and every rank has
its part of it (`partition_work`). All times are those of the rank with the most work along the other axes. As in training, no
barrier divides steps, and no sender waits for a message.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from math import inf, prod

from gridgrad.nn.sequence import leaves
from gridgrad.parallel.grid.process_grid import BATCH, MODEL, STAGE, GridDescription
from gridgrad.parallel.pipeline import schedule_names
from gridgrad.parallel.pipeline.generators import repeat
from gridgrad.parallel.pipeline.schedule import Route, Schedule, shortest
from gridgrad.parallel.pipeline.simulate import Memory, Simulation, TableTimes, simulate
from gridgrad.parallel.plans.hypergraph import between_exchanges
from gridgrad.parallel.plans.place_network import check_cuts, place
from gridgrad.parallel.prediction.cost import STEPS, RankStep, StepPrediction, grids_of_ranks, message_seconds, slowest_rank
from gridgrad.parallel.prediction.machine import Machine
from gridgrad.parallel.prediction.workload import Workload, local_shape, memory_of

OPS = {"forward": "F", "backward": "I", "gradients": "W", "loss": "I", "update": "U"}  # of a schedule, by phases of Works


class ChunkCost:
    """What a chunk costs a rank: in F, I and W for a micro-batch, in U (the sums of gradients and the update) for a step.
    workload: before the chunk. is_last: whether the loss is behind it."""

    def __init__(self, workload, chunk, grid, machine, is_last):
        itemsize = workload.itemsize
        self.taken = prod(workload.shape) * itemsize  # bytes that it takes from the chunk before
        workload.go(chunk)
        self.made = prod(workload.shape) * itemsize  # bytes that it makes for the next one
        if is_last:
            workload.loss(grid)
        workload.update(chunk, grid)
        self.parameters, self.elements = workload.parameters, workload.elements
        self.postponed, self.shared = workload.postponed, workload.shared
        self.works = [work for work in workload.executed if work.is_awaited]  # in the order of execution

        self.seconds, self.moving, self.sums = dict.fromkeys("FIWU", 0.0), 0.0, 0.0  # the last two: in collectives, in U
        self.collectives, self.sent, self.flops = [0, 0], [0, 0], 0  # how many, and their bytes, in the passes and in U
        for work in (work for work in workload.works if work.is_awaited):
            op, seconds = OPS[work.phase], work.seconds(machine, grid.size, itemsize)
            self.seconds[op] += seconds
            self.flops += work.flops if op != "U" else 0
            if work.group:
                self.collectives[op == "U"] += 1
                self.sent[op == "U"] += work.nbytes
                self.moving += seconds if op != "U" else 0.0
                self.sums += seconds if op == "U" else 0.0
        self.added = 0.0  # seconds of adding the gradients to those of other micro-batches
        if self.parameters:
            nbytes = 3 * self.parameters * itemsize
            self.added = machine.operation_seconds("add.forward", (self.parameters,), 1.0, 0, nbytes, itemsize, grid.size)

    @property
    def computed(self):
        """Seconds of the passes."""
        return sum(self.seconds[op] for op in "FIW")

    def works_of(self, op):
        """The Works of F, I, W, B or U, in the order of execution."""
        return [work for work in self.works if OPS[work.phase] in ("IW" if op == "B" else op)]


@dataclass(frozen=True)
class PipelinePrediction(StepPrediction):
    """A predicted training step of a pipeline; of an asynchronous one, per minibatch."""

    pipeline: str  # the name of the schedule
    micro_batches: int
    cuts: tuple | None  # where chunks begin; None of a partition
    work: "PipelineWork"
    schedule: Schedule  # of one step, complete; of an asynchronous pipeline, of several minibatches
    times: TableTimes
    played: Simulation  # of several steps
    counted: tuple  # the numbers of the two updates between which the time counts, from 0


@dataclass(frozen=True)
class PipelineWork:
    """What the ranks of a pipeline compute and send for a micro-batch, whatever the schedule."""

    route: Route
    chunks: dict  # {(rank, chunk): ChunkCost}
    sent: dict  # {(sender, receiver, SEND_F or SEND_B, chunk): bytes}
    grid: GridDescription
    axis: str  # along which the ranks are
    machine: Machine
    itemsize: int
    copies: dict = field(default_factory=dict)  # {(rank, op, chunk): seconds} of copies into messages and out of them
    order: TableTimes | None = None  # by which the ranks of a partition choose an order

    def held(self, rank):
        """The ChunkCosts of a rank."""
        return [self.chunks[rank, chunk] for chunk in self.route.held(rank)]

    def step(self, named, micro_batches, cuts=None, gradients=0):
        """The PipelinePrediction of a ScheduleSpec. gradients: of all parameters, kept of other minibatches."""
        ranks = self.route.ranks
        make = partial(named.schedule_on, self.route, times=self.order) if self.order else partial(named.schedule, ranks)
        if named.in_flight:
            settled = ranks + min(named.in_flight, 4 * ranks)  # minibatches until the pipeline is full, or drains again
            schedule, steps, counted = named.complete(make(4 * settled)), 1, (settled, 3 * settled)
        else:
            schedule, steps, counted = named.complete(make(micro_batches)), STEPS, (STEPS - 2, STEPS - 1)
        of_places = [{place: getattr(cost, what) * self.itemsize for place, cost in self.chunks.items()}
                     for what in ("elements", "postponed", "parameters")]  # fmt: skip
        times, memory = self._times(micro_batches), Memory(*of_places, bool(named.in_flight) and named.stash)
        played = simulate(repeat(schedule, steps), times, memory, self.machine.sharing[1])
        updates = [[event.stop for event in row if event.instruction.op == "U"] for row in played.events]
        first, last = (max(ends[number] for ends in updates) for number in counted)
        seconds = (last - first) / (counted[1] - counted[0])

        gradients += 1 + (micro_batches > 1)  # that of a micro-batch, and the sum if there are several
        found = tuple(self._rank_step(rank, played, seconds, micro_batches, gradients) for rank in range(ranks))
        slowest = max(range(ranks), key=lambda rank: found[rank].busy)
        held, mine = self.held(slowest), found[slowest]
        parts = {"gradients": sum(chunk.sums for chunk in held), "waiting": mine.waiting}
        parts["activations"] = micro_batches * sum(chunk.moving for chunk in held)
        parts["update"] = sum(chunk.seconds["U"] for chunk in held) - parts["gradients"]
        parts["compute"] = mine.busy - parts["update"] - parts["gradients"] - parts["activations"]
        how = named.name, micro_batches, cuts, self, schedule, times
        return PipelinePrediction(seconds, found, parts, *how, played, counted)

    def _times(self, micro_batches):
        """The TableTimes of the instructions, while all ranks compute."""
        core, table, flights = self.machine.core, dict(self.copies), {}
        for (rank, chunk), cost in self.chunks.items():
            for op in "FIW":
                table[rank, op, chunk] = cost.seconds[op] + (cost.added if op == "W" and micro_batches > 1 else 0.0)
            table[rank, "U", None] = table.get((rank, "U", None), core.get("step", 0.0)) + cost.seconds["U"]
        for (sender, receiver, *send), nbytes in self.sent.items():
            latency, occupied = message_seconds(self.grid, self.axis, self.machine, sender, receiver, nbytes)
            flights[sender, receiver, *send] = latency + core.get("wait", 0.0), occupied
        return TableTimes(table, flights)

    def _rank_step(self, rank, played, seconds, micro_batches, gradients):
        """The RankStep of a rank. seconds: of a step."""
        held, row = self.held(rank), played.schedule.rows[rank]
        busy = played.busy[rank] / sum(one.op == "U" for one in row)
        received = sum(one.op.startswith("RECV") for one in row) * micro_batches / played.schedule.micro_batches
        sent = [nbytes for (sender, *_), nbytes in self.sent.items() if sender == rank]
        parameters = sum(chunk.parameters for chunk in held)
        # activations: all that is kept for micro-batches, versions of parameters too; the rest is for one of them at a time
        kept = played.peak_memory[rank] // self.itemsize - parameters
        shared = map(max, zip(*(chunk.shared for chunk in held)))
        return RankStep(
            busy,
            max(0.0, seconds - busy),
            bytes=micro_batches * (sum(sent) + sum(chunk.sent[0] for chunk in held)) + sum(chunk.sent[1] for chunk in held),
            messages=micro_batches * len(sent),
            collectives=round(received) + sum(chunk.collectives[0] * micro_batches + chunk.collectives[1] for chunk in held),
            memory_of=memory_of(self.itemsize, parameters, kept, *shared, gradients),
            open=played.peak_open[rank],
        )


def pipeline_step_time(net, asked, batch_size, machine, layers=None):
    """The PipelinePrediction of a network on a grid with stages, or whose parts have owners. asked: a PlacementSpec with grid,
    plan, owners and pipelines, by default 1f1b and the cuts of `planned_cuts`. layers: of `layer_costs`, if they are known.
    ValueError if they do not fit, or if branches exchange channels."""
    named, cuts = schedule_names.parse(asked.pipelines.pipeline or "1f1b"), asked.pipelines.cuts
    ranks = asked.grid.get(STAGE if asked.owners is None else MODEL, 1)
    micro_batches = named.micro_batches(ranks, asked.pipelines.micro_batches)
    if micro_batches > batch_size:
        raise ValueError(f"{micro_batches} micro-batches of a minibatch of {batch_size}: use at most one for each sample")
    samples = -(-batch_size // micro_batches)
    if asked.owners is not None:
        work = partition_work(net, asked, samples, machine, grids_of_ranks(net, asked, machine))
        return work.step(named, micro_batches, gradients=(named.in_flight or 1) - 1)  # of several minibatches at a time
    if cuts is None:
        layers = layers or layer_costs(net, asked, samples, machine)
        cuts = planned_cuts(layers, asked, machine, named, micro_batches, net.dtype.itemsize)
    named.check_cuts(cuts, ranks)
    return stage_work(net, asked, samples, machine, cuts, named.route(ranks)).step(named, micro_batches, tuple(cuts))


# ----- stages


def stage_work(net, asked, samples, machine, cuts, route, at=None):
    """The PipelineWork of the stages of a network. route: which stage has which chunk; the others as for `chunk_costs`."""
    costs, sent = chunk_costs(net, asked, samples, machine, cuts, at), {}
    chunks = {(rank, chunk): costs[chunk] for rank in range(route.ranks) for chunk in route.held(rank)}
    for chunk, (before, here) in enumerate(pairwise(stage for (stage,) in route.places), 1):
        if before != here:
            sent[before, here, "SEND_F", chunk - 1] = sent[here, before, "SEND_B", chunk] = costs[chunk].taken
    grid = GridDescription(asked.grid, None, machine.node["ranks"])
    return PipelineWork(route, chunks, sent, grid, STAGE, machine, net.dtype.itemsize)


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
        found.append(ChunkCost(workload, chunk, grid, machine, number == len(cuts)))
    return found


def layer_costs(net, asked, samples, machine):
    """The ChunkCost of each layer of `net.layers` as a chunk of its own."""
    return chunk_costs(net, asked, samples, machine, [*range(1, len(net.layers))])


def planned_cuts(layers, asked, machine, named, micro_batches, itemsize):
    """Where in `net.layers` the second and later chunks begin, so that the one that takes longest for a micro-batch, with the
    messages it waits for, is short and all fit the memory, if any cuts do. layers: of `layer_costs`. named: a ScheduleSpec."""
    # each chunk of a rank may take the same part of its memory
    grid, memory = GridDescription(asked.grid, None, machine.node["ranks"]), asked.memory or inf
    ranks = asked.grid[STAGE]
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
        kept, held = open_at_most[chunk] * (elements[end] - elements[start]), parameters[end] - parameters[start]
        shared = map(max, zip((0, 0), *(one.shared for one in layers[start:end])))
        return sum(memory_of(itemsize, held, kept, *shared, 1 + (micro_batches > 1), versions).values())

    def longest(chunk, start, end):
        found = seconds[end] - seconds[start]
        if chunk and places[chunk] != places[chunk - 1]:
            found += 2 * sum(message_seconds(grid, STAGE, machine, places[chunk - 1], places[chunk], taken[start]))
        return found

    def fitting(chunk, start, end):
        fits = needed(chunk, start, end) <= memory / len(route.held(places[chunk]))
        return longest(chunk, start, end) if fits else inf

    return shortest(len(layers), route.chunks, fitting) or shortest(len(layers), route.chunks, longest)


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


# ----- hypergraph partitions


def partition_work(net, asked, samples, machine, grids):
    """The PipelineWork of parts with owners. samples: of a global micro-batch. grids: of the ranks along the axis."""
    itemsize, parts, senders, copies, sent, works = net.dtype.itemsize, {}, [{}], {}, {}, []
    for rank, grid in enumerate(grids):
        placed = place(net, grid, asked.plan, None, asked.owners)
        chunks, exchanges = between_exchanges(placed.layers)
        works.append(chunk_works(placed, chunks, grid))
        senders += [{} for _ in chunks[len(senders) :]]
        shape, first = local_shape(placed.input, samples, grid), True
        for number, chunk in enumerate(chunks):
            if number:
                ops = {"SEND_F": number - 1, "RECV_F": number, "SEND_B": number, "RECV_B": number - 1}  # and their chunks
                shape, messages, seconds = exchanged(exchanges[number - 1], shape, samples, itemsize, machine, grid)
                copies |= {(rank, op, ops[op]): taken for op, taken in seconds.items()}
                for op, other, nbytes in messages:
                    sent[rank, other, op, ops[op]] = nbytes
                    if op == "SEND_F":
                        senders[number].setdefault(other, []).append(rank)
            workload = Workload(shape, samples, itemsize)
            workload.first = first
            parts[rank, number] = ChunkCost(workload, chunk, grid, machine, number == len(chunks) - 1)
            shape, first = workload.shape, workload.first
    route = Route.everywhere(len(grids), senders)
    return PipelineWork(route, parts, sent, grids[0], MODEL, machine, itemsize, copies, times_of_work(works))


def exchanged(exchange, shape, samples, itemsize, machine, grid):
    """(shape behind an exchange, [(SEND_F or SEND_B, receiver, bytes)], {SEND_F, RECV_F, SEND_B or RECV_B: seconds of copies})
    of a rank. shape: of its array before the exchange, samples first."""
    workload = Workload(shape, samples, itemsize)
    workload.first = False  # gradients always travel back
    workload.go([exchange])
    messages, seconds, gone = [], dict.fromkeys(("SEND_F", "RECV_F", "SEND_B", "RECV_B"), 0.0), set()
    for work in workload.works:
        way = "F" if work.phase == "forward" else "B"
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
