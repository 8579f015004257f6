"""The events of all ranks as one timeline in the Chrome trace format, which Perfetto and chrome://tracing can show.

Each rank is shown as a process. Its thread 0 shows what the rank does: steps, in them the instructions of a pipeline, in them
layers, in them collectives and, within a blocking collective, how long the rank waited for the last rank to enter it. Thread 1
shows the non-blocking collectives while they are under way, with further threads where several overlap. Format: "Trace Event
Format", Google 2016.
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


def timeline(parts):
    """The contents of the trace file, as a dict to be written as JSON.

    parts: for each rank a dict of its "rank", "coordinates" {axis: coordinate}, "host" (a name), "events" (TimelineEvents)
    and "accuracy" (the largest error of their times, in seconds).
    """
    start = min((event.start for part in parts for event in part["events"]), default=0.0)
    waits = waiting({part["rank"]: part["events"] for part in parts})
    found = []
    for part in parts:
        shown = marks(part["events"], waits[part["rank"]], part["rank"], start)
        found += names(part, threads=max([FLYING, *(event["tid"] for event in shown)]) + 1) + shown
    worst = max(part["accuracy"] for part in parts)
    return {
        "traceEvents": found,
        "displayTimeUnit": "ms",
        "otherData": {
            "ranks": len(parts),
            "clock": "that of rank 0, compared by ping-pong at both ends, linear in between",
            "clock accuracy in microseconds": round(worst * 1e6, 3),
        },
    }


def waiting(events):
    """{rank: [(event, seconds)]}: for each collective, how long the rank waited in it for the last rank that it needed.

    events: {rank: TimelineEvents}, in which those of collectives are in the order of their ends. The i-th call with one name in
    one group is the same collective on all ranks of the group. For a non-blocking collective, the event is the call in which it
    was found complete. Messages from one rank to another are left out, because their calls differ from rank to rank.
    """
    calls = defaultdict(lambda: defaultdict(list))
    for rank, mine in events.items():
        for event, after in zip(mine, [*mine[1:], None]):
            if event.kind not in COLLECTIVES:  # a pass, or a message between two ranks
                continue
            if event.category == "collective":
                calls[event.ranks, event.name, "blocks"][rank].append((event.start, event))
            elif event.category == "flight":
                calls[event.ranks, event.name, "flies"][rank].append((event.start, after))
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


def marks(events, waits, rank, zero):
    """The events of one rank as dicts of the format, in which an event comes before the events within it.

    waits: the rank's entry in the result of `waiting`. zero: the time, in seconds, that is shown as 0.
    """
    done = sorted((event for event in events if event.category != "flight"), key=attrgetter("step"))
    found = []
    for step, of_step in groupby(done, key=attrgetter("step")):
        of_step = list(of_step)
        span = min(event.start for event in of_step), max(event.stop for event in of_step)
        found.append(mark(f"step {step}", "step", rank, DOING, *span, zero))
    for event in done:
        name = f"{event.name}, {event.category}" if event.category in ("begin", "progress") else event.name
        found.append(mark(name, event.category, rank, DOING, event.start, event.stop, zero, arguments(event)))
    for event, seconds in waits:
        found.append(mark("waiting", "waiting", rank, DOING, event.start, event.start + seconds, zero))
    busy_until = []  # for each thread of collectives under way, when the last one on it ended
    for event in sorted((event for event in events if event.category == "flight"), key=attrgetter("start")):
        lane = next((lane for lane, stop in enumerate(busy_until) if stop <= event.start), len(busy_until))
        busy_until[lane : lane + 1] = [event.stop]
        found.append(mark(event.name, "flight", rank, FLYING + lane, event.start, event.stop, zero, arguments(event)))
    return sorted(found, key=lambda mark: (mark["tid"], mark["ts"], -mark["dur"]))


def mark(name, category, rank, thread, start, stop, zero, arguments=None):
    """One event of the format, with its times in microseconds since `zero`, rounded to whole nanoseconds."""
    first, last = (round((time - zero) * 1e9) for time in (start, stop))
    found = {"name": name, "cat": category, "ph": "X", "pid": rank, "tid": thread, "ts": first / 1e3}
    return found | {"dur": (last - first) / 1e3} | ({"args": arguments} if arguments else {})


def arguments(event):
    """What the viewer shows beside a collective; None for other events."""
    return {"bytes": event.bytes, "ranks": list(event.ranks)} if event.ranks else None


def names(part, threads):
    """The events of the format that name the process of a rank and its threads."""
    rank, place = part["rank"], ", ".join(f"{axis}={number}" for axis, number in part["coordinates"].items())
    named = lambda what, thread, **said: {"name": what, "ph": "M", "pid": rank, "tid": thread, "args": said}  # noqa: E731
    return [
        named("process_name", DOING, name=f"rank {rank} ({place}) on {part['host']}"),
        named("process_sort_index", DOING, sort_index=rank),
        named("thread_name", DOING, name="does"),
        *(named("thread_name", thread, name="in flight") for thread in range(FLYING, threads)),
    ]
