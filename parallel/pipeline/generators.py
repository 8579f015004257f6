"""The known schedules of pipelines, for any numbers of stages and micro-batches; `complete` adds messages and updates.

The first ones say only what is computed: a stage is a rank; F, I and W take one unit of time each. The others come from a list
of what is ready (`stream`): a rank that is free does the first thing on its list. Backward comes before forward, and older
micro-batches before newer ones (Eserol 2019, section 4.2). Every micro-batch has its own update on every rank, directly after
the rank's last backward of it: the pipeline never drains, but gradients are of parameters that may have changed since the
forward. With n micro-batches in flight, a rank begins one only when all ranks have begun the one n before it; otherwise ranks
that need nothing of each other would drift apart without limit.
"""

from collections import Counter
from dataclasses import replace
from heapq import heappop, heappush

from gridgrad.parallel.pipeline.play import Compute, Message, Next, Player
from gridgrad.parallel.pipeline.schedule import Instruction, Route, Schedule, check, other_end, peers, update
from gridgrad.parallel.pipeline.simulate import UnitTimes


def complete(schedule: Schedule) -> Schedule:
    """Complete a schedule of a pipeline by all messages and updates.

    Parameters
    ----------
    schedule : Schedule
        What each rank computes, in which order.

    Returns
    -------
    The schedule with a receive before each instruction that needs one, a send after each that makes something to send, and an
    update at the end of each row that has none. What is there already stays where it is. Unsound if ranks could not follow it.

    Examples
    --------
    >>> from gridgrad.parallel import Instruction, Route, Schedule, complete_schedule
    >>> rows = [[Instruction("F", rank, 0), Instruction("B", rank, 0)] for rank in range(2)]
    >>> " ".join(map(str, complete_schedule(Schedule(rows, Route.contiguous(2))).rows[0]))
    '0F0 0SEND_F0 0RECV_B0 0B0 U0'
    """
    return check(with_updates(with_messages(schedule)))


def with_messages(schedule):
    """A schedule with a receive before each instruction that needs one, and a send after it; those that are there stay."""
    rows = []
    for rank, row in enumerate(schedule.rows):
        there = set(row)
        steps = ((one, step) for one in row for step in around(schedule.route, rank, one))
        rows.append([step for one, step in steps if step is one or step not in there])
    return replace(schedule, rows=rows)


def around(route, rank, instruction):
    """[the receive that an instruction of a rank needs, if any; the instruction; the send that it needs, if any]."""
    op, chunk, _ = instruction
    if op not in ("F", "B", "I") or not route.holds(chunk, rank):
        return [instruction]
    way = "F" if op == "F" else "B"
    messages = instruction._replace(op=f"RECV_{way}"), instruction._replace(op=f"SEND_{way}")
    receive, send = ([message] if peers(route, rank, message) else [] for message in messages)
    return [*receive, instruction, *send]


def with_updates(schedule):
    """A schedule with an update at the end of each row that has none."""
    last = update(schedule.micro_batches - 1)
    rows = (row if any(one.op == "U" for one in row) else (*row, last) for row in schedule.rows)
    return replace(schedule, rows=rows)


def first_micro_batches(schedule, number):
    """A schedule with one update a rank, without the micro-batches from this number on; sound if the whole one is."""
    if number >= schedule.micro_batches:
        return schedule
    last = update(number - 1)
    rows = (
        [last if one.op == "U" else one for one in row if one.op == "U" or one.micro_batch < number] for row in schedule.rows
    )
    return replace(schedule, rows=rows)


def repeat(schedule, steps):
    """A complete schedule so many times in a row, without a barrier; the numbers of micro-batches go on."""
    firsts = range(0, steps * schedule.micro_batches, schedule.micro_batches)
    rows = ([one._replace(micro_batch=first + one.micro_batch) for first in firsts for one in row] for row in schedule.rows)
    return replace(schedule, rows=rows)


def sequential(stages, micro_batches):
    """One micro-batch after the other, forth and back. What every pipeline is compared with."""
    rows = [[Instruction(op, rank, b) for b in range(micro_batches) for op in "FB"] for rank in range(stages)]
    return Schedule(rows, Route.contiguous(stages), "sequential")


