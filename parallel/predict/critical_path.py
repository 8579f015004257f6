"""The predicted time of a training step in which every rank may have other work: the critical path through all ranks.

`Cost` prices the works of one rank, as if all others did the same. Where the ranks along the axis `model` own different parts
of the network, a rank also waits for what others compute. Here the works of all of them are played through in a small
simulation, without randomness. Ranks that differ along other axes alone do the same at the same time, so only those with the
most work are played.

| what                 | how long it takes                                                                                  |
|----------------------|----------------------------------------------------------------------------------------------------|
| an operation         | what the machine file says; more or less where ranks share cores, see below                        |
| an exchange          | it ends when the messages for the rank have arrived and those from it have been received           |
| any other collective | it begins when the last rank that it needs has arrived, and takes what the machine file says, for   |
|                      | the rank that sends the most                                                                       |
| the sum of the loss  | it begins after the loss, and is waited for before the update                                      |

A rank sends its messages one after another, first to its next rank, then to the one after that. A message occupies the link of
its sender and then that of its receiver for as long as its bytes take, and is under way for the latency besides: the latencies
of several messages overlap. Both are those of an exchange between two ranks in the machine file. Its receiver's network takes
short messages in before the receiver asks for them; a long message leaves only when the receiver has arrived, too. In either
case the sender waits until then, because MPI libraries confirm all but the shortest messages.

Where there are more ranks than cores, as on emulated hosts, the operations of a machine file were measured while all ranks
computed, several on each core: `crowd` of a machine file. The ranks that compute at a moment share all cores evenly, but none
has more than a whole core. A rank that waits yields its core: on 2 cores, four emulated hosts with MPICH's heavy yield took
5 to 10 % of a core for each rank that waited, which is neglected here.
"""

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import combinations, count

from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.grid_description import GridDescription
from gridgrad.parallel.grid.process_grid import AXES
from gridgrad.parallel.placement.plan import CHOSEN
from gridgrad.parallel.plans.all_plans import words_of
from gridgrad.parallel.plans.place_network import checked
from gridgrad.parallel.predict.cost import Cost, busiest

STEPS = 3  # that are played; the last one counts, because the ranks begin it at different times as in training
AHEAD = 2 << 20  # bytes of a message that a receiver's network takes in before it is asked for: 2 MiB with TCP on Linux
UNCONFIRMED = 64  # bytes of a message for which its sender does not wait


@dataclass(frozen=True)
class RankTime:
    """How a rank spends a step, in seconds, and what it sends.

    busy: computing. waiting: for ranks that have not yet arrived at an exchange or another collective. communicating: in these
    while all that it needs have arrived. bytes: that it sends in exchanges and all other collectives. messages: that it sends
    in exchanges along the axis `model`.
    """

    busy: float
    waiting: float
    communicating: float
    bytes: int
    messages: int


@dataclass(frozen=True)
class StepTime:
    """A predicted training step. seconds: that it takes. ranks: the RankTime of each rank along the axis `model`."""

    seconds: float
    ranks: tuple

    @property
    def bytes(self):
        """Bytes that the ranks along the axis send together."""
        return sum(rank.bytes for rank in self.ranks)

    @property
    def messages(self):
        """Messages that the ranks along the axis send together."""
        return sum(rank.messages for rank in self.ranks)


def step_time(net, sizes, plan, batch_size, machine, shares=None, owners=None):
    """The StepTime of a network on a grid.

    net: a serial Sequential; if it takes images, it must have an `input_shape`. sizes: {axis: number of ranks}. plan, shares,
    owners: see `parallelize`. batch_size: of the global minibatch. machine: a Machine. Reductions are "plain".
    ValueError if the plan, the shares or the owners do not fit.
    """
    return played(costs_of_ranks(net, sizes, plan, batch_size, machine, shares, owners))


def costs_of_ranks(net, sizes, plan, batch_size, machine, shares=None, owners=None):
    """The Cost of each rank along the axis `model`; along the other axes those with the most work. See `step_time`."""
    grids = grids_of_ranks(net, sizes, plan, machine, shares)
    return [Cost(net, grid, plan, batch_size, machine, shares, owners) for grid in grids]


def grids_of_ranks(net, sizes, plan, machine, shares=None):
    """The GridDescription of each rank along the axis `model`; along the other axes they are those with the most work."""
    layers, _ = checked(net)
    per_node = machine.node["ranks"]
    place = busiest(sizes, words_of(plan, layers), per_node, shares).coordinates
    return [GridDescription(sizes, place | {CHOSEN: rank}, per_node) for rank in range(sizes.get(CHOSEN, 1))]


def played(costs):
    """The StepTime of ranks whose Costs these are, one for each rank along the axis `model`."""
    return _Play(costs).run()


