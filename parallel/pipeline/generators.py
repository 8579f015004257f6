"""The known schedules of pipelines, for any numbers of stages and micro-batches. They say only what is computed.

A stage is a rank. All sums of times are for forwards, input's gradients and weights' gradients that take one unit each.
"""

from gridgrad.nn.arguments import whole_number
from gridgrad.parallel.pipeline.route import Route
from gridgrad.parallel.pipeline.schedule import Instruction, Schedule


def sequential(stages, micro_batches):
    """One micro-batch after the other, forth and back. What every pipeline is compared with."""
    _check(stages, micro_batches)
    rows = [[Instruction(op, rank, b) for b in range(micro_batches) for op in "FB"] for rank in range(stages)]
    return Schedule(rows, Route.contiguous(stages), "sequential")


def gpipe(stages, micro_batches):
    """All forwards, then all backwards (Huang et al. 2019): 3 (micro_batches + stages - 1) units of time."""
    _check(stages, micro_batches)
    rows = [[Instruction(op, rank, b) for op in "FB" for b in range(micro_batches)] for rank in range(stages)]
    return Schedule(rows, Route.contiguous(stages), "gpipe")


def one_f_one_b(stages, micro_batches):
    """One forward, one backward in turn (Harlap et al. 2018): the time of GPipe, with at most stages - rank open."""
    _check(stages, micro_batches)
    rows = [_in_turn(_each("F", rank, micro_batches), _each("B", rank, micro_batches), stages - rank) for rank in range(stages)]
    return Schedule(rows, Route.contiguous(stages), "1f1b")


def interleaved(stages, micro_batches, per_rank):
    """1F1B with several chunks on each rank, dealt out in turn (Narayanan et al. 2021, section 2.2).

    It takes 3 (per_rank micro_batches + stages - 1) units of time, each of 1 / per_rank of a stage, if the number of stages
    divides that of micro-batches. Micro-batches go through the chunks in groups of as many as there are stages. If the last
    group is not full, its other micro-batches are left out of the order that it would have.
    """
    _check(stages, micro_batches)
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
    """1F1B whose weights' gradients wait until a rank would be idle (ZB-H1 of Qi et al. 2024).

    It takes 3 micro_batches + stages - 1 units of time, or 2 (micro_batches + stages) - 1 if there are fewer micro-batches than
    stages, and no schedule takes less. At most as many micro-batches as stages are open on a rank.
    """
    _check(stages, micro_batches)
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
    """Two chunks on each rank in the shape of a V, with weights' gradients apart (ZB-V of Qi et al. 2024).

    It takes 6 micro_batches + stages - 1 units of time, each of half a stage, or 4 (micro_batches + stages) - 2 if that is
    more, which it is for few micro-batches. With at least 2 stages - 1 of them, no rank waits between two steps if there is no
    barrier. At most 2 stages contexts of half a stage are open on a rank, as many bytes as on the first one in 1F1B.
    The order is made for at least 2 stages - 1 micro-batches; if there are fewer, those that are too many are left out of it.
    """
    _check(stages, micro_batches)
    route, many = Route.v_shaped(stages), max(micro_batches, 2 * stages - 1)
    rows = []
    for rank in range(stages):
        row = _RowOfTwo(*route.held(rank))
        for _ in range(2 * (stages - rank) - 1):
            row.do("F0")
        for _ in range(rank):
            row.do("F1", "F0")
        for _ in range(stages - rank):
            row.do("F1", "I1", "W1")
        while row.done["F1"] < many:
            if row.done["F0"] < many:
                row.do("F0")
            row.do("I0", "W0", "F1", "I1", "W1")
        for _ in range(rank):
            row.do("I0", "I1")
        for _ in range(stages - rank):
            row.do("I0", "W0")
        row.do(*["W1"] * (many - row.done["W1"]), *["W0"] * (many - row.done["W0"]))
        rows.append([one for one in row.row if one.micro_batch < micro_batches])
    return Schedule(rows, route, "zbv")


class _RowOfTwo:
    """The row of a rank with two chunks, each of whose operations takes the micro-batches in order."""

    def __init__(self, *chunks):
        self.chunks, self.row = chunks, []
        self.done = {op + which: 0 for op in "FIW" for which in "01"}

    def do(self, *names):
        """Names such as F0: the operation, and which of the two chunks."""
        for name in names:
            self.row.append(Instruction(name[0], self.chunks[int(name[1])], self.done[name]))
            self.done[name] += 1


def _check(stages, micro_batches):
    whole_number(stages, "stages")
    whole_number(micro_batches, "micro-batches")


def _each(op, chunk, micro_batches):
    return [Instruction(op, chunk, b) for b in range(micro_batches)]


def _in_turn(first, second, ahead):
    """Items of two lists of equal lengths in turn, beginning with so many of the first list."""
    ahead = min(ahead, len(first))
    mixed = [one for pair in zip(second, first[ahead:]) for one in pair]
    return first[:ahead] + mixed + second[len(first) - ahead :]
