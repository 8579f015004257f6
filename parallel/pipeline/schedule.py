"""Schedules of a pipeline: which rank has which chunk, its list of instructions, and whether ranks can follow them. A network's
layers are cut into chunks 0, 1, .., each of consecutive layers. A rank holds whole chunks or parts of them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

from gridgrad.nn.arguments import whole_number
from gridgrad.parallel.pipeline.play import Compute, Message, Player, Signal, Wait


@dataclass(frozen=True)
class Route:
    """The ranks of each chunk of a pipeline, and the messages between one chunk and the next.

    A rank that also holds the chunk before needs its own outputs too, without a message. Backward sends their gradients back.

    Parameters
    ----------
    places : sequence of sequences of int
        For each chunk, the ranks that hold it or a part of it.
    senders : sequence of dicts
        For each chunk {rank: other ranks whose outputs of the chunk before it needs}; of chunk 0 {}.
    ranks : int
        The number of ranks. ValueError if one holds nothing, or if the senders do not fit the places.

    Examples
    --------
    >>> from gridgrad.parallel import Route
    >>> Route.v_shaped(2).places, Route.looped(2, per_rank=2).held(1)
    (((0,), (1,), (1,), (0,)), (1, 3))
    """

    places: Sequence[Sequence[int]]
    senders: Sequence[Mapping[int, Sequence[int]]]
    ranks: int

    def __post_init__(self):
        object.__setattr__(self, "places", tuple(tuple(sorted(ranks)) for ranks in self.places))
        senders = ({rank: tuple(sorted(found)) for rank, found in of.items() if found} for of in self.senders)
        object.__setattr__(self, "senders", tuple(senders))
        idle = set(range(self.ranks)).difference(*self.places) if self.places else {0}
        if idle:
            raise ValueError(f"rank {min(idle)} of the pipeline holds no chunk of the network")
        if len(self.senders) != self.chunks or any(rank >= self.ranks for ranks in self.places for rank in ranks):
            raise ValueError(f"a route of {self.chunks} chunks on {self.ranks} ranks needs as many senders, and no other ranks")
        for chunk, ranks in enumerate(self.places):
            before = set(self.places[chunk - 1]) if chunk else set()
            for rank in {*ranks, *self.senders[chunk]}:
                senders = self.senders[chunk].get(rank, ())
                if rank not in ranks or rank in senders or not before.issuperset(senders):
                    raise ValueError(f"what rank {rank} needs for chunk {chunk} can not come from ranks {senders}")
                if chunk and not senders and rank not in before:
                    raise ValueError(f"nothing comes to rank {rank} for chunk {chunk}")

    @classmethod
    def of_stages(cls, stage_of_chunk: Iterable[int]) -> "Route":
        """Whole chunks. stage_of_chunk: the rank of each."""
        places = tuple((whole_number(stage, "a stage", least=0),) for stage in stage_of_chunk)
        pairs = zip(places, places[1:])
        senders: tuple = ({}, *({here: (before,)} if here != before else {} for (before,), (here,) in pairs))
        return cls(places, senders, 1 + max((stage for (stage,) in places), default=-1))

    @classmethod
    def contiguous(cls, stages: int) -> "Route":
        """A chunk on each of so many ranks."""
        return cls.of_stages(range(whole_number(stages, "stages")))

    @classmethod
    def looped(cls, stages: int, per_rank: int) -> "Route":
        """So many chunks on each rank, dealt out in turn: chunk c on rank c % stages."""
        return cls.of_stages([*range(whole_number(stages, "stages"))] * whole_number(per_rank, "chunks of a rank"))

    @classmethod
    def v_shaped(cls, stages: int) -> "Route":
        """Two chunks on each rank, those of rank 0 being the first and the last one of the network."""
        forth = range(whole_number(stages, "stages"))
        return cls.of_stages([*forth, *reversed(forth)])

    @classmethod
    def everywhere(cls, ranks: int, senders: Sequence[Mapping[int, Sequence[int]]]) -> "Route":
        """A part of every chunk on every rank. senders: as in Route."""
        return cls((tuple(range(ranks)),) * len(senders), tuple(senders), ranks)

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return len(self.places)

    def held(self, rank: int) -> tuple[int, ...]:
        """The chunks that a rank holds or has a part of, in rising order."""
        return self._held[rank]

    def holds(self, chunk: int, rank: int) -> bool:
        """Whether a rank holds a chunk or a part of it."""
        return 0 <= chunk < self.chunks and rank in self.places[chunk]

    def local_before(self, chunk: int, rank: int) -> bool:
        """Whether a rank holds this chunk and the one before, or parts of them."""
        return self.holds(chunk, rank) and self.holds(chunk - 1, rank)

    def local_after(self, chunk: int, rank: int) -> bool:
        """Whether a rank holds this chunk and the one after, or parts of them."""
        return self.local_before(chunk + 1, rank)

    def sources(self, chunk: int, rank: int) -> Sequence[int]:
        """The other ranks whose outputs of the chunk before a rank needs for this one."""
        return self.senders[chunk].get(rank, ())

    def receivers(self, chunk: int, rank: int) -> Sequence[int]:
        """The other ranks that need a rank's outputs of a chunk for the next chunk."""
        return self._receivers[chunk].get(rank, ())

    @cached_property
    def _held(self):
        held = [[] for _ in range(self.ranks)]
        for chunk, ranks in enumerate(self.places):
            for rank in ranks:
                held[rank].append(chunk)
        return tuple(map(tuple, held))

    @cached_property
    def _receivers(self):
        found = [{} for _ in self.places]
        for chunk, of in enumerate(self.senders):
            for receiver in sorted(of):
                for sender in of[receiver]:
                    found[chunk - 1][sender] = (*found[chunk - 1].get(sender, ()), receiver)
        return tuple(found)


