"""A trace of all ranks: what each of them does in some steps of training, on one timeline.

Thread 0 of a rank shows what the rank does: steps, in them the instructions of a pipeline, in them layers, in them collectives
and, within a blocking collective, how long the rank waited for the last rank to enter it. Thread 1 and, where several overlap,
further ones show the non-blocking collectives that are under way. Perfetto and chrome://tracing can show the files.
"""

import json
import math
import os
import platform
from collections import defaultdict
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from gridgrad.nn import device
from gridgrad.nn.files.whole_files import write_text
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.job.run import on_root
from gridgrad.parallel.observe.span_observer import SpanObserver

if TYPE_CHECKING:
    from gridgrad.parallel.training.network import ParallelSequential

STEPS = 20  # how many steps are recorded by default
DOING, FLYING = 0, 1  # the numbers of the threads: what the rank does, and the first one of collectives under way


class TimelineEvent(NamedTuple):
    """What a rank did from `start` to `stop`, in seconds. kind, ranks, bytes: of collectives only.
    category: "layer", "instruction" of a pipeline, "collective" that blocks; "begin", "progress" and "flight" of others."""

    category: str
    name: str
    start: float
    stop: float
    step: int
    kind: str = ""
    ranks: tuple = ()
    bytes: int = 0


class Trace(SpanObserver):
    """Records, while it is open, when this rank was in which layer, collective and instruction of a pipeline.

    Entering and leaving it is collective, since the clocks of the ranks are compared then.

    Parameters
    ----------
    net : ParallelSequential
        The network of this rank.
    steps : int
        How many training steps to record; later ones are ignored.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> from gridgrad.nn import MSE, SGD, Linear, Sequential
    >>> from gridgrad.parallel import Trace, parallelize
    >>> net = parallelize(Sequential([Linear(3, 2)]), {"batch": MPI.COMM_WORLD.size})
    >>> with Trace(net) as trace:
    ...     value = net.learn(np.ones((4, 3)), np.zeros((4, 2)), MSE(), SGD(net, lr=0.1))
    >>> timeline = trace.timeline()  # on rank 0, to be written as JSON
    >>> timeline is None or "traceEvents" in timeline
    True
    >>> net.grid.free()
    """

    def __init__(self, net: "ParallelSequential", steps: int = STEPS) -> None:
        super().__init__(net)
        self.steps = steps
        self.spans: list[TimelineEvent] = []  # of layers and instructions, by this rank's clock
        self.collectives: list[TimelineEvent] = []
        self._last_call = -math.inf  # when the last call of a collective that is recorded began

    def __enter__(self) -> "Trace":
        self.end_step = self.net.step + self.steps
        self.comparisons = [self.net.grid.tally.clock.compare(self.net.grid.comm)]
        super().__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        super().__exit__(kind, *exception)
        if kind is None:  # after an exception the other ranks may not take part
            self.comparisons.append(self.net.grid.tally.clock.compare(self.net.grid.comm))

    def record(self, span: tuple) -> None:
        """Called at the end of each pass: see SpanObserver."""
        what, start, stop, _, step = span
        self.spans.append(TimelineEvent("layer", " ".join(what), start, stop, step))

    def begin_instruction(self, instruction: Any) -> None:
        self._begun = self.clock(), self.net.step

    def end_instruction(self, instruction: Any) -> None:
        device.synchronise()
        start, step = self._begun
        if step < self.end_step:
            self.spans.append(TimelineEvent("instruction", str(instruction), start, self.clock(), step))

    def collective(self, *call: Any) -> None:
        super().collective(*call)
        self._add("collective", *call)

    def advanced(self, *call: Any) -> None:
        super().advanced(*call)
        self._add("progress", *call)

    def flight(self, *call: Any) -> None:
        *_, start, _ = call
        if self.comparisons[0][0] <= start and (self.net.step < self.end_step or start <= self._last_call):
            self.collectives.append(self._event("flight", *call))  # its first call is recorded

    def _add(self, category, *call):
        if self.net.step < self.end_step:
            self.collectives.append(self._event(category, *call))
            self._last_call = self.collectives[-1].start

    def _event(self, category, group, layer, kind, bytes_sent, start, stop):
        return TimelineEvent(category, f"{layer} {kind}", start, stop, self.net.step, kind, group.ranks, int(bytes_sent))

    def timeline(self) -> dict[str, Any] | None:
        """The timeline of all ranks in the Chrome trace format, a dict to be written as JSON, on rank 0; None elsewhere.
        Collective. `write` writes it to a file."""
        grid, accuracy = self.net.grid, max(error for *_, error in self.comparisons)
        part = {"rank": MPI.COMM_WORLD.rank, "coordinates": grid.coordinates, "host": platform.node(), "accuracy": accuracy}
        events = self.spans + with_begins(self.collectives)  # those of collectives one after another, as `waiting` takes them
        times = np.array([(event.start, event.stop) for event in events]).reshape(-1, 2)
        times = to_clock_of_rank_0(times, self.comparisons).tolist()
        events = [event._replace(start=start, stop=stop) for event, (start, stop) in zip(events, times)]
        parts = grid.gather(part | {"events": events})
        return parts and chrome_trace(parts)

    def write(self, path: str | os.PathLike) -> None:
        """Write the timeline of all ranks to a JSON file for ui.perfetto.dev, whole or not at all. Collective.
        An earlier file at `path` is replaced. If it can not be written, every rank raises a UserError that says why."""
        found = self.timeline()
        on_root(self.net.grid.comm, lambda: write_timeline(path, found))


def write_timeline(path, timeline):
    """Write a result of `Trace.timeline`, whole or not at all. OSError if that can not be done."""
    write_text(path, json.dumps(timeline, allow_nan=False) + "\n")


