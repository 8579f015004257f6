"""The prediction of a training step: the works of one rank times what they take on a machine (`Cost`), or the works of all
ranks along the axis `model`, which may differ, played through (`played`). Ranks that differ along other axes alone do the
same at the same time, so only those with the most work are played.

| what                 | how long it takes                                                                                     |
|----------------------|-------------------------------------------------------------------------------------------------------|
| an operation         | what the machine file says; more or less where ranks share cores, see below                           |
| an exchange          | until the messages for the rank have arrived and those from it have been received                     |
| any other collective | from when the last rank that it needs has arrived, what the machine file says of the largest sender   |
| the sum of the loss  | the same; it begins after the loss, and is waited for before the update                               |

A rank sends its messages one after another, first to its next rank, then to the one after that. Short ones are taken in before
the receiver asks for them; a long one leaves only when the receiver has arrived, and the sender waits until then, because MPI
libraries confirm all messages except the shortest. Messages of all ranks to all take as long as an all-to-all, if the machine
file says that this is slower. A rank that waits yields its core; the 5 to 10 % of a core that it still takes (with MPICH) are
neglected.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property

from gridgrad.nn.sequence import shapes
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.process_grid import HEIGHT, MODEL, GridDescription
from gridgrad.parallel.pipeline.play import Compute, Message, Player, Signal, Wait
from gridgrad.parallel.placement.plan import weighted
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.plans.plans import plans_of, words_of
from gridgrad.parallel.prediction.workload import Workload, local_shape

STEPS = 3  # that are played; the last one counts, because the ranks begin it at different times as in training
AHEAD = 2 << 20  # bytes of a message that a receiver's network takes in before it is asked for: 2 MiB with TCP on Linux
UNCONFIRMED = 64  # bytes of a message for which its sender does not wait
END = "end of a step"


@dataclass(frozen=True)
class RankStep:
    """How a rank spends a step, in seconds, what it needs and what it sends."""

    busy: float  # computing; in a pipeline also communicating within its stage
    waiting: float = 0.0  # for other ranks to arrive at a collective, or for messages of a pipeline
    communicating: float = 0.0  # in collectives, once all have arrived
    bytes: int = 0  # that it sends
    messages: int = 0  # that it sends in exchanges along the axis `model`
    collectives: int = 0  # that it takes part in, and messages of other stages
    memory_of: dict = field(default_factory=dict)  # what `memory_of` of `parallel/prediction/workload.py` returns
    open: int = 1  # the most micro-batches that are open in its chunks

    @property
    def memory(self):
        """Bytes that it needs."""
        return sum(self.memory_of.values())


@dataclass(frozen=True)
class StepPrediction:
    """A predicted training step."""

    seconds: float
    ranks: tuple  # of RankSteps, along the axis `model` or `stage`; only one, where only the slowest rank is looked at
    # {what: seconds} of the rank that bounds the step: "compute" (forward, backward and loss), "update" (of the parameters),
    # "gradients" (their sums), "activations" (all other communication) and, between unlike ranks, "waiting"
    parts: dict

    @property
    def bound_by(self):
        """The number of the rank that bounds the step, because it is busy for the longest time."""
        return max(range(len(self.ranks)), key=lambda rank: self.ranks[rank].busy)

    @property
    def bounding(self):
        """The RankStep of that rank."""
        return self.ranks[self.bound_by]

    @property
    def memory(self):
        """Bytes that the rank with the most of them needs."""
        return max(rank.memory for rank in self.ranks)

    @property
    def bytes(self):
        """Bytes that the ranks send together."""
        return sum(rank.bytes for rank in self.ranks)

    @property
    def use(self):
        """The mean share of the time in which a rank is busy."""
        return sum(rank.busy for rank in self.ranks) / (len(self.ranks) * self.seconds)


class Cost:
    """The works of one rank, usually the `slowest_rank`, in a training step with the reduction "plain", and what they cost.
    executed: the works in the order of execution. ValueError if plan, shares or owners do not fit."""

    def __init__(self, net, grid, plan, batch_size, machine, shares=None, owners=None):
        self.net, self.grid, self.batch_size, self.machine = net, grid, batch_size, machine
        self.placed = place(net, grid, plan, shares, owners)
        self.itemsize, self.is_even = net.dtype.itemsize, shares is None and owners is None
        workload = Workload(local_shape(self.placed.input, batch_size, grid), batch_size, self.itemsize)
        workload.step(self.placed.layers, grid)
        self.works, self.executed, self.memory_of = workload.works, workload.executed, workload.memory_of
        self.seconds = workload.seconds(machine, grid.size)

    def seconds_of(self, work):
        """Predicted seconds of a Work."""
        return work.seconds(self.machine, self.grid.size, self.itemsize)

    @property
    def overlapped_seconds(self):
        """Seconds of a step whose gradient reductions are hidden behind backward: a lower bound for the reduction "overlap"."""
        computed = [work for work in self.works if work.group is None and work.phase in ("backward", "gradients")]
        return self.seconds - min(self.parts["gradients"], sum(map(self.seconds_of, computed)))

    @cached_property
    def parts(self):
        """{what: seconds}, as in StepPrediction."""
        parts = dict.fromkeys(("compute", "update", "gradients", "activations"), 0.0)
        for work in self.works:
            if work.group is None:
                part = "update" if work.phase == "update" else "compute"
            else:
                part = "gradients" if work.layer == "gradients" else "activations"
            parts[part] += self.seconds_of(work)
        return parts

    @cached_property
    def prediction(self):
        """The StepPrediction, as if all ranks did the same as this one."""
        busy = self.parts["compute"] + self.parts["update"]
        return StepPrediction(self.seconds, (self.rank_step(busy, communicating=self.seconds - busy),), self.parts)

    def rank_step(self, busy, **spent):
        """The RankStep of this rank. busy, spent: how it spends the step."""
        sent = [work.nbytes for work in self.works if work.group is not None]
        return RankStep(busy, **spent, bytes=sum(sent), collectives=len(sent), memory_of=self.memory_of)


def cost_of_slowest_rank(net, asked, batch_size, machine):
    """The Cost of the rank with the most work. asked: a PlacementSpec with grid and plan."""
    grid = slowest_rank(net, asked, *machine.sharing)
    return Cost(net, grid, asked.plan, batch_size, machine, asked.shares, asked.owners)


def slowest_rank(net, asked, ranks_per_node=None, ranks_per_core=1):
    """The GridDescription of the rank with the most work, for which the others wait: the one with the largest share on every
    axis. A plan may name the rank of the axis model, whatever its share. asked: a PlacementSpec with grid and plan."""
    # On the axis height with even shards it is the first rank, where that has more rows of a layer than the second one: where
    # one row is left over. Else it is the second rank, if that has neighbours on both sides, because it exchanges two halos.
    # Where ranks share a core, more rows do not count: ranks that wait leave their cores to the one that has more to do.
    height = asked.grid.get(HEIGHT, 1)
    outputs = [shape for _, _, shape in shapes(net.layers, net.input_shape)] if net.input_shape else ()
    has_more_rows = any(shape[0] % height == 1 for shape in outputs if len(shape) == 3)
    is_first = height <= 2 or (ranks_per_core == 1 and has_more_rows)
    place = {HEIGHT: 0 if is_first else 1}
    place |= {axis: weights.index(max(weights)) for axis, weights in (asked.shares or {}).items()}
    for plan in plans_of(words_of(asked.plan, weighted(net))):
        if plan.bounding_rank is not None:
            place[MODEL] = plan.bounding_rank
    return GridDescription(asked.grid, place, ranks_per_node)


# ----- all ranks along the axis `model`, played through


def costs_of_ranks(net, asked, batch_size, machine):
    """[the Cost of each rank along the axis `model`; along the other axes those with the most work]. asked: a PlacementSpec
    with grid and plan. ValueError if it does not fit."""
    grids = grids_of_ranks(net, asked, machine)
    return [Cost(net, grid, asked.plan, batch_size, machine, asked.shares, asked.owners) for grid in grids]


def grids_of_ranks(net, asked, machine):
    """[the GridDescription of each rank along the axis `model`; along the other axes those with the most work]."""
    place, ranks = slowest_rank(net, asked, *machine.sharing).coordinates, asked.grid.get(MODEL, 1)
    return [GridDescription(asked.grid, place | {MODEL: rank}, machine.node["ranks"]) for rank in range(ranks)]


def played(costs):
    """The StepPrediction of the ranks along the axis `model` with these Costs."""
    rows, together = [keyed(cost) for cost in costs], defaultdict(dict)  # together: {key: {rank: Work}}
    for rank, row in enumerate(rows):
        for key, work in row:
            if key:
                together[key][rank] = work
    exchanges = {key: messages_of(works, costs) for key, works in together.items() if works[min(works)].name == "exchange"}
    ranks = [actions(rank, costs, row, together, exchanges) for rank, row in enumerate(rows)]
    player = Player(ranks, costs[0].machine.sharing[1])

    spent, ends = [Counter() for _ in costs], [[] for _ in costs]  # so far; (when, spent) at the end of each step
    for rank, (action, start, met, stop) in player.run():
        if isinstance(action, Wait):
            spent[rank]["waiting"] += met - start
            spent[rank]["communicating"] += stop - met
        elif action.what is not END:
            spent[rank]["busy"] += stop - start
        else:
            ends[rank].append((stop, Counter(spent[rank])))
    if player.waits:
        raise RuntimeError("the ranks wait for each other for ever: their plans do not fit together")

    found = []
    for rank, cost in enumerate(costs):
        *_, (_, before), (_, now) = ends[rank]
        times = {kind: now[kind] - before[kind] for kind in ("busy", "waiting", "communicating")}
        sent = sum(sender == rank for messages in exchanges.values() for sender, *_ in messages)
        found.append(replace(cost.rank_step(**times), messages=sent))
    mine, cost = max(zip(found, costs), key=lambda pair: pair[0].busy)
    moving = mine.communicating - cost.parts["gradients"]
    *_, before, now = (max(of_rank[step][0] for of_rank in ends) for step in range(STEPS))
    return StepPrediction(now - before, tuple(found), cost.parts | {"activations": moving, "waiting": mine.waiting})


def keyed(cost):
    """[(key, Work) in the order of execution]. key: the same on all ranks along the axis that do it together; else None."""
    counts, found = Counter(), []
    for work in cost.executed:
        key = None
        if work.group and MODEL in work.group.axes:
            name = work.layer, work.phase, work.name
            key = (*name, counts[name])
            counts[name] += 1
            if work.layer == "loss":
                work = replace(work, overlaps=())  # it is played what happens meanwhile
        found.append((key, work))
    return found


def actions(rank, costs, row, together, exchanges):
    """Yield the actions of a rank. row: its Works, of `keyed`. together: {key: {rank: Work}}. exchanges: {key: messages}."""
    cost = costs[rank]
    for step in range(STEPS):
        loss = None  # the Wait for the sum of its value
        for key, work in row:
            if loss and work.name == "update":
                yield loss
            if key is None:
                seconds = cost.seconds_of(work)
                yield Compute(work.layer, seconds) if work.group is None else Wait(seconds=seconds)
                continue
            yield Signal((step, key, rank))
            if key in exchanges:
                yield from exchange(rank, (step, key), exchanges[key], cost.machine.core.get("wait", 0.0))
                continue
            needed, works = range(len(costs))[COLLECTIVES[work.name].needs(rank)], together[key]
            seconds = max(cost.seconds_of(works[other]) for other in {*needed, rank} & works.keys())
            wait = Wait([(step, key, other) for other in needed], seconds)
            if work.layer == "loss":
                loss = wait
            else:
                yield wait
        yield Compute(END, 0.0)


def exchange(rank, name, messages, seconds):
    """Yield the actions of a rank in an exchange with this name. messages: of `messages_of`. seconds: that it takes beside."""
    awaited = []
    for sender, receiver, nbytes, times in messages:
        key = *name, sender, receiver
        if sender == rank:
            yield Message(receiver, key, times, (*name, receiver) if nbytes > AHEAD else None)
            if nbytes > UNCONFIRMED:
                awaited += [key, (*name, receiver)]
        elif receiver == rank:
            awaited += [key, (*name, sender)]
    yield Wait(awaited, seconds)


def messages_of(works, costs):
    """[(sender, receiver, bytes, (latency, seconds on each link))] of an exchange, as they are sent. works: {rank: Work}."""
    machine, grid, ranks, found = costs[0].machine, costs[0].grid, len(costs), []
    for sender, work in works.items():
        sent = work.messages(costs[sender].itemsize)
        for receiver in sorted(sent, key=lambda to: (to - sender) % ranks):
            nbytes = sent[receiver]
            found.append((sender, receiver, nbytes, message_seconds(grid, MODEL, machine, sender, receiver, nbytes)))
    slower = 1.0  # the factor by which bytes take longer because all ranks send to all, as in an all-to-all
    if ranks > 2 and len(found) >= ranks * (ranks - 1):
        sent, occupied = Counter(), Counter()
        for sender, _, nbytes, times in found:
            sent[sender] += nbytes
            occupied[sender] += times[1]
        group, most = grid.group(MODEL), max(occupied.values())
        none, whole = (machine.collective_seconds("all-to-all", group, grid.size, n) for n in (0, max(sent.values())))
        slower = max(1.0, (whole - none) / most) if most else 1.0
    return [(*message, (latency, slower * occupied)) for *message, (latency, occupied) in found]


def message_seconds(grid, axis, machine, sender, receiver, nbytes):
    """(latency, seconds on each link) of a message between two ranks of an axis."""
    on_node = grid.group(axis).on_node
    return machine.message_seconds(sender // on_node == receiver // on_node, nbytes, grid.size)