def gpipe(stages, micro_batches):
    """All forwards, then all backwards (Huang et al. 2019): 3 (micro_batches + stages - 1) units of time."""
    rows = [[Instruction(op, rank, b) for op in "FB" for b in range(micro_batches)] for rank in range(stages)]
    return Schedule(rows, Route.contiguous(stages), "gpipe")


def one_f_one_b(stages, micro_batches):
    """One forward, one backward in turn (Harlap et al. 2018): the time of GPipe, with at most stages - rank open."""
    return replace(interleaved(stages, micro_batches, 1), name="1f1b")


def interleaved(stages, micro_batches, per_rank):
    """1F1B with per_rank chunks on each rank, dealt out in turn, in groups of `stages` micro-batches (Narayanan et al. 2021,
    section 2.2): 3 (per_rank micro_batches + stages - 1) units of 1 / per_rank of a stage, if stages divides micro_batches."""
    route = Route.looped(stages, per_rank)
    groups = range(0, micro_batches, stages)
    rows = []
    for rank in range(stages):
        chunks = route.held(rank)
        forward = [Instruction("F", c, b) for group in groups for c in chunks for b in range(group, group + stages)]
        backward = [Instruction("B", c, b) for group in groups for c in chunks[::-1] for b in range(group, group + stages)]
        # with one chunk, a rank need not be two forwards ahead of the next rank: this is 1F1B
        ahead = (per_rank - 1) * stages + (1 + (per_rank > 1)) * (stages - rank - 1) + 1
        rows.append([one for one in _in_turn(forward, backward, ahead) if one.micro_batch < micro_batches])
    return Schedule(rows, route, f"interleaved:{per_rank}")


def zb_h1(stages, micro_batches):
    """1F1B whose weights' gradients wait until a rank would be idle (ZB-H1 of Qi et al. 2024): at most `stages` open, and the
    shortest time, 3 micro_batches + stages - 1, or 2 (micro_batches + stages) - 1 with fewer micro-batches than stages."""
    rows = []
    for rank in range(stages):
        turns = _in_turn(_each("F", rank, micro_batches), _each("I", rank, micro_batches), stages - rank)
        row, behind = [], 0  # behind: the weights' gradients that are not there yet
        for one in turns:
            row.append(one)
            if one.op == "I":
                behind += 1
                if behind > rank:
                    row.append(Instruction("W", rank, one.micro_batch - rank))
                    behind -= 1
        rows.append(row + _each("W", rank, micro_batches)[micro_batches - behind :])
    return Schedule(rows, Route.contiguous(stages), "zb-h1")


def zbv(stages, micro_batches):
    """Two chunks on each rank in the shape of a V, with weights' gradients apart (ZB-V of Qi et al. 2024): for M micro-batches
    the larger of 6 M + stages - 1 and 4 (M + stages) - 2 units of half a stage; a rank keeps at most 2 * stages contexts.
    With M < 2 * stages - 1 the order is that of 2 * stages - 1, and ranks wait between steps."""
    route, many = Route.v_shaped(stages), max(micro_batches, 2 * stages - 1)
    rows = []
    for rank in range(stages):
        # such as F0: the operation, and which of the two chunks; each takes the micro-batches in order
        names = ["F0"] * (2 * (stages - rank) - 1) + ["F1", "F0"] * rank + ["F1", "I1", "W1"] * (stages - rank)
        forwards = 2 * stages - rank - 1  # F0 so far; of F1 there are `stages`
        for _ in range(stages, many):
            names += ["F0"] * (forwards < many) + ["I0", "W0", "F1", "I1", "W1"]
            forwards += 1
        names += ["I0", "I1"] * rank + ["I0", "W0"] * (stages - rank)
        names += ["W1"] * (many - names.count("W1")) + ["W0"] * (many - names.count("W0"))
        row, done = [], Counter()
        for name in names:
            row.append(Instruction(name[0], route.held(rank)[int(name[1])], done[name]))
            done[name] += 1
        rows.append([one for one in row if one.micro_batch < micro_batches])
    return Schedule(rows, route, "zbv")


def _each(op, chunk, micro_batches):
    return [Instruction(op, chunk, b) for b in range(micro_batches)]


def _in_turn(first, second, ahead):
    """Items of two lists of equal lengths in turn, beginning with so many of the first list."""
    ahead = min(ahead, len(first))
    mixed = [one for pair in zip(second, first[ahead:]) for one in pair]
    return first[:ahead] + mixed + second[len(first) - ahead :]


