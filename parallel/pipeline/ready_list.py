"""Schedules from a list of what is ready: whenever a rank is free, it does the first thing on its list.

Backward comes before forward, and older micro-batches come before newer ones (Eserol 2019, section 4.2). Every micro-batch has
its own update on every rank, directly after the rank's last backward of it, and forwards and backwards of other micro-batches
go on in the meantime: the pipeline never drains, but gradients are of parameters that may have changed since the forward. Where
a rank has several chunks, gradients of several micro-batches may be there at a time, of some chunks each.

Ranks that need nothing of each other, such as one without any work, would drift apart without limit. So a rank begins a
micro-batch only when all ranks have begun the one that is as many before it as may be in flight. Where every rank needs the
others, as in a network of dense layers, that is so anyway.
"""

from collections import Counter
from heapq import heappop, heappush

from gridgrad.nn.arguments import whole_number
from gridgrad.parallel.grid.virtual_time import Network, VirtualTime
from gridgrad.parallel.pipeline.schedule import Instruction, Schedule, update
from gridgrad.parallel.pipeline.times import UnitTimes

ORDER = {"U": 0, "B": 1, "F": 2}


def stream(route, in_flight, bound=None, times=None, micro_batches=None):
    """Yields (rank, Instruction) without end in the order of time: F, B and U, in the order in which each rank does them.

    in_flight: how many micro-batches are at most open on a rank, from its first F to its U. bound: how many updates are at most
    between the F and the B of a micro-batch on a rank. Since updates come in the order of the micro-batches, a bound of n
    allows n + 1 in flight, and the smaller number counts; with 1 this is SGD, one micro-batch after the other.
    times: a Times, by default UnitTimes. Whatever they are, also zero on some ranks or all, every rank goes on: none is further
    ahead of another than micro-batches may be in flight. micro_batches: end after so many. The memory used does not depend on
    how many passed.
    """
    limit = whole_number(in_flight, "the number of micro-batches in flight")
    if bound is not None:
        limit = min(limit, 1 + whole_number(bound, "the bound of staleness", least=0))
    times = times or UnitTimes()
    clock = VirtualTime()
    network = Network(clock)
    ready = [[] for _ in range(route.ranks)]  # heaps of (place in ORDER, micro-batch, Instruction)
    missing = {}  # {(rank, Instruction): how many of its needs are not there yet}
    busy = [False] * route.ranks
    begun = Counter()  # {micro-batch: ranks that have begun it}, until all have
    touched = set()  # the ranks that may have something to begin now

    def needed(rank, instruction):
        op, chunk, _ = instruction
        if op == "F":  # the first one of a micro-batch also needs leave to begin, from its own rank and from all together
            leave = 2 * (chunk == route.held(rank)[0])
            return len(route.sources(chunk, rank)) + route.local_before(chunk, rank) + leave
        if op == "B":
            return 1 + len(route.receivers(chunk, rank)) + route.local_after(chunk, rank)
        return len(route.held(rank))

    def meet(rank, instruction):
        """One of the needs of an instruction is met."""
        key = rank, instruction
        left = missing.pop(key, None) or needed(rank, instruction)
        if left > 1:
            missing[key] = left - 1
        else:
            heappush(ready[rank], (ORDER[instruction.op], instruction.micro_batch, instruction))
            touched.add(rank)

    def send(rank, op, chunk, micro_batch, receivers, other):
        message = Instruction(f"SEND_{op}", chunk, micro_batch)
        for receiver in receivers:
            taken = times.message(rank, receiver, message)
            network.send(rank, receiver, taken, meet, receiver, Instruction(op, other, micro_batch))

    def ended(rank, instruction):
        op, chunk, micro_batch = instruction
        busy[rank] = False
        touched.add(rank)
        if op == "F":
            meet(rank, Instruction("B", chunk, micro_batch))
            if route.local_after(chunk, rank):
                meet(rank, Instruction("F", chunk + 1, micro_batch))
            send(rank, "F", chunk, micro_batch, route.receivers(chunk, rank), chunk + 1)
            if chunk == route.held(rank)[0]:
                has_begun(micro_batch)
        elif op == "B":
            meet(rank, update(micro_batch))
            if route.local_before(chunk, rank):
                meet(rank, Instruction("B", chunk - 1, micro_batch))
            send(rank, "B", chunk, micro_batch, route.sources(chunk, rank), chunk - 1)
        else:
            give_leave(rank, micro_batch + limit)

    def has_begun(micro_batch):
        begun[micro_batch] += 1
        if begun[micro_batch] == route.ranks:
            del begun[micro_batch]
            for rank in range(route.ranks):
                give_leave(rank, micro_batch + limit)

    def give_leave(rank, micro_batch):
        if micro_batches is None or micro_batch < micro_batches:
            meet(rank, Instruction("F", route.held(rank)[0], micro_batch))

    for rank in range(route.ranks):
        for micro_batch in range(limit):
            give_leave(rank, micro_batch)  # both leaves: nothing comes before these
            give_leave(rank, micro_batch)
    while True:
        for rank in sorted(touched):
            if ready[rank] and not busy[rank]:
                instruction = heappop(ready[rank])[-1]
                busy[rank] = True
                yield rank, instruction
                clock.at(clock.time + times.seconds(rank, instruction), ended, rank, instruction)
        touched.clear()
        if not clock.go_on_together():
            return


def asynchronous(route, in_flight, micro_batches, bound=None, times=None):
    """The Schedule of the first micro-batches of `stream`. It has an update after every micro-batch, and no messages yet."""
    rows = [[] for _ in range(route.ranks)]
    for rank, instruction in stream(route, in_flight, bound, times, whole_number(micro_batches, "micro-batches")):
        rows[rank].append(instruction)
    return Schedule(rows, route, f"async:{in_flight}" + ("" if bound is None else f":bound={bound}"))


def one_f_one_b_anywhere(route, micro_batches, in_flight=None, times=None):
    """The order of `stream` with one update at the end, on any route. in_flight: by default as many as there are ranks."""
    found = asynchronous(route, in_flight or route.ranks, micro_batches, times=times)
    return Schedule([[one for one in row if one.op != "U"] for row in found.rows], route, "1f1b")


def gpipe_anywhere(route, micro_batches, times=None):
    """All forwards before all backwards, on any route."""
    found = one_f_one_b_anywhere(route, micro_batches, micro_batches, times)
    return Schedule([sorted(row, key=lambda one: one.op != "F") for row in found.rows], route, "gpipe")