def to_clock_of_rank_0(times, comparisons):
    """Times by this rank's clock, an array, as rank 0's clock shows them. comparisons: results of `WallClock.compare`.
    Offsets are linear between comparisons and constant outside."""
    now, offsets, _ = zip(*comparisons)
    return times + np.interp(times, now, offsets)


def with_begins(collectives):
    """The TimelineEvents of a rank's collectives, where the calls that began non-blocking ones are of the category "begin"."""
    call = attrgetter("ranks", "name", "start")
    begun = {call(event) for event in collectives if event.category == "flight"}
    return [
        event._replace(category="begin") if event.category == "collective" and call(event) in begun else event
        for event in collectives
    ]


# ----- the timeline of all ranks, in the "Trace Event Format" (Google 2016), in which each rank is a process


def chrome_trace(parts):
    """The timeline, a dict. parts: for each rank a dict of its "rank", "coordinates", "host", "events" by the clock of rank 0
    and "accuracy" (of their times, in seconds)."""
    zero = min((event.start for part in parts for event in part["events"]), default=0.0)
    waits = waiting({part["rank"]: part["events"] for part in parts})
    found = []
    for part in parts:
        shown = spans(part["rank"], part["events"], waits[part["rank"]], zero)
        found += names(part, max([FLYING, *(span["tid"] for span in shown)])) + shown
    clock = "that of rank 0, compared by ping-pong at both ends, linear in between"
    accuracy = round(max(part["accuracy"] for part in parts) * 1e6, 3)
    other = {"ranks": len(parts), "clock": clock, "clock accuracy in microseconds": accuracy}
    return {"traceEvents": found, "displayTimeUnit": "ms", "otherData": other}


def names(part, last):
    """The events of the format that name the process of a rank and its threads, of which `last` has the highest number."""
    rank, place = part["rank"], ", ".join(f"{axis}={number}" for axis, number in part["coordinates"].items())
    said = [
        ("process_name", DOING, {"name": f"rank {rank} ({place}) on {part['host']}"}),
        ("process_sort_index", DOING, {"sort_index": rank}),
        *(("thread_name", thread, {"name": "in flight" if thread else "does"}) for thread in range(last + 1)),
    ]
    return [{"name": what, "ph": "M", "pid": rank, "tid": thread, "args": words} for what, thread, words in said]


def waiting(events):
    """{rank: [(event, seconds)]}: for each collective, how long the rank waited in it for the last rank that it needed.
    events: {rank: TimelineEvents}, those of collectives in the order of their ends."""
    # The i-th call with one name in one group is the same collective on all its ranks. The event of a non-blocking one is the
    # call in which it was found complete, which follows it at once, if that was recorded.
    calls = defaultdict(lambda: defaultdict(list))
    for rank, mine in events.items():
        for event, after in zip(mine, [*mine[1:], None]):
            if event.kind not in COLLECTIVES:  # a pass, or a message between two ranks, whose calls differ from rank to rank
                continue
            if event.category == "collective":
                calls[event.ranks, event.name, "blocks"][rank].append((event.start, event))
            elif event.category == "flight":
                ended = after and after.category != "flight" and after.name == event.name
                calls[event.ranks, event.name, "flies"][rank].append((event.start, after if ended else None))
    found = defaultdict(list)
    for (ranks, *_), of_rank in calls.items():
        for call in zip(*(sorted(of_rank[rank], key=itemgetter(0)) for rank in ranks)):
            entries = [entry for entry, _ in call]
            for place, (rank, (_, event)) in enumerate(zip(ranks, call)):
                late = max(entries[COLLECTIVES[event.kind].needs(place)]) - event.start if event else 0
                if late > 0:
                    found[rank].append((event, min(late, event.stop - event.start)))
    return found


def spans(rank, events, waits, zero):
    """What a viewer shows of a rank, as events of the format: those of a thread by their starts, each before those within it.
    waits: its entry in the result of `waiting`. zero: the time, in seconds, that is shown as 0."""

    def span(thread, category, title, start, stop, ranks=(), sent=0):
        start, stop = round((start - zero) * 1e9), round((stop - zero) * 1e9)
        shown = {"name": title, "cat": category, "ph": "X", "pid": rank, "tid": thread, "ts": start / 1e3}
        args = {"args": {"bytes": sent, "ranks": list(ranks)}} if ranks else {}  # of a collective
        return shown | {"dur": (stop - start) / 1e3} | args  # times in microseconds

    done, flights = ([event for event in events if (event.category == "flight") == flies] for flies in (False, True))
    done.sort(key=lambda event: (event.step, event.category != "instruction"))  # an instruction lies around its layers
    found = []
    for step, of_step in groupby(done, key=attrgetter("step")):
        of_step = list(of_step)
        first, last = min(event.start for event in of_step), max(event.stop for event in of_step)
        found.append(span(DOING, "step", f"step {step}", first, last))
    for event in done:
        title = f"{event.name}, {event.category}" if event.category in ("begin", "progress") else event.name
        found.append(span(DOING, event.category, title, event.start, event.stop, event.ranks, event.bytes))
    for event, seconds in waits:
        stop = min(event.start + seconds, event.stop)  # rounding must not bring it behind the end of the collective
        found.append(span(DOING, "waiting", "waiting", event.start, stop))
    busy_until = []  # for each thread of collectives under way, when the last one on it ended
    for event in sorted(flights, key=attrgetter("start")):
        lane = next((lane for lane, stop in enumerate(busy_until) if stop <= event.start), len(busy_until))
        busy_until[lane : lane + 1] = [event.stop]
        found.append(span(FLYING + lane, "flight", event.name, event.start, event.stop, event.ranks, event.bytes))
    return sorted(found, key=lambda span: (span["tid"], span["ts"], -span["dur"]))
