"""Schedules as text: names such as `interleaved:2` or `async:4:bound=2`, and CSV files in the format of PyTorch."""

import re
from dataclasses import dataclass
from functools import partial

from gridgrad.nn.files import limits
from gridgrad.parallel.pipeline import generators
from gridgrad.parallel.pipeline.generators import asynchronous, complete, with_updates
from gridgrad.parallel.pipeline.schedule import Instruction, Route, Schedule, Unsound

MOST_CHARACTERS = 2**24
MOST_RANKS = 2**12
MOST_INSTRUCTIONS = 2**20


def to_csv(schedule: Schedule) -> str:
    """A schedule of a pipeline as CSV, in the format of PyTorch's pipelines, for `parallelize(.., pipeline="FILE.csv")`.

    Parameters
    ----------
    schedule : Schedule
        A schedule whose chunks are whole; ValueError for one with parts of chunks.

    Returns
    -------
    The text: a row a rank, a cell an instruction.

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
    """The Schedule in a text, not yet complete: a chunk is where its forwards are. ValueError with row and column, from 1."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"a schedule may have {MOST_CHARACTERS} characters, not {len(text)}")
    lines = text.rstrip().split("\n")
    if len(lines) > MOST_RANKS:
        raise ValueError(f"row {MOST_RANKS + 1}, column 1: a schedule may have {MOST_RANKS} rows")
    places, cells = {}, {}  # {Instruction or, for updates, (row, Instruction): (row, column)}
    rows = [_row(row, line, cells, places) for row, line in enumerate(lines)]
    for key, at in cells.items():
        chunk = key.chunk if isinstance(key, Instruction) else None
        if chunk is not None and places.get(chunk, (None,))[0] != at[0]:
            where = f"row {places[chunk][0] + 1} has its forwards" if chunk in places else "no row has its forwards"
            raise _error(*at, f"{key} is of chunk {chunk}, but {where}")
    if not places:
        raise _error(0, 0, "no row has forwards of chunk 0")
    last = max(places)
    for chunk in range(last):
        if chunk not in places:
            raise _error(*places[last], f"no row has forwards of chunk {chunk}, but here are some of chunk {last}")
    return Schedule(rows, Route.of_stages(places[chunk][0] for chunk in range(len(places))), name)


def _row(row, line, cells, places):
    """The Instructions of a line; empty cells are skipped. Also enters them in `cells`, and the chunks of its F in `places`."""
    found = []
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
        cells[key] = row, column
        found.append(one)
    if not found:
        raise _error(row, 0, "a row without instructions")
    return found


def _error(row, column, what):
    return ValueError(f"row {row + 1}, column {column + 1}: {what}")


_SIMPLE = {
    "sequential": generators.sequential, "gpipe": generators.gpipe, "1f1b": generators.one_f_one_b,
    "zb-h1": generators.zb_h1, "zbv": generators.zbv,
}  # fmt: skip
_ANYWHERE = {"gpipe": generators.gpipe_anywhere, "1f1b": generators.one_f_one_b_anywhere}
NAMES = *_SIMPLE, "interleaved:V", "async:K", "FILE.csv"
MOST_CHUNKS = 4096  # of a network, so that messages have different tags in every MPI library
MICRO_BATCHES = 4  # of a minibatch, for each rank of a pipeline: the ranks are then idle for less than a fifth of the time
_ASYNC = re.compile(r"async:([1-9]\d{0,3})(?::(?:bound=(\d{1,6})|(nostash))){0,2}", re.ASCII)


