"""What a schedule takes: when each instruction begins and ends, how long ranks wait, and how much they keep."""

from dataclasses import dataclass
from typing import NamedTuple

from gridgrad.parallel.pipeline.memory import Memory, kept
from gridgrad.parallel.pipeline.schedule import Instruction, Schedule, check, execution
from gridgrad.parallel.pipeline.times import Ports, Times, UnitTimes


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


def simulate(schedule: Schedule, times: Times | None = None, memory: Memory | None = None) -> Simulation:
    """Play a schedule of a pipeline in virtual time, without any job.

    Parameters
    ----------
    schedule : Schedule
        A complete schedule.
    times : Times, optional
        What each instruction takes. By default a forward pass takes 1 second, a backward pass 2, and messages nothing.
    memory : Memory, optional
        The bytes that a rank keeps for each micro-batch, by default none.

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
    times = times or UnitTimes()
    ports = Ports(times)
    arrivals: dict[tuple, float] = {}  # {(receiver, RECV_F or RECV_B): when the last of its messages is there}
    events: list[list[Event]] = [[] for _ in schedule.rows]
    for rank, instruction in execution(schedule):
        start = max(events[rank][-1].stop if events[rank] else 0, arrivals.pop((rank, instruction), 0))
        stop = start + times.seconds(rank, instruction)
        events[rank].append(Event(instruction, start, stop))
        for receiver, received in _messages(schedule.route, rank, instruction):
            arrival = ports.arrival(rank, receiver, instruction, stop)
            arrivals[receiver, received] = max(arrival, arrivals.get((receiver, received), 0))
    found = (kept(rank, row, schedule.route.held(rank), memory or Memory()) for rank, row in enumerate(schedule.rows))
    return Simulation(schedule, tuple(map(tuple, events)), tuple(found))


def _messages(route, rank, instruction):
    """For each message of a send, the rank that gets it and its receiving Instruction."""
    op, chunk, micro_batch = instruction
    if op == "SEND_F":
        for receiver in route.receivers(chunk, rank):
            yield receiver, Instruction("RECV_F", chunk + 1, micro_batch)
    elif op == "SEND_B":
        for receiver in route.sources(chunk, rank):
            yield receiver, Instruction("RECV_B", chunk - 1, micro_batch)
