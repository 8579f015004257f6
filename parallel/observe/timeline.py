"""The events of all ranks as one timeline in the Chrome trace format, which Perfetto and chrome://tracing open.

Each rank is a process. Its thread 0 shows what the rank does, one within the other: steps, layers, collectives and, in
those that block, how long they waited for the last rank to come. Its thread 1 (and 2, .. where several overlap) shows the
collectives that go on by themselves. Format: "Trace Event Format", Google 2016.
"""

from collections import defaultdict
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

from parallel.grid.collectives import COLLECTIVES

DOING, FLYING = 0, 1  # threads


class Event(NamedTuple):
    """start, stop: seconds on the clock of rank 0. step: the step of training. category: layer, collective, begin and
    progress (of collectives that do not block) or flight. The rest is of collectives: see `Tally`; ranks: of the group."""

    category: str
    name: str
    start: float
    stop: float
    step: int
    kind: str = ""
    ranks: tuple = ()
    bytes: int = 0


def timeline(parts):
    """The contents of the file.

    parts: a dict for each rank: its rank, coordinates and host, its events, and the accuracy of their times in seconds.
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
            "clock": "that of rank 0, by ping-pong at both ends, linear in between",
            "clock accuracy in microseconds": round(worst * 1e6, 3),
        },
    }


def waiting(events):
    """{rank: [(event, seconds)]}: how long each collective waited, at its beginning, for the last rank that it needed.

    events: {rank: Events, those of collectives in the order of their ends}. The i-th call of one name in one group is the
    same call on all its ranks. Of one that does not block, the event is the call in which it ended.
    """
    calls = defaultdict(lambda: defaultdict(list))
    for rank, mine in events.items():
        for event, after in zip(mine, [*mine[1:], None]):
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
    """When the last rank entered a collective of those that the one at `place` of the group needs to leave it."""
    return max(entries[COLLECTIVES[kind].needs(place)])


def marks(events, waits, rank, zero):
    """The events of one rank as dicts of the format, ordered so that what encloses others stands before them."""
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
    landed = []  # when the last flight on each thread ended
    for event in sorted((event for event in events if event.category == "flight"), key=attrgetter("start")):
        lane = next((lane for lane, stop in enumerate(landed) if stop <= event.start), len(landed))
        landed[lane : lane + 1] = [event.stop]
        found.append(mark(event.name, "flight", rank, FLYING + lane, event.start, event.stop, zero, arguments(event)))
    return sorted(found, key=lambda mark: (mark["tid"], mark["ts"], -mark["dur"]))


def mark(name, category, rank, thread, start, stop, zero, arguments=None):
    """One complete event: microseconds since `zero`, rounded to whole nanoseconds."""
    first, last = (round((time - zero) * 1e9) for time in (start, stop))
    found = {"name": name, "cat": category, "ph": "X", "pid": rank, "tid": thread, "ts": first / 1e3}
    return found | {"dur": (last - first) / 1e3} | ({"args": arguments} if arguments else {})


def arguments(event):
    return {"bytes": event.bytes, "ranks": list(event.ranks)} if event.ranks else None


def names(part, threads):
    """What the process of a rank and its threads are called."""
    rank, place = part["rank"], ", ".join(f"{axis}={number}" for axis, number in part["coordinates"].items())
    named = lambda what, thread, **said: {"name": what, "ph": "M", "pid": rank, "tid": thread, "args": said}  # noqa: E731
    return [
        named("process_name", DOING, name=f"rank {rank} ({place}) on {part['host']}"),
        named("process_sort_index", DOING, sort_index=rank),
        named("thread_name", DOING, name="does"),
        *(named("thread_name", thread, name="in flight") for thread in range(FLYING, threads)),
    ]
