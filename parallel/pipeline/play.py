"""Virtual time: ranks do one action after another, compute on cores that they share, and send each other messages over links.

Predictions of steps (`parallel/prediction/cost.py`) and of schedules (`parallel/pipeline/schedule.py`) are lists of actions for
each rank, which `Player` plays. Workers of protocols run on the same clock (`parallel/protocols/simulated_workers.py`).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple


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

    @property
    def more_now(self) -> bool:
        """Whether something else happens at this time."""
        return bool(self._events) and self._events[0][0] == self.time


class Cores:
    """Cores that ranks share evenly while they compute, none with more than a whole one. ranks: how many there are.
    per_core: how many ranks shared a core while their times were measured, when all computed."""

    def __init__(self, clock: VirtualTime, ranks: int, per_core: float = 1) -> None:
        self.clock, self.ranks, self.per_core = clock, ranks, per_core
        self._ends: list[tuple] = []  # a heap of (progress at the end, number, function, arguments) of what is computed now
        self._progress: float = 0  # seconds that each rank which computes all the time would have had alone at its speed
        self._since: float = 0  # the time for which `_progress` holds
        self._numbers, self._changes = count(), 0

    def compute(self, seconds: float, function: Callable, *arguments: Any) -> None:
        """Call function(*arguments) when a rank has computed something that takes so many seconds while all ranks compute."""
        if self.per_core == 1:
            self.clock.at(self.clock.time + seconds, function, *arguments)
            return
        self._advance()
        heappush(self._ends, (self._progress + seconds, next(self._numbers), function, arguments))
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
            self._progress, _, function, arguments = heappop(self._ends)
            self._expect_next()
            function(*arguments)


class Link:
    """What does one thing after another, such as a link that carries messages. free: when it has done all so far."""

    def __init__(self) -> None:
        self.free: float = 0

    def take(self, now: float, seconds: float) -> float:
        """Do what takes so many seconds, now or when it is free; returns when that is done."""
        self.free = max(now, self.free) + seconds
        return self.free


class Compute(NamedTuple):
    """Computing something. seconds: that it takes while all ranks compute."""

    what: Any
    seconds: float


class Signal(NamedTuple):
    """Saying that something is done, or that the rank is there."""

    key: Hashable


class Message(NamedTuple):
    """Sending a message, done when it has arrived. seconds: (latency, on each link). after: the key of what it leaves after."""

    receiver: int
    key: Hashable
    seconds: tuple
    after: Hashable = None


class Wait(NamedTuple):
    """Waiting until signals and messages with these keys are done, and then some seconds, such as those of a collective."""

    keys: Sequence = ()
    seconds: float = 0.0


class Span(NamedTuple):
    """When a rank began and ended a Compute or a Wait. met: when the last signal that it waited for came, or `start`."""

    action: Compute | Wait
    start: float
    met: float
    stop: float


class Next(NamedTuple):
    """Waiting until there is something in a list that others fill, and until all else has happened at that time."""

    ready: list


class Player:
    """Plays ranks, each of which is an iterable of actions. per_core: as of `Cores`. arrived: is called with the key of each
    message that arrives, which is then forgotten; by default ranks may wait for it."""

    # A message occupies the link of its sender and then that of its receiver, as long as its bytes take. Messages to several
    # ranks leave one after another, those of several arrive one after another; latencies overlap.

    def __init__(self, ranks, per_core=1, arrived=None):
        self.clock, self._arrived = VirtualTime(), arrived or self._mark
        self.cores = Cores(self.clock, len(ranks), per_core)
        self._actions, self._spans = [iter(actions) for actions in ranks], []
        self._sending, self._receiving = defaultdict(Link), defaultdict(Link)
        self._done, self._signals = {}, {}  # {key: when it was done}; of signals alone
        self._then = defaultdict(list)  # {key: functions that are called once it is done}
        self._waiting, self._free = {}, deque()  # {rank: [a Wait, its start, how many keys are missing]}; whose Wait is over
        self._choosing, self._choosers = {}, set()  # {rank: the list of its Next}; all that ever chose

    def run(self):
        """Yield (rank, Span) in the order of their ends, until all ranks have ended or wait for ever."""
        for rank in range(len(self._actions)):
            self._go_on(rank)
        while self._spans or self._free or self._choose() or self.clock.go_on():
            while self._free:
                rank = self._free.popleft()
                wait, start, _ = self._waiting.pop(rank)
                if wait.seconds:
                    last = max((self._done[key] for key in wait.keys), default=start)
                    self.clock.at(last + wait.seconds, self._ended, rank, wait, start)
                else:
                    self._ended(rank, wait, start)
            yield from self._spans
            self._spans.clear()

    @property
    def waits(self):
        """{rank: the first key that it waits for}."""
        return {rank: next(key for key in wait.keys if key not in self._done) for rank, (wait, *_) in self._waiting.items()}

    def _go_on(self, rank):
        """Let a rank act until time passes."""
        for action in self._actions[rank]:
            now = self.clock.time
            match action:
                case Compute():
                    if action.seconds or rank in self._choosers:  # others choose before what takes no time has ended
                        self.cores.compute(action.seconds, self._ended, rank, action, now)
                        return
                    self._spans.append((rank, Span(action, now, now, now)))
                case Signal():
                    self._signals[action.key] = now
                    self._mark(action.key)
                case Message() if action.after is None or action.after in self._done:
                    self._send(rank, action)
                case Message():
                    self._then[action.after].append(partial(self._send, rank, action))
                case Wait():
                    missing = [key for key in action.keys if key not in self._done]
                    if missing or action.seconds:
                        self._waiting[rank] = [action, now, len(missing)]
                        for key in missing:
                            self._then[key].append(partial(self._met, rank))
                        if not missing:
                            self._free.append(rank)
                        return
                case Next():
                    self._choosing[rank] = action.ready
                    self._choosers.add(rank)
                    return

    def _choose(self):
        """Let the ranks go on that can choose, if nothing else happens at this time; whether there were any."""
        if not self._choosing or self.clock.more_now:
            return False
        able = sorted(rank for rank, ready in self._choosing.items() if ready)
        for rank in able:
            del self._choosing[rank]
            self._go_on(rank)
        return bool(able)

    def _send(self, rank, message):
        gone = self._sending[rank].take(self.clock.time, message.seconds[1])
        self.clock.at(gone, self._receive, message)

    def _receive(self, message):
        """The last byte has left the sender: it waits until the link of the receiver has taken in all before it."""
        latency, occupied = message.seconds
        link = self._receiving[message.receiver]
        link.free = max(self.clock.time, link.free + occupied)
        self.clock.at(link.free + latency, self._arrived, message.key)

    def _mark(self, key):
        """Something is done."""
        self._done[key] = self.clock.time
        for function in self._then.pop(key, ()):
            function()

    def _met(self, rank):
        """One of the keys that a rank waits for is done."""
        self._waiting[rank][2] -= 1
        if not self._waiting[rank][2]:
            self._free.append(rank)

    def _ended(self, rank, action, start):
        met, now = start, self.clock.time
        if self._signals and isinstance(action, Wait):
            met = min(max((self._signals.get(key, start) for key in action.keys), default=start), now)
        self._spans.append((rank, Span(action, start, max(start, met), now)))
        self._go_on(rank)
