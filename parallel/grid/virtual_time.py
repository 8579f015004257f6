"""Virtual time: a discrete-event simulation of ranks that compute on shared cores and send each other messages over links. A
rank is a function, or a generator that yields while it waits, which is called again when what it waits for has happened."""

from collections import defaultdict
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any


class VirtualTime:
    """The time, in seconds, and what is still to happen. It passes from one event to the next."""

    def __init__(self) -> None:
        self.time: float = 0
        self._events: list[tuple] = []
        self._numbers = count()

    def at(self, time: float, function: Callable, *arguments: Any, place: int = 0) -> None:
        """Call function(*arguments) at a time, or now if that has passed.
        Of events at the same time the one with the lowest place comes first, then the one that was announced first."""
        heappush(self._events, (max(time, self.time), place, next(self._numbers), function, arguments))

    def go_on(self) -> bool:
        """Let the next event happen; whether there was one."""
        if not self._events:
            return False
        self.time, _, _, function, arguments = heappop(self._events)
        function(*arguments)
        return True

    def go_on_together(self) -> bool:
        """Let everything happen that is at the time of the next event; whether there was one."""
        found = self.go_on()
        while self._events and self._events[0][0] == self.time:
            self.go_on()
        return found


class Cores:
    """Cores that ranks share evenly while they compute, none with more than a whole one. ranks: how many there are.
    per_core: how many ranks shared a core while their times were measured, when all computed."""

    def __init__(self, clock: VirtualTime, ranks: int, per_core: float = 1) -> None:
        self.clock, self.ranks, self.per_core = clock, ranks, per_core
        self._ends: list[tuple] = []  # a heap of (progress at the end, number, function) of what is computed now
        self._progress: float = 0  # seconds that each rank which computes all the time would have had alone at its speed
        self._since: float = 0  # the time for which `_progress` holds
        self._numbers, self._changes = count(), 0

    def compute(self, seconds: float, function: Callable) -> None:
        """Call function() when a rank has computed something that takes so many seconds while all ranks compute."""
        if self.per_core == 1:
            self.clock.at(self.clock.time + seconds, function)
            return
        self._advance()
        heappush(self._ends, (self._progress + seconds, next(self._numbers), function))
        self._expect_next()

    def _speed(self) -> float:
        """How fast each rank computes now, where 1 is as measured."""
        return self.per_core / max(1, self.per_core * len(self._ends) / self.ranks)

    def _advance(self) -> None:
        if self._ends:
            self._progress += (self.clock.time - self._since) * self._speed()
        self._since = self.clock.time

    def _expect_next(self) -> None:
        self._changes += 1
        if self._ends:
            rest = (self._ends[0][0] - self._progress) / self._speed()
            self.clock.at(self.clock.time + rest, self._ended, self._changes)

    def _ended(self, changes: int) -> None:
        if changes == self._changes:  # else others have begun or ended since, and this end was expected anew
            self._advance()
            self._progress, _, function = heappop(self._ends)
            self._expect_next()
            function()


class Link:
    """What does one thing after another, such as a link that carries messages. free: when it has done all so far."""

    def __init__(self) -> None:
        self.free: float = 0

    def take(self, now: float, seconds: float) -> float:
        """Do what takes so many seconds, now or when it is free; returns when that is done."""
        self.free = max(now, self.free) + seconds
        return self.free


class Network:
    """The links of ranks: a message occupies that of its sender and then that of its receiver, as long as its bytes take.
    Messages to several ranks leave one after another, those of several arrive one after another; latencies overlap."""

    def __init__(self, clock: VirtualTime) -> None:
        self.clock = clock
        self._sending: defaultdict[int, Link] = defaultdict(Link)
        self._receiving: defaultdict[int, Link] = defaultdict(Link)

    def send(self, sender: int, receiver: int, times: tuple, function: Callable, *arguments: Any) -> None:
        """Call function(*arguments) when a message that is sent now has arrived. times: (latency, seconds on each link)."""
        gone = self._sending[sender].take(self.clock.time, times[1])
        self.clock.at(gone, self._receive, receiver, times, function, arguments)

    def _receive(self, receiver, times, function, arguments):
        """The last byte has left the sender: it waits until the link of the receiver has taken in all before it."""
        latency, occupied = times
        link = self._receiving[receiver]
        link.free = max(self.clock.time, link.free + occupied)
        self.clock.at(link.free + latency, function, *arguments)
