"""Update protocols in all orders of their messages: the workers of a tiny network, and what must hold in every order.

The gradients are made up. The first element of each parameter counts: the gradient of turn number n is 4 to the power of n, so
that the parameters tell which gradients were applied, and how often. The other elements move towards a number of the turn.
"""

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from unittest import mock

import numpy as np
from mpi4py import MPI

from gridgrad.nn import SGD, Linear, Sequential
from gridgrad.parallel import ProcessGrid, distribute
from gridgrad.parallel.grid.group import Tally
from gridgrad.parallel.job import run as job
from gridgrad.parallel.protocols import protocol_names, workers
from gridgrad.parallel.protocols.server import Downpour, ParameterServer
from gridgrad.parallel.protocols.simulated_workers import GroupOfMessages
from tests.orders import promises
from tests.orders.machine import HANDLE, Violation
from tests.orders.mpi import Failed, World
from tests.orders.promises import BASE
from tests.orders.watch import Watch


class ExploredWorkers(GroupOfMessages):
    """Workers whose looks for messages find one after another, until the control says that there are no more for now."""

    def serve(self):
        found, going_on = False, True
        while going_on:
            known, self.comm.is_tidying = self._mourned, True
            going_on = super().serve()
            found, going_on = found or going_on, going_on or self._mourned > known
        self.comm.is_tidying = False
        return found

    @property
    def all_sent(self):
        """Whether everything has left, also what `serve` has not been told of yet."""
        self.comm.asks_whether_left = True
        return all(request.Test() for _, request, _ in self._leaving)

    def wait_until(self, condition):
        self.comm.wait_for(condition, f"a message, until {place_of(condition)} is true")
        super().wait_until(condition)
        self.comm.wait_for(None)


def place_of(function):
    """Where a function is defined."""
    code = function.__code__
    return f"line {code.co_firstlineno} of {code.co_filename.rpartition('/')[2]}"


class Alone:
    """A communicator of one rank."""

    size, rank = 1, 0


class Counting(SGD):
    """SGD with a rate of 1, which notes what it applies to parameters that are served. notes: of the rank that serves."""

    def __init__(self, net, notes):
        super().__init__(net, 1.0)
        self.notes = notes

    def step(self):
        if self.net.params.size and self.notes.is_server:
            self.notes.apply(counted(self.net.grads[0]))
        super().step()


def counted(value):
    """The numbers of the turns whose gradients make up a sum: a Counter."""
    number, found, turn = round(float(value)), Counter(), 0
    while number > 0:
        number, digit = divmod(number, BASE)
        if digit:
            found[turn] = digit
        turn += 1
    return found


class Notes:
    """What one worker and server has done.

    turns: the numbers of its turns. seen: for each of them and each parameter, the turns whose gradients were in the parameters
    with which it began. applied: the turns whose gradients were applied here. staleness: a Counter of them, as the protocol
    should count, by how many gradients of other workers came since the parameters were sent.
    """

    def __init__(self, case, rank):
        self._case, self._rank, self.turns, self.seen, self.applied, self.staleness = case, rank, [], [], set(), Counter()

    def begin(self, number, params):
        """A turn begins. params: with which."""
        self.turns.append(number)
        seen = None
        if self.is_server and not isinstance(
            self._case.protocols[self._rank], Downpour
        ):  # whose workers have steps of their own
            seen = tuple(frozenset(self._once(counted(-params[place]), "in parameters")) for place in self._case.counters)
            self.seen.append(seen)
        self._case.taken[number] = self._rank, seen

    @property
    def is_server(self):
        """Whether the protocol is a parameter server."""
        return isinstance(self._case.protocols[self._rank], ParameterServer)

    def apply(self, turns):
        """Gradients are applied, their sum. turns: a Counter."""
        numbers, before = self._once(turns, "in one update"), set(self.applied)
        if again := numbers & before:
            raise Violation(f"the gradient of turn {min(again)} is applied twice")
        place = self._case.places_served(self._rank)[0]
        for number in sorted(numbers):
            worker, seen = self._case.taken[number]
            if seen is None:
                continue
            others = [other for other in before - seen[place] if self._case.taken[other][0] != worker]
            self.staleness[len(others)] += 1
        self.applied |= numbers

    def _once(self, turns, where):
        if again := [number for number, times in turns.items() if times > 1]:
            raise Violation(f"the gradient of turn {again[0]} is {turns[again[0]]} times {where}")
        return set(turns)


def tiny():
    """A network of two weights and one bias."""
    return Sequential([Linear(2, 1)], seed=1, dtype=np.float64, input_shape=(2,))


