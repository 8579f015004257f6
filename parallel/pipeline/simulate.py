"""What a schedule takes: when each instruction begins and ends, how long ranks wait, what they keep; and a drawing of it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from gridgrad.parallel.pipeline.schedule import Instruction, Schedule, check_rows, execution


@dataclass(frozen=True)
class UnitTimes:
    """Seconds of F, I, W, U and of a message, the same for all ranks and chunks. B takes as long as I and W together."""

    forward: float = 1
    input: float = 1
    weight: float = 1
    update: float = 0
    latency: float = 0

    def seconds(self, rank, instruction):
        """Seconds that a rank is busy with an Instruction; of a SEND or RECV without the flight of the message."""
        of_op = {"F": self.forward, "I": self.input, "W": self.weight, "B": self.input + self.weight, "U": self.update}
        return of_op.get(instruction.op, 0)

    def message(self, sender, receiver, instruction):
        """(latency, seconds on each link) of a SEND_F or SEND_B."""
        return self.latency, 0


@dataclass(frozen=True)
class TableTimes:
    """Times from tables. A missing B takes as long as I and W; all else that is missing takes no time."""

    table: dict  # {(rank, op, chunk) or (rank, op, chunk, micro-batch): seconds}; the chunk of U is None
    flights: dict = field(default_factory=dict)  # {(sender, receiver, SEND_F or SEND_B, chunk): what `message` returns}

    def seconds(self, rank, instruction):
        found = self.table.get((rank, *instruction), self.table.get((rank, instruction.op, instruction.chunk)))
        if found is None and instruction.op == "B":
            return sum(self.seconds(rank, instruction._replace(op=half)) for half in "IW")
        return found or 0.0

    def message(self, sender, receiver, instruction):
        return self.flights.get((sender, receiver, instruction.op, instruction.chunk), (0.0, 0.0))


@dataclass(frozen=True)
class Memory:
    """{(rank, chunk): bytes} of what ranks keep, without messages and what an optimizer keeps."""

    contexts: dict = field(default_factory=dict)  # of a micro-batch, open from F until B or W ends
    between: dict = field(default_factory=dict)  # beside these, from I until W ends
    weights: dict = field(default_factory=dict)  # of a version of the parameters
    stash: bool = True  # whether versions are kept for open contexts


@dataclass(frozen=True)
class KeptMemory:
    """The most that a rank keeps."""

    open: int  # contexts
    of_chunk: dict  # {chunk: contexts}
    versions: dict  # {chunk: versions of its parameters}
    bytes: float
    staleness: dict  # {(chunk, micro-batch): updates of the rank between its F and its B or I}


def kept(rank, row, chunks, memory):
    """The KeptMemory of a rank that holds `chunks` and follows `row`, a row of a sound schedule."""
    version, opened = 0, {}  # opened: {(chunk, micro-batch): the version at its F}
    users = {chunk: Counter() for chunk in chunks}  # {version: how many contexts are open of it}
    most_of, most_versions = dict.fromkeys(chunks, 0), dict.fromkeys(chunks, 1)
    level = sum(memory.weights.get((rank, chunk), 0) for chunk in chunks)
    most, most_open, staleness = level, 0, {}

    def versions(chunk):
        return len(users[chunk]) + (version not in users[chunk]) if memory.stash else 1

    for op, chunk, micro_batch in row:
        place = rank, chunk
        if op == "F":
            opened[chunk, micro_batch] = version
            users[chunk][version] += 1
            most_of[chunk] = max(most_of[chunk], users[chunk].total())
            most_open = max(most_open, len(opened))
            level += memory.contexts.get(place, 0)
        elif op == "U":
            before = {chunk: versions(chunk) for chunk in chunks}
            version += 1
            for chunk in chunks:
                most_versions[chunk] = max(most_versions[chunk], versions(chunk))
                level += (versions(chunk) - before[chunk]) * memory.weights.get((rank, chunk), 0)
        if op in ("I", "B"):
            staleness[chunk, micro_batch] = version - opened[chunk, micro_batch]
        if op == "I":
            level += memory.between.get(place, 0)
        most = max(most, level)
        if op in ("B", "W"):
            before, then = versions(chunk), opened.pop((chunk, micro_batch))
            users[chunk][then] -= 1
            if not users[chunk][then]:
                del users[chunk][then]
            level += (versions(chunk) - before) * memory.weights.get(place, 0) - memory.contexts.get(place, 0)
            level -= memory.between.get(place, 0) if op == "W" else 0
    return KeptMemory(most_open, most_of, most_versions, most, staleness)


class Event(NamedTuple):
    """An Instruction, and the seconds at which it starts and stops, without waiting in between."""

    instruction: Instruction
    start: float
    stop: float


@dataclass(frozen=True)
class Simulation:
    """A schedule in virtual time. What it says of each rank is a tuple."""

    schedule: Schedule
    events: tuple  # of each rank: its Events
    kept: tuple  # of each rank: its KeptMemory

    @property
    def makespan(self):
        """Seconds until the last rank has done everything."""
        return max(row[-1].stop for row in self.events)

    @property
    def busy(self):
        """Seconds in which each rank does something."""
        return tuple(sum(event.stop - event.start for event in row) for row in self.events)

    @property
    def idle(self):
        """Seconds of the makespan in which each rank waits or has ended."""
        return tuple(self.makespan - busy for busy in self.busy)

    @property
    def use(self):
        """The mean share of the makespan in which a rank is busy."""
        return sum(self.busy) / (len(self.events) * self.makespan) if self.makespan else 0.0

    @property
    def peak_open(self):
        """The most contexts that each rank has open at a time."""
        return tuple(of.open for of in self.kept)

    @property
    def peak_memory(self):
        """The most bytes that each rank keeps at a time."""
        return tuple(of.bytes for of in self.kept)

    @property
    def staleness(self):
        """{(rank, chunk, micro-batch): updates of the rank between forward and backward}."""
        return {(rank, *key): updates for rank, of in enumerate(self.kept) for key, updates in of.staleness.items()}


def simulate(
    schedule: Schedule, times: UnitTimes | TableTimes | None = None, memory: Memory | None = None, crowd: float = 1
) -> Simulation:
    """Play a schedule of a pipeline in virtual time, without any job.

    Parameters
    ----------
    schedule : Schedule
        A complete schedule.
    times : UnitTimes or TableTimes, optional
        What each instruction takes. By default a forward pass takes 1 second, a backward pass 2, and messages nothing.
    memory : Memory, optional
        The bytes that a rank keeps for each micro-batch, by default none.
    crowd : float, optional
        How many ranks share a core: the times are those while all ranks compute, and less where some of them wait.

    Returns
    -------
    A Simulation: `makespan`, the seconds until the last rank has done everything; `idle`, those in which each rank waits;
    `peak_open`, the most micro-batches that each rank keeps at a time. Unsound if ranks could not follow the schedule.

    Examples
    --------
    >>> from gridgrad.parallel import Instruction, Route, Schedule, complete_schedule, simulate_schedule
    >>> rows = [[Instruction(op, rank, micro_batch) for op in "FB" for micro_batch in range(4)] for rank in range(3)]
    >>> found = simulate_schedule(complete_schedule(Schedule(rows, Route.contiguous(3))))
    >>> found.makespan, found.peak_open  # GPipe takes 3 (micro-batches + stages - 1)
    (18, (4, 4, 4))
    """
    check_rows(schedule)
    events: list[list[Event]] = [[] for _ in schedule.rows]
    for rank, *event in execution(schedule, times or UnitTimes(), crowd):
        events[rank].append(Event(*event))
    found = (kept(rank, row, schedule.route.held(rank), memory or Memory()) for rank, row in enumerate(schedule.rows))
    return Simulation(schedule, tuple(map(tuple, events)), tuple(found))


def draw(simulation: Simulation, unit: float | None = None, columns: int = 40) -> str:
    """Draw a schedule in virtual time: a line a rank, time to the right, - where an instruction goes on, a dot for waiting.

    Parameters
    ----------
    simulation : Simulation
        What `simulate_schedule` returned.
    unit : float, optional
        The seconds of a column, by default those of the shortest instruction that computes.
    columns : int
        How many columns to show at most.

    Returns
    -------
    The lines.

    Examples
    --------
    >>> from gridgrad.parallel import Instruction, Route, Schedule, complete_schedule, draw_schedule, simulate_schedule
    >>> rows = [[Instruction("F", rank, 0), Instruction("B", rank, 0)] for rank in range(2)]
    >>> print(draw_schedule(simulate_schedule(complete_schedule(Schedule(rows, Route.contiguous(2))))))
    rank 0: 0F0 .   .   .   0B0 -
    rank 1: .   1F0 1B0 -
    """
    rows = [[one for one in row if one.stop > one.start and one.instruction.op in "FBIWU"] for row in simulation.events]
    unit = unit or min((event.stop - event.start for row in rows for event in row), default=1)
    lines = []
    for row in rows:
        cells: list[str] = []
        for event in row:
            begin, end = round(event.start / unit), round(event.stop / unit)
            cells += ["."] * (begin - len(cells))
            cells += [str(event.instruction), *["-"] * (end - begin - 1)][: end - len(cells)]
            if len(cells) > columns:
                break
        lines.append([*cells[:columns], *[".."] * (len(cells) > columns)])
    width = max((len(cell) for cells in lines for cell in cells), default=1)
    padded = [" ".join(cell.ljust(width) for cell in cells) for cells in lines]
    return "\n".join(f"rank {rank}: {line}".rstrip() for rank, line in enumerate(padded))
