"""The events of all ranks as one timeline: the spans of time that a viewer shows, those of each rank nested in each other.

Thread 0 of a rank shows what the rank does: steps, in them the instructions of a pipeline, in them layers, in them collectives
and, within a blocking collective, how long the rank waited for the last rank to enter it. Thread 1 shows the non-blocking
collectives while they are under way, with further threads where several overlap. `parallel/observe/chrome_trace.py` writes
a timeline to a file.
"""

from collections import defaultdict
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

from gridgrad.parallel.grid.collectives import COLLECTIVES

DOING, FLYING = 0, 1  # the numbers of the threads: what the rank does, and the first one of collectives under way


class TimelineEvent(NamedTuple):
    """Something that happened on a rank in a span of time.

    category: "layer" for a pass; "instruction" for one of a pipeline's schedule, whose text is the name; "collective" for a
    blocking collective; for a non-blocking one "begin" and "progress", which are the rank's calls, and "flight", which is the
    time from its beginning until it was found complete.
    name: the text shown. start, stop: seconds on the clock of rank 0. step: the training step.
    Of collectives only: kind, such as "all-reduce"; ranks, those of its group in MPI.COMM_WORLD; bytes, sent by this rank.
    """

    category: str
    name: str
    start: float
    stop: float
    step: int
    kind: str = ""
    ranks: tuple = ()
    bytes: int = 0


class Span(NamedTuple):
    """What a viewer shows in one piece: an event, a whole step, or the time that a rank waited in a collective.

    thread: DOING, or FLYING and above. category: that of the event; "step", or "waiting". title: the text shown. start, stop:
    whole nanoseconds since the first event of all ranks. step: the training step. event: the TimelineEvent; None for the other
    two.
    """

    thread: int
    category: str
    title: str
    start: int
    stop: int
    step: int
    event: TimelineEvent | None = None


class RankTimeline(NamedTuple):
    """The spans of one rank. Those of a thread are in the order of their starts, and one comes before those within it.

    rank: in MPI.COMM_WORLD. coordinates: {axis: its place along the axis}. host: the name of its node.
    """

    rank: int
    coordinates: dict
    host: str
    spans: list

    @property
    def title(self):
        """The rank, its place in the grid and its host, in words."""
        place = ", ".join(f"{axis}={number}" for axis, number in self.coordinates.items())
        return f"rank {self.rank} ({place}) on {self.host}"

    @property
    def threads(self):
        """How many threads it has: at least one of collectives under way."""
        return max([FLYING, *(span.thread for span in self.spans)]) + 1


class Timeline(NamedTuple):
    """What all ranks did. ranks: a list of RankTimelines. accuracy: the largest error of their times, in seconds."""

    ranks: list
    accuracy: float


def timeline(parts):
    """The Timeline of all ranks.

    parts: for each rank a dict of its "rank", "coordinates" {axis: coordinate}, "host" (a name), "events" (a list of
    TimelineEvents) and "accuracy" (the largest error of their times, in seconds).
    """
    zero = min((event.start for part in parts for event in part["events"]), default=0.0)
    waits = waiting({part["rank"]: part["events"] for part in parts})
    ranks = [
        RankTimeline(part["rank"], part["coordinates"], part["host"], spans(part["events"], waits[part["rank"]], zero))
        for part in parts
    ]
    return Timeline(ranks, max(part["accuracy"] for part in parts))


def waiting(events):
    """{rank: [(event, seconds)]}: for each collective, how long the rank waited in it for the last rank that it needed.

    events: {rank: TimelineEvents}, in which those of collectives are in the order of their ends. The i-th call with one name in
    one group is the same collective on all ranks of the group. For a non-blocking collective, the event is the call in which it
    was found complete, which follows it at once, if that was recorded. Messages from one rank to another are left out, because
    their calls differ from rank to rank.
    """
    calls = defaultdict(lambda: defaultdict(list))
    for rank, mine in events.items():
        for event, after in zip(mine, [*mine[1:], None]):
            if event.kind not in COLLECTIVES:  # a pass, or a message between two ranks
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
                late = last_needed(event.kind, entries, place) - event.start if event else 0
                if late > 0:
                    found[rank].append((event, min(late, event.stop - event.start)))
    return found


def last_needed(kind, entries, place):
    """The time at which the last of the ranks that the rank at `place` waits for entered a collective of this kind.

    entries: for each rank of the group, the time at which it entered the collective.
    """
    return max(entries[COLLECTIVES[kind].needs(place)])


def spans(events, waits, zero):
    """The Spans of one rank, in which one comes before those within it.

    events: its TimelineEvents. waits: the rank's entry in the result of `waiting`. zero: the time, in seconds, that is shown
    as 0.
    """

    def span(thread, category, title, start, stop, step, event=None):
        return Span(thread, category, title, round((start - zero) * 1e9), round((stop - zero) * 1e9), step, event)

    done = sorted((event for event in events if event.category != "flight"), key=attrgetter("step"))
    found = []
    for step, of_step in groupby(done, key=attrgetter("step")):
        of_step = list(of_step)
        first, last = min(event.start for event in of_step), max(event.stop for event in of_step)
        found.append(span(DOING, "step", f"step {step}", first, last, step))
    for event in done:
        title = f"{event.name}, {event.category}" if event.category in ("begin", "progress") else event.name
        found.append(span(DOING, event.category, title, event.start, event.stop, event.step, event))
    for event, seconds in waits:
        stop = min(event.start + seconds, event.stop)  # rounding must not bring it behind the end of the collective
        found.append(span(DOING, "waiting", "waiting", event.start, stop, event.step))
    busy_until = []  # for each thread of collectives under way, when the last one on it ended
    for event in sorted((event for event in events if event.category == "flight"), key=attrgetter("start")):
        lane = next((lane for lane, stop in enumerate(busy_until) if stop <= event.start), len(busy_until))
        busy_until[lane : lane + 1] = [event.stop]
        found.append(span(FLYING + lane, "flight", event.name, event.start, event.stop, event.step, event))
    return sorted(found, key=lambda span: (span.thread, span.start, span.start - span.stop))