@dataclass
class Protocols:
    """A protocol with some workers.

    text: its name, as for --protocol. size: workers. steps: global minibatches. batch: samples in each, by default one for each
    worker. mortal: the worker that may die. is_eager: see World.
    """

    text: str
    size: int
    steps: int = 2
    batch: int | None = None
    mortal: int | None = None
    is_eager: bool = True

    @cached_property
    def nets(self):
        grid = ProcessGrid(MPI.COMM_SELF)
        nets = [distribute(tiny(), grid) for _ in range(self.size)]
        for net in nets:
            net.allocate()
        return nets

    @cached_property
    def counters(self):
        """The positions of the first elements of the parameters."""
        sizes = [p.size for _, p in self.nets[0].parameters]
        return np.cumsum([0, *sizes[:-1]])

    def execute(self, machine):
        """An execution; returns what it leads to. Raises Violation."""
        self.machine, self.world = machine, World(self.size, self.is_eager, self.mortal)
        self.world.begin(machine)
        self.notes, self.protocols = [Notes(self, rank) for rank in range(self.size)], [None] * self.size
        self.taken, self.held = {}, {}
        for rank in range(self.size):
            machine.add(rank, lambda rank=rank: self.work(rank))
            machine.actors[rank].watch = Watch()
        with self.deaths() if self.mortal is not None else mock.patch.object(job, "DRAIN", 0):
            machine.run()
        return self.judge()

    @contextmanager
    def deaths(self):
        """A `with` block in which deaths are those of the exploration."""
        with (
            mock.patch.object(job, "DEATHS", (MPI.ERR_OTHER,)),
            mock.patch.object(workers, "dead", lambda comm: comm.failed()),
        ):
            yield

    def work(self, rank):
        """What a worker does."""
        net, notes, comm = self.nets[rank], self.notes[rank], self.world.comm(rank)
        reset(net)
        own = ExploredWorkers(comm, Alone, Tally())
        protocol = self.protocols[rank] = protocol_names.parse(self.text)(net, own, lambda updated: Counting(updated, notes))
        watch = self.machine.actors[rank].watch
        watch.add("protocol", protocol)
        if self.mortal is not None:
            watch.add("workers", own)
        if isinstance(protocol, ParameterServer):
            watch.add("shard", protocol.shard)
        moves = protocol.shuffles or protocol.exchanges
        if moves:
            own.move_by_messages()
            watch.add_value("moves of samples", lambda: (own._move_number, own._parts))
        watch.add_value("parameters", lambda: net.params)
        watch.add_value("turns", lambda: (notes.turns, notes.seen))
        watch.add_value("staleness", lambda: notes.staleness)
        self.machine.start(rank)
        samples = self.batch or self.size
        try:
            if moves:
                protocol.hold(self.read, samples, 0, lambda *moved: self.held.update({rank: moved[-1].tolist()}))
            shares = protocol.shares(samples, samples, 0)
            for turn in protocol.turns(shares, self.steps):
                self.train(rank, net, own, turn)
                protocol.step()
                net.step += 1  # as trainers do
            protocol.finish()
            comm.check_left()
        except (Failed, job.Death) as failure:
            self.machine.ended = f"rank {rank} can not go on without rank {self.mortal}: {type(failure).__name__}"

    def read(self, indices):
        """(inputs, targets) of samples that are moved: two of each label."""
        return indices[:, None] // 2, indices // 2

    def train(self, rank, net, own, turn):
        """Compute a gradient, and look for messages meanwhile."""
        if net.step != turn.step:
            raise Violation(f"rank {rank} computes the gradient of step {turn.step} as that of step {net.step}")
        before, number = net.params.copy(), turn.step * self.size + turn.share
        self.notes[rank].begin(number, before)
        if own.progress:
            own.serve()
        if not np.array_equal(net.params, before):
            raise Violation(f"rank {rank}: the parameters change while a gradient is computed")
        net.grads[...] = (net.params - number) / 8
        net.grads[self.counters] = float(BASE) ** number
        net.grads[...] /= turn.weight

    def places_served(self, rank):
        """The parameters, by their number, that a rank serves."""
        starts = {where.start for where in self.protocols[rank].parts.get(rank, ())}
        return [number for number, place in enumerate(self.counters) if int(place) in starts]

    def words(self, event):
        """What an event was, in lines for people."""
        found, protocol = [], self.protocols[event.action[1]] if isinstance(event.action[1], int) else None
        if event.action[0] == HANDLE:
            found.append(f"it is {self.message(protocol, event.label[len(event.action)])}")
        for key, content in event.effects:
            if isinstance(key, str):
                found.append(f"it comes to {key} with {np.frombuffer(content).tolist()}")
            else:
                found.append(f"it sends {self.message(protocol, content)} to rank {key[2]}")
        return found

    def message(self, protocol, content):
        """A message in words."""
        kind, *numbers = np.frombuffer(content[: 8 * workers.NUMBERS], np.int64).tolist()
        array = np.frombuffer(content[8 * workers.NUMBERS :], np.uint8)
        values = array.view(np.float64).tolist() if array.size % 8 == 0 else array.tolist()
        return f"'{protocol.workers.kinds[kind]}' {numbers} {values}"

    def judge(self):
        """What the execution leads to. Raises Violation if it does not keep a promise."""
        return promises.judge(self)


def reset(net):
    """As it was when it was made."""
    net.params[...] = 0
    net.grads[...] = 0
    net.step, net.seed = 0, 1
    for observer in net._observers:
        net.forget(observer)
