"""What completes a schedule that says only what is computed: messages and updates."""

from dataclasses import replace

from gridgrad.parallel.pipeline.schedule import Instruction, Schedule, check, update


def complete(schedule: Schedule) -> Schedule:
    """Complete a schedule of a pipeline by all messages and updates.

    Parameters
    ----------
    schedule : Schedule
        What each rank computes, in which order.

    Returns
    -------
    The schedule with a receive before each instruction that needs one, a send after each that makes something to send, and an
    update at the end of each row that has none. What is there already stays where it is.

    Raises
    ------
    Unsound
        If ranks could not follow it.

    Examples
    --------
    >>> from gridgrad.parallel import Instruction, Route, Schedule, complete_schedule
    >>> rows = [[Instruction("F", rank, 0), Instruction("B", rank, 0)] for rank in range(2)]
    >>> " ".join(map(str, complete_schedule(Schedule(rows, Route.contiguous(2))).rows[0]))
    '0F0 0SEND_F0 0RECV_B0 0B0 U0'
    """
    return check(with_updates(with_messages(schedule)))


def with_messages(schedule):
    """A receive directly before each instruction that needs one, a send directly after each that makes something to send.

    Those that are there already stay where they are.
    """
    rows = []
    for rank, row in enumerate(schedule.rows):
        there = set(row)
        steps = ((one, step) for one in row for step in around(schedule.route, rank, one))
        rows.append([step for one, step in steps if step is one or step not in there])
    return replace(schedule, rows=rows)


def around(route, rank, instruction):
    """A list of an instruction of a rank with the receive that it needs before it and the send that it needs after it."""
    op, chunk, _ = instruction
    if op not in ("F", "B", "I") or not route.holds(chunk, rank):
        return [instruction]
    before, after = route.sources(chunk, rank), route.receivers(chunk, rank)
    if op == "F":
        received, sent = before and "RECV_F", after and "SEND_F"
    else:
        received, sent = after and "RECV_B", before and "SEND_B"
    receive = [instruction._replace(op=received)] if received else []
    return [*receive, instruction, *([instruction._replace(op=sent)] if sent else [])]


def with_updates(schedule):
    """An update at the end of each row that has none."""
    last = update(schedule.micro_batches - 1)
    rows = (row if any(one.op == "U" for one in row) else (*row, last) for row in schedule.rows)
    return replace(schedule, rows=rows)


def first_micro_batches(schedule, number):
    """A schedule with one update a rank, without the micro-batches from this number on. It is sound if the whole one is."""
    rows = (
        [one if one.op != "U" else update(number - 1) for one in row if one.op == "U" or one.micro_batch < number]
        for row in schedule.rows
    )
    return schedule if number >= schedule.micro_batches else replace(schedule, rows=rows)


def repeat(schedule, steps):
    """A complete schedule so many times in a row, with numbers of micro-batches that go on and no barrier in between."""
    rows = (
        [
            Instruction(op, chunk, step * schedule.micro_batches + micro_batch)
            for step in range(steps)
            for op, chunk, micro_batch in row
        ]
        for row in schedule.rows
    )
    return replace(schedule, rows=rows)