MESSAGES = "SEND_F", "RECV_F", "SEND_B", "RECV_B"
AHEAD = 2  # how many receives a rank announces before their instruction's turn
AROUND = 4  # instructions shown on each side of one that is marked
_TEXT = re.compile(r"(\d{1,7})(F|B|I|W|SEND_F|RECV_F|SEND_B|RECV_B)(\d{1,7})|U(\d{1,7})", re.ASCII)


class Instruction(NamedTuple):
    """What a rank of a pipeline does for one micro-batch and, except in an update, for one chunk of the network.

    As text, "2F0" is F of chunk 2 for micro-batch 0, and "U0" an update after micro-batch 0.

    Parameters
    ----------
    op : str
        F forward; B backward, or its halves I, the gradient of the input, and W, that of the parameters. SEND_F sends the
        outputs on, RECV_F receives the inputs; SEND_B sends the gradient of the inputs back, RECV_B receives that of the
        outputs. U updates with the gradients of all micro-batches up to `micro_batch` that no update has taken.
    chunk : int or None
        The number of the chunk; None for an update.
    micro_batch : int
        The number of the micro-batch.

    Examples
    --------
    >>> from gridgrad.parallel import Instruction
    >>> print(Instruction("F", 2, 0), Instruction.parse("U3"))
    2F0 U3
    """

    op: str
    chunk: int | None
    micro_batch: int

    def __str__(self):
        return f"{'' if self.chunk is None else self.chunk}{self.op}{self.micro_batch}"

    @classmethod
    def parse(cls, text: str) -> "Instruction":
        """The instruction that a text means. ValueError if it means none."""
        found = _TEXT.fullmatch(text)
        if not found:
            raise ValueError(f"{text[:30]!r} is no instruction such as 2F0, 2I0, 2W0, 2B0, 2SEND_F0, 2RECV_B0 or U0")
        chunk, op, micro_batch, after = found.groups()
        return cls("U", None, int(after)) if op is None else cls(op, int(chunk), int(micro_batch))


