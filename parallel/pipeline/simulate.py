"""What a schedule takes: when each instruction begins and ends, how long ranks wait, and how much they keep."""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gridgrad.parallel.grid.virtual_time import Cores, Network, VirtualTime
from gridgrad.parallel.pipeline.memory import Memory, kept
from gridgrad.parallel.pipeline.schedule import Instruction, Schedule, check
from gridgrad.parallel.pipeline.times import Times, UnitTimes


class Event(NamedTuple):
    """An Instruction, and the seconds at which it starts and stops. A rank waits before the start, not in between."""

    instruction: Instruction
    start: float
    stop: float


@dataclass(frozen=True)
class Simulation:
    """A schedule in virtual time. events: for each rank its Events. kept: for each rank its Kept."""

    schedule: Schedule
    events: tuple
    kept: tuple

    @property
    def makespan(self):
        """Seconds from the start until the last rank has done everything."""
        return max(row[-1].stop for row in self.events)

    @property
    def busy(self):
        """For each rank, the seconds in which it does something. A tuple."""
        return tuple(sum(event.stop - event.start for event in row) for row in self.events)

    @property
    def idle(self):
        """For each rank, the seconds of the makespan in which it waits or has ended. A tuple."""
        return tuple(self.makespan - busy for busy in self.busy)

    @property
    def use(self):
        """The mean share of the makespan in which a rank is busy; 0 where nothing takes any time."""
        return sum(self.busy) / (len(self.events) * self.makespan) if self.makespan else 0.0

    @property
    def peak_open(self):
        """For each rank, the most contexts that are open at a time. A tuple."""
        return tuple(of.open for of in self.kept)

    @property
    def peak_memory(self):
        """For each rank, the most bytes that it keeps at a time. A tuple."""
        return tuple(of.bytes for of in self.kept)

    @property
    def staleness(self):
        """{(rank, chunk, micro-batch): updates of the rank between forward and backward}."""
        return {(rank, *key): updates for rank, of in enumerate(self.kept) for key, updates in of.staleness.items()}

    def idle_between(self, first, last):
        """For each rank, the seconds for which it waits between the ends of two of its updates, which are counted from 0.

        In a schedule that `repeat` made, these are what the steps after the first cost where no barrier divides them.
        """
        found = []
        for row in self.events:
            ends = [place for place, event in enumerate(row) if event.instruction.op == "U"]
            begin, end = ends[first], ends[last]
            busy = sum(event.stop - event.start for event in row[begin + 1 : end + 1])
            found.append(row[end].stop - row[begin].stop - busy)
        return tuple(found)


def simulate(schedule: Schedule, times: Times | None = None, memory: Memory | None = None, crowd: float = 1) -> Simulation:
    """Play a schedule of a pipeline in virtual time, without any job.

    Parameters
    ----------
    schedule : Schedule
        A complete schedule.
    times : Times, optional
        What each instruction takes. By default a forward pass takes 1 second, a backward pass 2, and messages nothing.
    memory : Memory, optional
        The bytes that a rank keeps for each micro-batch, by default none.
    crowd : float, optional
        How many ranks share a core: the times are those while all ranks compute, and less where some of them wait.

    Returns
    -------
    A Simulation: its `makespan` are the seconds until the last rank has done everything, `idle` those in which each rank waits,
    and `peak_open` the micro-batches that each rank keeps at a time, at most.

    Raises
    ------
    Unsound
        If ranks wait for each other for ever, with the place of each rank that is blocked, or could not follow the schedule for
        another reason.

    Examples
    --------
    >>> from gridgrad.parallel import Instruction, Route, Schedule, complete_schedule, simulate_schedule
    >>> rows = [[Instruction(op, rank, micro_batch) for op in "FB" for micro_batch in range(4)] for rank in range(3)]
    >>> found = simulate_schedule(complete_schedule(Schedule(rows, Route.contiguous(3))))
    >>> found.makespan, found.peak_open  # GPipe takes 3 (micro-batches + stages - 1)
    (18, (4, 4, 4))
    """
    check(schedule)
    play = _Play(schedule, times or UnitTimes(), crowd)
    found = (kept(rank, row, schedule.route.held(rank), memory or Memory()) for rank, row in enumerate(schedule.rows))
    return Simulation(schedule, tuple(map(tuple, play.events)), tuple(found))


class _Play:
    """The ranks while they follow their rows. events: for each rank, its Events."""

    def __init__(self, schedule, times, crowd):
        self.schedule, self.times, self.clock = schedule, times, VirtualTime()
        self.network, self.cores = Network(self.clock), Cores(self.clock, len(schedule.rows), crowd)
        self.arrived, self.waiting = Counter(), {}  # messages by (rank, receive); {the same: how many the rank waits for}
        self.events = [[] for _ in schedule.rows]
        self.ranks = [partial(next, self._live(rank), None) for rank in range(len(schedule.rows))]
        for go_on in self.ranks:
            go_on()
        while self.clock.go_on():
            pass

    def _live(self, rank):
        """A generator of what a rank does, which yields while the rank waits or is busy."""
        route, clock = self.schedule.route, self.clock
        for instruction in self.schedule.rows[rank]:
            op, chunk, _ = instruction
            if op in ("RECV_F", "RECV_B"):
                needed = len(route.sources(chunk, rank) if op == "RECV_F" else route.receivers(chunk, rank))
                if self.arrived[rank, instruction] < needed:
                    self.waiting[rank, instruction] = needed
                    yield
            start, seconds = clock.time, self.times.seconds(rank, instruction)
            if seconds:
                self.cores.compute(seconds, self.ranks[rank])
                yield
            self.events[rank].append(Event(instruction, start, clock.time))
            for receiver, received in _messages(route, rank, instruction):
                times = self.times.message(rank, receiver, instruction)
                self.network.send(rank, receiver, times, self._arrive, receiver, received)

    def _arrive(self, receiver, received):
        self.arrived[receiver, received] += 1
        if self.arrived[receiver, received] == self.waiting.get((receiver, received)):
            self.ranks[receiver]()


def _messages(route, rank, instruction):
    """For each message of a send, the rank that gets it and its receiving Instruction."""
    op, chunk, micro_batch = instruction
    if op == "SEND_F":
        for receiver in route.receivers(chunk, rank):
            yield receiver, Instruction("RECV_F", chunk + 1, micro_batch)
    elif op == "SEND_B":
        for receiver in route.sources(chunk, rank):
            yield receiver, Instruction("RECV_B", chunk - 1, micro_batch)
