"""What completes a schedule that says only what is computed: messages and updates."""

from dataclasses import replace

from parallel.pipeline.schedule import Instruction, check, update


def complete(schedule):
    """The schedule with all messages and updates. Raises Unsound if ranks could not follow it."""
    return check(with_updates(with_messages(schedule)))


def with_messages(schedule):
    """A receive directly before each instruction that needs one, a send directly after each that makes something to send.

    Those that are there already stay where they are.
    """
    return replace(schedule, rows=[row_with_messages(row, schedule.route, rank) for rank, row in enumerate(schedule.rows)])


def row_with_messages(row, route, rank):
    """Some instructions of a rank, with the messages that they need."""
    there, found = set(row), []

    def add(op, instruction, others):
        message = instruction._replace(op=op)
        if others(instruction.chunk, rank) and message not in there:
            found.append(message)

    for instruction in row:
        if instruction.op == "F":
            add("RECV_F", instruction, route.sources)
            found.append(instruction)
            add("SEND_F", instruction, route.receivers)
        elif instruction.op in ("B", "I"):
            add("RECV_B", instruction, route.receivers)
            found.append(instruction)
            add("SEND_B", instruction, route.sources)
        else:
            found.append(instruction)
    return found


def with_updates(schedule):
    """An update at the end of each row that has none."""
    last = update(schedule.micro_batches - 1)
    rows = (row if any(one.op == "U" for one in row) else (*row, last) for row in schedule.rows)
    return replace(schedule, rows=rows)


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