def update(micro_batch):
    return Instruction("U", None, micro_batch)


def peers(route, rank, message):
    """The ranks to which a SEND goes, or from which a RECV comes."""
    forth = message.op in ("SEND_F", "RECV_B")
    return (route.receivers if forth else route.sources)(message.chunk, rank)


def other_end(message):
    """The RECV of the peers for a SEND of a rank, and the other way round."""
    op, chunk, micro_batch = message
    at_peers = op.replace("SEND", "RECV") if op.startswith("SEND") else op.replace("RECV", "SEND")
    return Instruction(at_peers, chunk + 1 if op in ("SEND_F", "RECV_B") else chunk - 1, micro_batch)


def with_announcements(instructions):
    """Yield each instruction of a list with the list of the receives that its rank announces before it."""
    receives = [instruction for instruction in instructions if instruction.op.startswith("RECV")]
    turn = announced = 0
    for instruction in instructions:
        turn += instruction.op.startswith("RECV")
        now = min(turn + AHEAD, len(receives))
        yield instruction, receives[announced:now]
        announced = now


@dataclass(frozen=True)
class Schedule:
    """What each rank of a pipeline does, in which order. It may lack messages and updates, which `complete_schedule` adds.

    Parameters
    ----------
    rows : sequence of sequences of Instruction
        For each rank its Instructions, in order.
    route : Route
        Which rank has which chunk of the network; ValueError if it has another number of ranks.
    name : str
        For people.

    Examples
    --------
    Two ranks, each with a chunk, pass two micro-batches forward and then back, as GPipe does:

    >>> from gridgrad.parallel import Instruction, Route, Schedule
    >>> rows = [[Instruction(op, rank, micro_batch) for op in "FB" for micro_batch in range(2)] for rank in range(2)]
    >>> schedule = Schedule(rows, Route.contiguous(2), "gpipe")
    >>> schedule.micro_batches, " ".join(map(str, schedule.rows[1]))
    (2, '1F0 1F1 1B0 1B1')
    """

    rows: Sequence[Sequence[Instruction]]
    route: Route
    name: str = ""

    def __post_init__(self):
        object.__setattr__(self, "rows", tuple(map(tuple, self.rows)))
        if len(self.rows) != self.route.ranks:
            raise ValueError(f"a schedule for {len(self.rows)} ranks does not fit a route on {self.route.ranks}")

    @cached_property
    def micro_batches(self) -> int:
        """The number of micro-batches."""
        return 1 + max((instruction.micro_batch for row in self.rows for instruction in row), default=-1)

    @property
    def synchronous(self) -> bool:
        """Whether each rank updates its parameters once, after everything that it computes."""
        ops = [[instruction.op for instruction in row if instruction.op not in MESSAGES] for row in self.rows]
        return all(of.count("U") == 1 and of[-1] == "U" for of in ops)


class Unsound(ValueError):
    """Ranks that follow a schedule would compute something wrong, or wait for ever; a note shows the rows around the marks.

    Parameters
    ----------
    line : str
        The message.
    rows : sequence of sequences of Instruction
        Those of the schedule.
    marks : dict
        {rank: position in its row} of what is marked.

    Examples
    --------
    >>> from gridgrad.parallel import Instruction, Route, Schedule, Unsound, complete_schedule
    >>> try:
    ...     complete_schedule(Schedule([[Instruction("B", 0, 0)]], Route.contiguous(1)))
    ... except Unsound as refused:
    ...     print(refused)
    rank 0 never does 0F0
    """

    def __init__(self, line: str, rows: Sequence[Sequence[Instruction]], marks: Mapping[int, int]) -> None:
        super().__init__(line)
        self.rows, self.marks = rows, marks
        self.add_note(rows_around(rows, marks))

    def of(self, name: str) -> "Unsound":
        """The same, said of the schedule with this name."""
        return Unsound(f"{name}: {self}", self.rows, self.marks)