ORDER = {"U": 0, "B": 1, "F": 2}


def stream(route, in_flight, bound=None, times=None, micro_batches=None):
    """Yield (rank, Instruction) F, B, U in the order of time, in constant memory, without end or for so many micro_batches.
    in_flight: most micro-batches open on a rank, from F to U. bound: most updates between F and B: n allows n + 1 in flight."""
    limit = in_flight if bound is None else min(in_flight, 1 + bound)
    times = times or UnitTimes()
    ready = [[] for _ in range(route.ranks)]  # heaps of (place in ORDER, micro-batch, Instruction)
    missing = {}  # {(rank, Instruction): how many of its needs are not there yet}
    begun = Counter()  # {micro-batch: ranks that have begun it}, until all have
    started = []  # what is to be yielded

    def needed(rank, instruction):
        op, chunk, _ = instruction
        if op == "F":  # the first one of a micro-batch also needs leave to begin, from its own rank and from all together
            leave = 2 * (chunk == route.held(rank)[0])
            return len(route.sources(chunk, rank)) + route.local_before(chunk, rank) + leave
        if op == "B":
            return 1 + len(route.receivers(chunk, rank)) + route.local_after(chunk, rank)
        return len(route.held(rank))

    def meet(key):
        """One of the needs of (rank, Instruction) is met."""
        left = missing.pop(key, None) or needed(*key)
        if left > 1:
            missing[key] = left - 1
        else:
            rank, instruction = key
            heappush(ready[rank], (ORDER[instruction.op], instruction.micro_batch, instruction))

    def give_leave(rank, micro_batch):
        if micro_batches is None or micro_batch < micro_batches:
            meet((rank, Instruction("F", route.held(rank)[0], micro_batch)))

    def actions(rank):
        choose = Next(ready[rank])
        while True:
            yield choose
            instruction = heappop(ready[rank])[-1]
            started.append((rank, instruction))
            yield Compute(instruction, times.seconds(rank, instruction))
            op, chunk, micro_batch = instruction
            if op == "U":
                give_leave(rank, micro_batch + limit)
                continue
            meet((rank, Instruction("B", chunk, micro_batch) if op == "F" else update(micro_batch)))
            if route.local_after(chunk, rank) if op == "F" else route.local_before(chunk, rank):
                meet((rank, Instruction(op, chunk + 1 if op == "F" else chunk - 1, micro_batch)))
            message = Instruction(f"SEND_{op}", chunk, micro_batch)
            needs_it = Instruction(op, other_end(message).chunk, micro_batch)
            for receiver in peers(route, rank, message):
                yield Message(receiver, (receiver, needs_it), times.message(rank, receiver, message))
            if op == "F" and chunk == route.held(rank)[0]:
                begun[micro_batch] += 1
                if begun[micro_batch] == route.ranks:
                    del begun[micro_batch]
                    for other in range(route.ranks):
                        give_leave(other, micro_batch + limit)

    for rank in range(route.ranks):
        for micro_batch in range(limit):
            give_leave(rank, micro_batch)  # both leaves: nothing comes before these
            give_leave(rank, micro_batch)
    for _ in Player([actions(rank) for rank in range(route.ranks)], arrived=meet).run():
        yield from started
        started.clear()


def asynchronous(route, in_flight, micro_batches, bound=None, times=None):
    """The Schedule of the first micro-batches of `stream`, an update after each, without messages."""
    rows = [[] for _ in range(route.ranks)]
    for rank, instruction in stream(route, in_flight, bound, times, micro_batches):
        rows[rank].append(instruction)
    return Schedule(rows, route, f"async:{in_flight}" + ("" if bound is None else f":bound={bound}"))


def one_f_one_b_anywhere(route, micro_batches, in_flight=None, times=None):
    """The order of `stream` without updates, on any route. in_flight: by default the number of ranks."""
    found = asynchronous(route, in_flight or route.ranks, micro_batches, times=times)
    return Schedule([[one for one in row if one.op != "U"] for row in found.rows], route, "1f1b")


def gpipe_anywhere(route, micro_batches, times=None):
    """All forwards before all backwards, on any route."""
    found = one_f_one_b_anywhere(route, micro_batches, micro_batches, times)
    return Schedule([sorted(row, key=lambda one: one.op != "F") for row in found.rows], route, "gpipe")
