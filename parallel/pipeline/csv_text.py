"""Schedules as the CSV text that PyTorch reads and writes: a row a rank, a cell an instruction."""

from gridgrad.parallel.pipeline.route import Route
from gridgrad.parallel.pipeline.schedule import Instruction, Schedule

MOST_CHARACTERS = 2**24
MOST_RANKS = 2**12
MOST_INSTRUCTIONS = 2**20


def to_csv(schedule: Schedule) -> str:
    """A schedule of a pipeline as CSV, in the format of PyTorch's pipelines, for `parallelize(.., pipeline="FILE.csv")`.

    Parameters
    ----------
    schedule : Schedule
        A schedule whose chunks are whole.

    Returns
    -------
    The text: a row a rank, a cell an instruction.

    Raises
    ------
    ValueError
        For a schedule with parts of chunks.

    Examples
    --------
    >>> from gridgrad.parallel import Instruction, Route, Schedule, schedule_to_csv
    >>> rows = [[Instruction("F", rank, 0), Instruction("B", rank, 0)] for rank in range(2)]
    >>> schedule_to_csv(Schedule(rows, Route.contiguous(2)))
    '0F0,0B0\\n1F0,1B0\\n'
    """
    if any(len(ranks) > 1 for ranks in schedule.route.places):
        raise ValueError("a schedule of parts of chunks can not be written as CSV")
    return "".join(",".join(map(str, row)) + "\n" for row in schedule.rows)


def from_csv(text, name="csv"):
    """The Schedule in a text. It may lack messages and updates. Empty cells are skipped.

    A chunk is on the rank whose row has its forwards. Raises ValueError, in one line that names row and column, both counted
    from 1, for texts that are none or too long. Whether the schedule is sound says `check`.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"a schedule may have {MOST_CHARACTERS} characters, not {len(text)}")
    lines = text.rstrip().split("\n")
    if len(lines) > MOST_RANKS:
        raise ValueError(f"row {MOST_RANKS + 1}, column 1: a schedule may have {MOST_RANKS} rows")
    places, cells = {}, {}  # {Instruction or, for updates, (row, Instruction): (row, column)}
    rows = [_row(row, line, cells, places) for row, line in enumerate(lines)]
    for at in cells.values():
        chunk = rows[at[0]][at[1]].chunk
        if chunk is not None and places.get(chunk, (None,))[0] != at[0]:
            where = f"row {places[chunk][0] + 1} has its forwards" if chunk in places else "no row has its forwards"
            raise _error(*at, f"{rows[at[0]][at[1]]} is of chunk {chunk}, but {where}")
    missing = next((chunk for chunk in range(len(places)) if chunk not in places), None)
    if missing is not None or not places:
        last = max(places, default=None)
        raise _error(
            *places.get(last, (0, 0)),
            f"no row has forwards of chunk {missing or 0}" + (f", but here are some of chunk {last}" if places else ""),
        )
    found = [[row[column] for column in sorted(row)] for row in rows]
    return Schedule(found, Route.of_stages(places[chunk][0] for chunk in range(len(places))), name)


def _row(row, line, cells, places):
    """{column: Instruction} of a line. Enters its instructions in `cells`, and in `places` those chunks whose F it has."""
    found = {}
    for column, cell in enumerate(line.split(",")):
        if not cell.strip():
            continue
        try:
            one = Instruction.parse(cell.strip())
        except ValueError as error:
            raise _error(row, column, str(error)) from None
        key = (row, one) if one.op == "U" else one
        if key in cells:
            raise _error(row, column, f"{one} is in row {cells[key][0] + 1}, column {cells[key][1] + 1} too")
        if len(cells) == MOST_INSTRUCTIONS:
            raise _error(row, column, f"a schedule may have {MOST_INSTRUCTIONS} instructions")
        if one.op == "F" and places.setdefault(one.chunk, (row, column))[0] != row:
            raise _error(row, column, f"{one} is of chunk {one.chunk}, whose forwards row {places[one.chunk][0] + 1} has")
        cells[key], found[column] = (row, column), one
    if not found:
        raise _error(row, 0, "a row without instructions")
    return found


def _error(row, column, what):
    return ValueError(f"row {row + 1}, column {column + 1}: {what}")