def rows_around(rows, marks):
    """A line a rank: the instructions around the marked one, such as .. 0F3 >0F4< 0B0 ..; of other ranks the first ones."""
    lines = []
    for rank, row in enumerate(rows):
        at = marks.get(rank, -1)
        begin, end = max(0, at - AROUND), max(at, AROUND) + AROUND + 1
        cells = [f">{one}<" if place == at else str(one) for place, one in enumerate(row[begin:end], start=begin)]
        lines.append(f"rank {rank}: {'.. ' if begin else ''}{' '.join(cells)}{' ..' if end < len(row) else ''}")
    return "\n".join(lines)


def needs(route, rank, instruction):
    """Yield what must be done before an instruction other than U: Instructions of the rank, where B counts as I and W, and of a
    message (its sender, the SEND, its receiver)."""
    op, chunk, micro_batch = instruction
    if op == "F":
        if route.sources(chunk, rank):
            yield Instruction("RECV_F", chunk, micro_batch)
        if route.local_before(chunk, rank):
            yield Instruction("F", chunk - 1, micro_batch)
    elif op in ("B", "I"):
        yield Instruction("F", chunk, micro_batch)
        if route.receivers(chunk, rank):
            yield Instruction("RECV_B", chunk, micro_batch)
        if route.local_after(chunk, rank):
            yield Instruction("I", chunk + 1, micro_batch)
    elif op in ("W", "SEND_B"):
        yield Instruction("I", chunk, micro_batch)
    elif op == "SEND_F":
        yield Instruction("F", chunk, micro_batch)
    elif op in ("RECV_F", "RECV_B"):
        yield from ((sender, other_end(instruction), rank) for sender in peers(route, rank, instruction))


def actions(schedule, rank, times, position):
    """Yield the actions of a rank that follows its row. times: None where nothing takes time, messages included.
    position: {rank: where in its row it is}, which is kept up to date."""
    done = set()
    for place, instruction in enumerate(schedule.rows[rank]):
        position[rank] = place
        if missing := [need for need in needs(schedule.route, rank, instruction) if need not in done]:
            yield Wait(missing)
        if times:
            yield Compute(instruction, times.seconds(rank, instruction))
        if instruction.op == "B":
            done |= {instruction._replace(op="I"), instruction._replace(op="W")}
        done.add(instruction)
        if instruction.op.startswith("SEND"):
            for receiver in peers(schedule.route, rank, instruction):
                key = rank, instruction, receiver
                yield Message(receiver, key, times.message(rank, receiver, instruction)) if times else Signal(key)


def execution(schedule, times=None, per_core=1):
    """Yield (rank, Instruction, when it starts, when it stops), each rank's in order, if there are times. Unsound if ranks wait
    for ever. per_core: how many ranks share a core."""
    position = {}
    player = Player([actions(schedule, rank, times, position) for rank in range(len(schedule.rows))], per_core)
    for rank, (action, start, _, stop) in player.run():
        if isinstance(action, Compute):
            yield rank, action.what, start, stop
    if player.waits:
        rank, needed = min(player.waits.items())
        what, whose = schedule.rows[rank][position[rank]], "which never comes"
        if not isinstance(needed, Instruction):
            sender, needed, _ = needed
            whose = f"which rank {sender} never does"
        others = ", ".join(f"rank {r} at {schedule.rows[r][position[r]]}" for r in sorted(player.waits)[:8])
        line = f"ranks wait for ever: {what} of rank {rank} needs {needed}, {whose} before it; waiting: {others}"
        raise Unsound(line, schedule.rows, {rank: position[rank] for rank in player.waits})


def check(schedule):
    """Return a complete schedule, or raise Unsound unless ranks can follow it: each does F and B, or F, I and W, once for each
    micro-batch and chunk, with messages; updates take all gradients, alike on all ranks; nobody waits for ever."""
    check_rows(schedule)
    for _ in execution(schedule):
        pass
    return schedule


