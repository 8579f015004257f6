"""Names of schedules, as users give them: `1f1b`, `interleaved:2`, `async:4:bound=2` or the name of a CSV file."""

import re
from dataclasses import dataclass
from functools import partial

from gridgrad.nn.files import limits
from gridgrad.parallel.pipeline.csv_text import MOST_CHARACTERS, from_csv
from gridgrad.parallel.pipeline.generators import gpipe, interleaved, one_f_one_b, sequential, zb_h1, zbv
from gridgrad.parallel.pipeline.passes import complete, first_micro_batches, with_updates
from gridgrad.parallel.pipeline.ready_list import asynchronous, gpipe_anywhere, one_f_one_b_anywhere
from gridgrad.parallel.pipeline.route import Route
from gridgrad.parallel.pipeline.schedule import Schedule, Unsound

_SIMPLE = {"sequential": sequential, "gpipe": gpipe, "1f1b": one_f_one_b, "zb-h1": zb_h1, "zbv": zbv}
_ANYWHERE = {"gpipe": gpipe_anywhere, "1f1b": one_f_one_b_anywhere}
NAMES = *_SIMPLE, "interleaved:V", "async:K", "FILE.csv"
MOST_CHUNKS = 4096  # of a network, so that messages have different tags in every MPI library
MICRO_BATCHES = 4  # of a minibatch, for each rank of a pipeline: the ranks are then idle for less than a fifth of the time
_ASYNC = re.compile(r"async:([1-9]\d{0,3})(?::(?:bound=(\d{1,6})|(nostash))){0,2}", re.ASCII)


@dataclass(frozen=True)
class Named:
    """A schedule that a user asked for. It is made when the numbers of stages and of micro-batches are known.

    name: as given. per_rank: chunks on each rank. in_flight, bound, stash: those of asynchronous training; in_flight is None
    if the schedule is synchronous. file: the Schedule that was read from a file, or None.
    """

    name: str
    per_rank: int = 1
    in_flight: int | None = None
    bound: int | None = None
    stash: bool = True
    file: Schedule | None = None

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

    def default_micro_batches(self, ranks):
        """Into how many micro-batches a minibatch is cut where the user does not say."""
        if self.file:
            return self.file.micro_batches
        return 1 if self.in_flight or ranks == 1 else MICRO_BATCHES * ranks

    def micro_batches(self, ranks, wanted=None):
        """Into how many micro-batches a minibatch is cut. wanted: what the user said, or None for the default.

        ValueError if the schedule can not have as many.
        """
        if self.in_flight and (wanted or 1) > 1:
            raise ValueError(f"pipeline {self.name} updates after each minibatch: leave it whole, without micro-batches")
        if self.file and not with_updates(self.file).synchronous:
            raise ValueError(f"{self.name} updates several times in a step: leave one update, at the end of each row")
        return wanted or self.default_micro_batches(ranks)

    def check_cuts(self, cuts, stages):
        """ValueError unless there is a cut between any two chunks."""
        chunks = self.route(stages).chunks
        if len(cuts) != chunks - 1:
            raise ValueError(
                f"{len(cuts)} cuts make {len(cuts) + 1} chunks, but pipeline {self.name} on {stages} stages has {chunks}"
            )

    def schedule_on(self, route, micro_batches, times=None):
        """The Schedule on a Route whose ranks hold parts of chunks. ValueError if this one is for whole chunks only.

        times: a Times, by which the order is chosen.
        """
        if self.in_flight:
            return asynchronous(route, self.in_flight, micro_batches, self.bound, times)
        if self.name not in _ANYWHERE:
            raise ValueError(f"pipeline {self.name} is for whole layers: a partition takes {', '.join(_ANYWHERE)} or async:K")
        return _ANYWHERE[self.name](route, micro_batches, times=times)

    def schedule(self, stages, micro_batches, times=None):
        """The Schedule, as its generator makes it. ValueError if a file is for another number of ranks or fewer micro-batches.

        Of a file for more micro-batches, which are those of a whole minibatch, the last ones are left out.

        times: a Times, by which the order of asynchronous training is chosen.
        """
        route = self.route(stages)
        if self.file:
            if self.file.micro_batches < micro_batches:
                raise ValueError(f"{self.name} is a schedule for {self.file.micro_batches} micro-batches, not {micro_batches}")
            return first_micro_batches(with_updates(self.file), micro_batches)
        if self.in_flight:
            return asynchronous(route, self.in_flight, micro_batches, self.bound, times)
        make = _SIMPLE.get(self.name) or partial(interleaved, per_rank=self.per_rank)
        return make(stages, micro_batches)

    def complete(self, schedule):
        """This schedule with all messages and updates. Raises Unsound, which names it, if ranks could not follow it."""
        try:
            return complete(schedule)
        except Unsound as unsound:
            raise unsound.of(f"pipeline {self.name}") from None


def parse(text):
    """The Named that a text means. Raises ValueError in one line for others, and OSError if there is no such file."""
    if not isinstance(text, str):
        raise ValueError(f"a pipeline schedule is a text such as 1f1b, not {text!r}")
    if text in _SIMPLE:
        return Named(text, per_rank=1 + (text == "zbv"))
    if text.endswith(".csv"):
        with open(text, encoding="utf-8", errors="replace", opener=limits.ordinary) as file:
            found = file.read(MOST_CHARACTERS + 1)
        try:
            return Named(text, file=from_csv(found, text))
        except ValueError as error:
            raise ValueError(f"{text}: {error}") from None
    kind, *options = text.split(":")
    if kind == "interleaved" and len(options) == 1 and re.fullmatch(r"[1-9]\d{0,3}", options[0], re.ASCII):
        return Named(text, per_rank=int(options[0]))
    if _ASYNC.fullmatch(text) and len(options) == len({option[:5] for option in options}):
        bound = next((int(option[6:]) for option in options if option.startswith("bound")), None)
        return Named(text, in_flight=int(options[0]), bound=bound, stash="nostash" not in options)
    raise ValueError(f"there is no pipeline schedule {text[:40]!r}: use {', '.join(NAMES[:-1])} or {NAMES[-1]}")
