"""Schedules as text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridgrad.parallel.pipeline import simulate

AROUND = 4  # instructions shown on each side of one that is marked


def grid(rows, marks):
    """A line a rank: the instructions around the marked one, which stands between > and <; of other ranks the first ones.

    marks: {rank: position in its row}.
    """
    lines = []
    for rank, row in enumerate(rows):
        at = marks.get(rank, -1)
        begin, end = max(0, at - AROUND), max(at, AROUND) + AROUND + 1
        cells = [f">{one}<" if place == at else str(one) for place, one in enumerate(row[begin:end], start=begin)]
        lines.append(f"rank {rank}: {'.. ' if begin else ''}{' '.join(cells)}{' ..' if end < len(row) else ''}")
    return "\n".join(lines)


def draw(simulation: "simulate.Simulation", unit: float | None = None, columns: int = 40) -> str:
    """Draw a schedule in virtual time as text: a line a rank, time to the right.

    What a rank does stands in the first column of its time, and - in the others; a rank waits in those with a dot.

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
    computed = [
        [event for event in row if event.stop > event.start and event.instruction.op in "FBIWU"] for row in simulation.events
    ]
    unit = unit or min((event.stop - event.start for row in computed for event in row), default=1)
    lines = []
    for row in computed:
        cells: list[str] = []
        for event in row:
            begin, end = round(event.start / unit), round(event.stop / unit)
            cells += ["."] * (begin - len(cells))
            cells += [str(event.instruction), *["-"] * (end - begin - 1)][: end - len(cells)]
            if len(cells) > columns:
                break
        lines.append([*cells[:columns], *[".."] * (len(cells) > columns)])
    width = max((len(cell) for cells in lines for cell in cells), default=1)
    return "\n".join(
        f"rank {rank}: {' '.join(cell.ljust(width) for cell in cells)}".rstrip() for rank, cells in enumerate(lines)
    )