@dataclass(frozen=True)
class ScheduleSpec:
    """A schedule that a user asked for."""

    name: str
    per_rank: int = 1  # chunks on each rank
    in_flight: int | None = None  # of asynchronous training, as are bound and stash; else None
    bound: int | None = None
    stash: bool = True
    file: Schedule | None = None  # that of a file

    def route(self, stages):
        """The Route for so many ranks. ValueError if a file is for another number."""
        if self.file:
            if self.file.route.ranks != stages:
                raise ValueError(f"{self.name} is a schedule for {self.file.route.ranks} ranks, not {stages}")
            return self.file.route
        if self.per_rank * stages > MOST_CHUNKS:
            raise ValueError(f"pipeline {self.name} on {stages} stages has more than {MOST_CHUNKS} chunks: use fewer")
        if self.name == "zbv":
            return Route.v_shaped(stages)
        return Route.looped(stages, self.per_rank)

    def micro_batches(self, ranks, wanted=None):
        """The micro-batches of a minibatch: `wanted`, or the default. ValueError if there can not be as many."""
        if self.in_flight and (wanted or 1) > 1:
            raise ValueError(f"pipeline {self.name} updates after each minibatch: leave it whole, without micro-batches")
        if self.file and not with_updates(self.file).synchronous:
            raise ValueError(f"{self.name} updates several times in a step: leave one update, at the end of each row")
        if wanted:
            return wanted
        if self.file:
            return self.file.micro_batches
        return 1 if self.in_flight or ranks == 1 else MICRO_BATCHES * ranks

    def check_cuts(self, cuts, stages):
        """ValueError unless there is a cut between any two chunks."""
        chunks = self.route(stages).chunks
        if len(cuts) != chunks - 1:
            needs = f"pipeline {self.name} on {stages} stages has {chunks}"
            raise ValueError(f"{len(cuts)} cuts make {len(cuts) + 1} chunks, but {needs}")

    def schedule_on(self, route, micro_batches, times=None):
        """The Schedule on a Route of parts of chunks, in an order by `times`. ValueError for one of whole chunks."""
        if self.in_flight:
            return asynchronous(route, self.in_flight, micro_batches, self.bound, times)
        if self.name not in _ANYWHERE:
            raise ValueError(f"pipeline {self.name} is for whole layers: a partition takes {', '.join(_ANYWHERE)} or async:K")
        return _ANYWHERE[self.name](route, micro_batches, times=times)

    def schedule(self, stages, micro_batches, times=None):
        """The Schedule on stages; an asynchronous one in an order by `times`. ValueError for a file for other ranks or too few
        micro-batches; what it has beyond these is left out."""
        route = self.route(stages)
        if self.file:
            if self.file.micro_batches < micro_batches:
                raise ValueError(f"{self.name} is a schedule for {self.file.micro_batches} micro-batches, not {micro_batches}")
            return generators.first_micro_batches(with_updates(self.file), micro_batches)
        if self.in_flight:
            return asynchronous(route, self.in_flight, micro_batches, self.bound, times)
        make = _SIMPLE.get(self.name) or partial(generators.interleaved, per_rank=self.per_rank)
        return make(stages, micro_batches)

    def complete(self, schedule):
        """A schedule with all messages and updates. Unsound, which names it, if ranks could not follow it."""
        try:
            return complete(schedule)
        except Unsound as unsound:
            raise unsound.of(f"pipeline {self.name}") from None


def parse(text):
    """The ScheduleSpec that a text means. ValueError in one line if it means none, OSError if there is no such file."""
    if not isinstance(text, str):
        raise ValueError(f"a pipeline schedule is a text such as 1f1b, not {text!r}")
    if text in _SIMPLE:
        return ScheduleSpec(text, per_rank=1 + (text == "zbv"))
    if text.endswith(".csv"):
        with open(text, encoding="utf-8", errors="replace", opener=limits.ordinary) as file:
            found = file.read(MOST_CHARACTERS + 1)
        try:
            return ScheduleSpec(text, file=from_csv(found, text))
        except ValueError as error:
            raise ValueError(f"{text}: {error}") from None
    kind, *options = text.split(":")
    if kind == "interleaved" and len(options) == 1 and re.fullmatch(r"[1-9]\d{0,3}", options[0], re.ASCII):
        return ScheduleSpec(text, per_rank=int(options[0]))
    if _ASYNC.fullmatch(text) and len(options) == len({option[:5] for option in options}):
        bound = next((int(option[6:]) for option in options if option.startswith("bound")), None)
        return ScheduleSpec(text, in_flight=int(options[0]), bound=bound, stash="nostash" not in options)
    raise ValueError(f"there is no pipeline schedule {text[:40]!r}: use {', '.join(NAMES[:-1])} or {NAMES[-1]}")
