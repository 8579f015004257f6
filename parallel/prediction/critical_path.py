"""The predicted time of a training step in which every rank may have other work: the critical path through all ranks.

Ranks along the axis `model` own different parts of the network and wait for each other, so the works of all of them are played
through. Ranks that differ along other axes alone do the same at the same time, so only those with the most work are played.

| what                 | how long it takes                                                                                     |
|----------------------|-------------------------------------------------------------------------------------------------------|
| an operation         | what the machine file says; more or less where ranks share cores, see below                           |
| an exchange          | until the messages for the rank have arrived and those from it have been received                     |
| any other collective | from when the last rank that it needs has arrived, what the machine file says of the largest sender   |
| the sum of the loss  | the same; it begins after the loss, and is waited for before the update                               |

A rank sends its messages one after another, first to its next rank, then to the one after that, over the links of
`parallel/grid/virtual_time.py`, with the latency and the time of an exchange between two ranks in the machine file. Short
messages are taken in before the receiver asks for them; a long one leaves only when the receiver has arrived, and the sender
waits until then, because MPI libraries confirm all messages except the shortest. Where all ranks send to all, their messages
come at the same time, and take as long as an all-to-all, if the machine file says that this is slower.

Where there are more ranks than cores, as on emulated hosts, the operations of a machine file were measured while all ranks
computed, several on each core (`crowd` of the file). The ranks that compute at a moment share all cores evenly, but none has
more than a whole one. A waiting rank yields its core; the 5 to 10 % of a core that it still takes (with MPICH) are neglected.
"""

from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from itertools import combinations

from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.grid_description import GridDescription
from gridgrad.parallel.grid.process_grid import AXES, MODEL
from gridgrad.parallel.pipeline.play import Cores, Network, VirtualTime
from gridgrad.parallel.prediction.cost import Cost, slowest_rank
from gridgrad.parallel.prediction.step_prediction import StepPrediction

STEPS = 3  # that are played; the last one counts, because the ranks begin it at different times as in training
AHEAD = 2 << 20  # bytes of a message that a receiver's network takes in before it is asked for: 2 MiB with TCP on Linux
UNCONFIRMED = 64  # bytes of a message for which its sender does not wait


def step_time(net, asked, batch_size, machine):
    """The StepPrediction, reductions "plain". asked: a PlacementSpec with grid and plan. ValueError if it does not fit."""
    return played(costs_of_ranks(net, asked, batch_size, machine))


def costs_of_ranks(net, asked, batch_size, machine):
    """[the Cost of each rank along the axis `model`; along the other axes those with the most work]."""
    grids = grids_of_ranks(net, asked, machine)
    return [Cost(net, grid, asked.plan, batch_size, machine, asked.shares, asked.owners) for grid in grids]


def grids_of_ranks(net, asked, machine):
    """[the GridDescription of each rank along the axis `model`; along the other axes those with the most work]."""
    place, ranks = slowest_rank(net, asked, *machine.sharing).coordinates, asked.grid.get(MODEL, 1)
    return [GridDescription(asked.grid, place | {MODEL: rank}, machine.node["ranks"]) for rank in range(ranks)]


def played(costs):
    """The StepPrediction of the ranks along the axis `model` with these Costs."""
    play = _Play(costs)
    seconds, ranks = play.run(), tuple(rank.last_step() for rank in play.ranks)
    mine, cost = max(zip(ranks, costs), key=lambda pair: pair[0].busy)
    moving = mine.communicating - cost.parts["gradients"]
    return StepPrediction(seconds, ranks, cost.parts | {"activations": moving, "waiting": mine.waiting})


class _Play:
    """The ranks along the axis while they are played. Times are in seconds since the first step began."""

    def __init__(self, costs):
        self.machine, self.size, self.group = costs[0].machine, costs[0].grid.size, costs[0].grid.group(MODEL)
        self.on_node = self.group.on_node
        self.clock = VirtualTime()
        self.network = Network(self.clock)
        self.cores = Cores(self.clock, len(costs), self.machine.sharing[1])
        self.ranks = [_Rank(self, place, cost) for place, cost in enumerate(costs)]
        self.meetings, self.messages = {}, defaultdict(list)  # by step and key; by key, all ranks together
        for rank in self.ranks:
            for key, work in zip(rank.keys, rank.works):
                if key and work.is_exchange:
                    self.messages[key] += rank.messages(work)

    def run(self):
        """Play `STEPS` steps; returns the seconds of the last one."""
        for rank in self.ranks:
            rank.go_on()
        while any(len(rank.ends) < STEPS for rank in self.ranks):
            if not self.clock.go_on():
                raise RuntimeError("the ranks wait for each other for ever: their plans do not fit together")
        *_, before, last = (max(rank.ends[step] for rank in self.ranks) for step in range(STEPS))
        return last - before

    def meeting(self, step, key, work):
        """The _Exchange or _Collective that all ranks enter in a step with their Works of this key."""
        if (step, key) not in self.meetings:
            self.meetings[step, key] = _Exchange(self, self.messages[key]) if work.is_exchange else _Collective(self)
        return self.meetings[step, key]