def check_rows(schedule):
    """`check`, but not whether ranks wait for ever, which `execution` finds."""
    for rank in range(len(schedule.rows)):
        _check_row(schedule, rank)
    updates = [[instruction for instruction in row if instruction.op == "U"] for row in schedule.rows]
    for rank, found in enumerate(updates):
        if found != updates[0]:
            raise Unsound(f"rank {rank} updates its parameters after other micro-batches than rank 0", schedule.rows, {})


def _check_row(schedule, rank):
    row, route = schedule.rows[rank], schedule.route
    position = {}
    for at, instruction in enumerate(row):
        if instruction.op != "U" and not route.holds(instruction.chunk, rank):
            raise Unsound(f"rank {rank} does {instruction}, but does not hold this chunk", schedule.rows, {rank: at})
        if instruction in position:
            raise Unsound(f"rank {rank} does {instruction} twice", schedule.rows, {rank: at})
        if instruction.op in MESSAGES and not peers(route, rank, instruction):
            raise Unsound(f"rank {rank} does {instruction}, but there is no such message", schedule.rows, {rank: at})
        position[instruction] = at

    begin = 0  # the first micro-batch whose gradients no update has taken
    updates = [instruction for instruction in row if instruction.op == "U"]
    for taken in updates:
        for micro_batch in range(begin, taken.micro_batch + 1):
            for chunk in route.held(rank):
                last = _check_chunk(schedule, rank, chunk, micro_batch, position)
                if position[last] > position[taken]:
                    raise Unsound(f"rank {rank} does {taken} before {last}", schedule.rows, {rank: position[taken]})
        if taken.micro_batch < begin:
            raise Unsound(f"rank {rank} does {taken} too late", schedule.rows, {rank: position[taken]})
        begin = taken.micro_batch + 1
    if begin < schedule.micro_batches or not updates:
        line = f"rank {rank} never updates its parameters after micro-batch {begin}"
        raise Unsound(line, schedule.rows, {rank: len(row) - 1})


def _check_chunk(schedule, rank, chunk, micro_batch, position):
    """The Instruction that completes the gradients of a chunk and a micro-batch; Unsound unless the rank does all of it."""

    def there(op):
        return Instruction(op, chunk, micro_batch) in position

    needed = [op for op in MESSAGES if peers(schedule.route, rank, Instruction(op, chunk, micro_batch))]
    missing = [op for op in ("F", *needed) if not there(op)]
    if not missing and not there("B"):
        missing = [op for op in ("I", "W") if not there(op)]
    if missing:
        where = {rank: position[Instruction("F", chunk, micro_batch)]} if there("F") else {}
        raise Unsound(f"rank {rank} never does {Instruction(missing[0], chunk, micro_batch)}", schedule.rows, where)
    if there("B") and (there("I") or there("W")):
        twice = Instruction("B", chunk, micro_batch)
        raise Unsound(f"rank {rank} does {twice} and a half of it again", schedule.rows, {rank: position[twice]})
    return Instruction("B" if there("B") else "W", chunk, micro_batch)


def shortest(layers, chunks, seconds):
    """Where the second and later chunks begin so that the longest is shortest, the last one as early as it can; None if all
    are inf. seconds(chunk, first layer, the one behind its last): of a chunk, which may be empty, or inf."""
    best = [(seconds(0, 0, end), None) for end in range(layers + 1)]  # (the longest chunk, where the last one begins)
    tables = [best]
    for chunk in range(1, chunks):
        before, best = best, []
        for end in range(layers + 1):
            starts = (start for start in range(end + 1) if before[start][0] < inf)
            options = ((max(before[start][0], seconds(chunk, start, end)), start) for start in starts)
            best.append(min(options, default=(inf, 0)))
        tables.append(best)
    if best[layers][0] == inf:
        return None
    cuts, end = [], layers
    for table in reversed(tables[1:]):
        end = table[end][1]
        cuts.append(end)
    return tuple(reversed(cuts))