class _Play:
    """The ranks along the axis while they are played. Times are in seconds since the first step began.

    now: the time. ranks: the _Ranks. events: a heap of what happens at later times: (time, order, function, arguments).
    """

    def __init__(self, costs):
        self.machine, self.itemsize, self.size = costs[0].machine, costs[0].itemsize, costs[0].grid.size
        self.on_node = costs[0].grid.group(CHOSEN).on_node
        self.now, self.events, self.order = 0.0, [], count()
        self.ranks = [_Rank(self, place, cost) for place, cost in enumerate(costs)]
        self.meetings, self.messages = {}, defaultdict(list)  # by step and key; by key, all ranks together
        for rank in self.ranks:
            for key, work in zip(rank.keys, rank.works):
                if key and work.step:
                    self.messages[key] += rank.messages(work)

    def run(self):
        """Play `STEPS` steps; returns the StepTime of the last one."""
        for rank in self.ranks:
            rank.go_on()
        while any(len(rank.ends) < STEPS for rank in self.ranks):
            computing = [rank for rank in self.ranks if rank.left]
            if not computing and not self.events:
                raise RuntimeError("the ranks wait for each other for ever: their plans do not fit together")
            self._advance(computing, self.speed(len(computing)))
        *_, before, last = (max(rank.ends[step] for rank in self.ranks) for step in range(STEPS))
        return StepTime(last - before, tuple(rank.last_step() for rank in self.ranks))

    def _advance(self, computing, speed):
        """Go on to the next moment at which something happens, and let it happen."""
        start, ends = self.now, [self.now + rank.left / speed for rank in computing]
        self.now = min([*ends, *(event[0] for event in self.events[:1])])
        for rank, end in zip(computing, ends):
            rank.spent["busy"] += self.now - start
            rank.left = rank.left - (self.now - start) * speed if end > self.now else 0.0
        for rank in computing:
            if not rank.left:
                rank.go_on()
        while self.events and self.events[0][0] <= self.now:
            *_, function, arguments = heapq.heappop(self.events)
            function(*arguments)

    def speed(self, computing):
        """How fast a rank computes while so many ranks along the axis do, where 1 is as measured."""
        crowd = self.machine.core.get("crowd", 1)
        return crowd / max(1, crowd * computing / len(self.ranks))

    def at(self, time, function, *arguments):
        """Call a function at a later time."""
        heapq.heappush(self.events, (max(time, self.now), next(self.order), function, arguments))

    def meeting(self, step, key, work):
        """The _Exchange or _Collective that all ranks enter in a step with their Works of this key."""
        if (step, key) not in self.meetings:
            self.meetings[step, key] = _Exchange(self, self.messages[key]) if work.step else _Collective(self)
        return self.meetings[step, key]


class _Rank:
    """One rank while it is played.

    works: its Works in the order of execution. keys: for each of these, what its counterparts on the other ranks have in common
    with it; None where it concerns no other rank along the axis. left: seconds of the operation that it computes, at the speed
    1; 0 while it waits. ends: when it ended each step so far. spent: the seconds of each kind so far. sending, receiving: until
    when its two links are occupied.
    """

    def __init__(self, play, place, cost):
        self.play, self.place, self.cost, self.works = play, place, cost, cost.executed
        others = [axis for axis in AXES if axis != CHOSEN]
        sets = [axes for number in range(len(AXES)) for axes in combinations(others, number)]
        along, counts, self.keys = [cost.grid.group(CHOSEN, *axes) for axes in sets], Counter(), []
        for work in self.works:
            key = (work.layer, work.phase, work.name) if any(work.group is group for group in along) else None
            self.keys.append(key and (*key, counts[key]))
            counts[key] += 1
        self.left, self.sending, self.receiving, self.ends = 0.0, 0.0, 0.0, []
        self.spent, self.spent_before = dict.fromkeys(("busy", "waiting", "communicating"), 0.0), {}
        self.life = self._live()

    def messages(self, work):
        """[(place of the sender, place of the receiver, bytes)] that this rank sends in an exchange, in their order."""
        ranks, sent = len(self.play.ranks), work.messages(self.cost.itemsize)
        return [(self.place, to, sent[to]) for to in sorted(sent, key=lambda to: (to - self.place) % ranks)]

    def go_on(self):
        """Begin what is next. It is called when the last operation, or the waiting for a collective, has ended."""
        self.left = next(self.life, 0.0)

    def _live(self):
        """Yield the seconds of the next operation, or 0 where the rank waits until `go_on` is called."""
        for step in range(STEPS):
            self.spent_before, loss = dict(self.spent), None
            for key, work in zip(self.keys, self.works):
                if loss and work.name == "update":
                    yield from self._wait(loss)
                if key and work.layer == "loss":
                    loss = self.play.meeting(step, key, work)
                    loss.enter(self, replace(work, behind=()))
                elif key:
                    meeting = self.play.meeting(step, key, work)
                    meeting.enter(self, work)
                    yield from self._wait(meeting)
                else:
                    seconds, start = self.cost.seconds_of(work), self.play.now
                    if work.group is None and seconds:
                        yield seconds
                    elif seconds:
                        self.play.at(start + seconds, self.go_on)
                        yield 0.0
                        self.spent["communicating"] += seconds
            self.ends.append(self.play.now)

    def _wait(self, meeting):
        """Wait until this rank can leave a meeting, and note for what."""
        start = self.play.now
        meeting.leave(self)
        yield 0.0
        complete = min(max(start, meeting.complete(self.place)), self.play.now)
        self.spent["waiting"] += complete - start
        self.spent["communicating"] += self.play.now - complete

    def last_step(self):
        """The RankTime of the last step."""
        spent = {kind: seconds - self.spent_before[kind] for kind, seconds in self.spent.items()}
        messages = sum(len(self.messages(work)) for key, work in zip(self.keys, self.works) if key and work.step)
        return RankTime(**spent, bytes=self.cost.bytes_sent, messages=messages)


