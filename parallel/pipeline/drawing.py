"""Schedules as text."""

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