class _Rank:
    """One rank while it is played. works: its Works in the order of execution. keys: for each Work what it has in common with
    its counterparts on other ranks; None if it has none. ends: when each step ended. spent: {kind: seconds} so far."""

    def __init__(self, play, place, cost):
        self.play, self.place, self.cost, self.works = play, place, cost, cost.executed
        others = [axis for axis in AXES if axis != MODEL]
        sets = [axes for number in range(len(AXES)) for axes in combinations(others, number)]
        along, counts, self.keys = [cost.grid.group(MODEL, *axes) for axes in sets], Counter(), []
        for work in self.works:
            key = (work.layer, work.phase, work.name) if any(work.group is group for group in along) else None
            self.keys.append(key and (*key, counts[key]))
            counts[key] += 1
        self.ends = []
        self.spent, self.spent_before = dict.fromkeys(("busy", "waiting", "communicating"), 0.0), {}
        self.go_on = partial(next, self._live(), None)

    def messages(self, work):
        """[(place of the sender, place of the receiver, bytes)] that this rank sends in an exchange, in their order."""
        ranks, sent = len(self.play.ranks), work.messages(self.cost.itemsize)
        return [(self.place, to, sent[to]) for to in sorted(sent, key=lambda to: (to - self.place) % ranks)]

    def _live(self):
        """A generator that yields where the rank computes or waits until `go_on` is called."""
        clock = self.play.clock
        for step in range(STEPS):
            self.spent_before, loss = dict(self.spent), None
            for key, work in zip(self.keys, self.works):
                if loss and work.name == "update":
                    yield from self._wait(loss)
                if key and work.layer == "loss":
                    loss = self.play.meeting(step, key, work)
                    loss.enter(self, replace(work, overlaps=()))
                elif key:
                    meeting = self.play.meeting(step, key, work)
                    meeting.enter(self, work)
                    yield from self._wait(meeting)
                elif seconds := self.cost.seconds_of(work):
                    start = clock.time
                    if work.group is None:
                        self.play.cores.compute(seconds, self.go_on)
                    else:
                        clock.at(start + seconds, self.go_on)
                    yield
                    self.spent["busy" if work.group is None else "communicating"] += clock.time - start
            self.ends.append(clock.time)

    def _wait(self, meeting):
        """Wait until this rank can leave a meeting, and note for what."""
        start = self.play.clock.time
        meeting.leave(self)
        yield
        now = self.play.clock.time
        complete = min(max(start, meeting.complete(self.place)), now)
        self.spent["waiting"] += complete - start
        self.spent["communicating"] += now - complete

    def last_step(self):
        """The RankStep of the last step."""
        spent = {kind: seconds - self.spent_before[kind] for kind, seconds in self.spent.items()}
        messages = sum(len(self.messages(work)) for key, work in zip(self.keys, self.works) if key and work.is_exchange)
        return replace(self.cost.rank_step(**spent), messages=messages)


class _Collective:
    """A collective begins for a rank when all that the rank needs have entered; it takes as long as their longest Work."""

    def __init__(self, play):
        self.play, self.entered, self.works, self.leaving = play, {}, {}, []

    def enter(self, rank, work):
        self.entered[rank.place], self.works[rank.place] = self.play.clock.time, work
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
            self.play.clock.at(self.complete(rank.place) + seconds, rank.go_on)

    def _needed(self, place):
        """The places of the ranks that must have entered before the one at `place` can leave."""
        return set(range(len(self.play.ranks))[COLLECTIVES[self.works[place].name].needs(place)])

    def complete(self, place):
        """When the last rank that the one at `place` needs has entered."""
        return max(self.entered[other] for other in self._needed(place))


class _Message:
    """A message of an exchange between the places of two ranks. gone, arrived: how far it is."""

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
        self.slower = self._slower()
        self.open = Counter(place for message in self.messages for place in message.awaited)

    def enter(self, rank, work):
        self.entered[rank.place] = self.play.clock.time
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
        """Send a message; from here it goes on by itself."""
        latency, occupied = self._seconds(message)
        self.play.network.send(message.sender, message.receiver, (latency, self.slower * occupied), self._arrive, message)

    def _seconds(self, message):
        """(latency, occupied) of a message between two ranks that exchange nothing with others."""
        play = self.play
        near = message.sender // play.on_node == message.receiver // play.on_node
        return play.machine.message_seconds(near, message.nbytes, play.size)

    def _slower(self):
        """The factor by which the bytes of messages take longer because all ranks send to all, as in an all-to-all."""
        play, ranks = self.play, len(self.play.ranks)
        if ranks <= 2 or len(self.messages) < ranks * (ranks - 1):
            return 1.0
        sent, occupied = Counter(), Counter()
        for message in self.messages:
            sent[message.sender] += message.nbytes
            occupied[message.sender] += self._seconds(message)[1]
        none, whole = (
            play.machine.collective_seconds("all-to-all", play.group, play.size, nbytes) for nbytes in (0, max(sent.values()))
        )
        most = max(occupied.values())
        return max(1.0, (whole - none) / most) if most else 1.0

    def _arrive(self, message):
        message.arrived = True
        self._proceed(message)

    def _try(self, place):
        if place in self.leaving and not self.open[place]:
            clock, wait = self.play.clock, self.play.machine.core.get("wait", 0.0)
            clock.at(clock.time + wait, self.leaving.pop(place).go_on)

    def complete(self, place):
        """When the last rank that the one at `place` exchanges messages with has entered."""
        with_it = {other for m in self.messages for other in (m.sender, m.receiver) if place in (m.sender, m.receiver)}
        return max(self.entered[other] for other in with_it | {place} if other in self.entered)