class _Collective:
    """A collective of the ranks along the axis: it begins for a rank when all that this rank needs have entered.

    It takes as long as the longest of their Works, for which the others wait where the ranks send different amounts.
    """

    def __init__(self, play):
        self.play, self.entered, self.works, self.leaving = play, {}, {}, []

    def enter(self, rank, work):
        self.entered[rank.place], self.works[rank.place] = self.play.now, work
        for waiting in list(self.leaving):
            self._try(waiting)

    def leave(self, rank):
        """Have `go_on` of the rank called as soon as it can leave."""
        self.leaving.append(rank)
        self._try(rank)

    def _try(self, rank):
        if self._needed(rank.place) <= self.entered.keys():
            self.leaving.remove(rank)
            seconds = max(rank.cost.seconds_of(self.works[place]) for place in self._needed(rank.place) | {rank.place})
            self.play.at(self.complete(rank.place) + seconds, rank.go_on)

    def _needed(self, place):
        """The places of the ranks that must have entered before the one at `place` can leave."""
        return set(range(len(self.play.ranks))[COLLECTIVES[self.works[place].name].needs(place)])

    def complete(self, place):
        """When the last rank that the one at `place` needs has entered."""
        return max(self.entered[other] for other in self._needed(place))


class _Message:
    """A message of an exchange, from the place of one rank to that of another. gone, arrived: how far it is."""

    def __init__(self, sender, receiver, nbytes):
        self.sender, self.receiver, self.nbytes, self.gone, self.arrived = sender, receiver, nbytes, False, False

    @property
    def awaited(self):
        """The places of the ranks that do not leave before it is received."""
        return (self.receiver, self.sender) if self.nbytes > UNCONFIRMED else (self.receiver,)


class _Exchange:
    """An exchange between the ranks along the axis, whose messages travel as described at the top of this file."""

    def __init__(self, play, messages):
        self.play, self.entered, self.leaving = play, {}, {}
        self.messages = [_Message(*message) for message in messages]
        self.open = Counter(place for message in self.messages for place in message.awaited)

    def enter(self, rank, work):
        self.entered[rank.place] = self.play.now
        for message in self.messages:
            if rank.place in (message.sender, message.receiver):
                self._proceed(message)

    def leave(self, rank):
        """Have `go_on` of the rank called as soon as it can leave."""
        self.leaving[rank.place] = rank
        self._try(rank.place)

    def _proceed(self, message):
        """Let a message leave or be received, where it can be."""
        here, there = message.sender in self.entered, message.receiver in self.entered
        if not message.gone and here and (there or message.nbytes <= AHEAD):
            message.gone = True
            self._send(message)
        if message.arrived and there:
            for place in message.awaited:
                self.open[place] -= 1
                self._try(place)

    def _send(self, message):
        """Send a message through the link of its sender; from there it goes on by itself."""
        play, sender = self.play, self.play.ranks[message.sender]
        near = message.sender // play.on_node == message.receiver // play.on_node
        latency, pace = play.machine.message_seconds(near, message.nbytes, play.size)
        sender.sending = max(play.now, sender.sending) + pace
        play.at(sender.sending, self._receive, message, latency, pace)

    def _receive(self, message, latency, pace):
        """The last byte has left the sender: it waits until the link of the receiver has taken in all before it."""
        receiver = self.play.ranks[message.receiver]
        receiver.receiving = max(self.play.now, receiver.receiving + pace)
        self.play.at(receiver.receiving + latency, self._arrive, message)

    def _arrive(self, message):
        message.arrived = True
        self._proceed(message)

    def _try(self, place):
        if place in self.leaving and not self.open[place]:
            self.play.at(self.play.now + self.play.machine.core.get("wait", 0.0), self.leaving.pop(place).go_on)

    def complete(self, place):
        """When the last rank that the one at `place` exchanges messages with has entered."""
        with_it = {other for m in self.messages for other in (m.sender, m.receiver) if place in (m.sender, m.receiver)}
        return max(self.entered[other] for other in with_it | {place} if other in self.entered)
