"""The events of all ranks as one timeline: the spans of time that a viewer shows, those of each rank nested in each other.

Thread 0 of a rank shows what the rank does: steps, in them the instructions of a pipeline, in them layers, in them collectives
and, within a blocking collective, how long the rank waited for the last rank to enter it. Thread 1 and, where several overlap,
further ones show the non-blocking collectives that are under way. Perfetto and chrome://tracing can show the files.
"""

import json
from collections import defaultdict
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

from gridgrad.nn.files.whole_files import write_text
from gridgrad.parallel.grid.collectives import COLLECTIVES

DOING, FLYING = 0, 1  # the numbers of the threads: what the rank does, and the first one of collectives under way


class TimelineEvent(NamedTuple):
    """What a rank did from `start` to `stop`, in seconds of rank 0's clock. kind, ranks, bytes: of collectives only.

    category: "layer", "instruction" of a pipeline, "collective" that blocks; "begin", "progress" and "flight" of others."""

    category: str
    name: str
    start: float
    stop: float
    step: int
    kind: str = ""
    ranks: tuple = ()
    bytes: int = 0


def chrome_trace(parts):
    """The timeline in the "Trace Event Format" (Google 2016), a dict to be written as JSON, in which each rank is a process.

    parts: for each rank a dict of its "rank", "coordinates", "host", "events" and "accuracy" (of its times, in seconds)."""
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


def write(path, trace):
    """Write a file of what `chrome_trace` returned, whole or not at all. OSError if that can not be done."""
    write_text(path, json.dumps(trace, allow_nan=False) + "\n")


def names(part, last):
    """The events of the format that name the process of a rank and its threads, of which `last` has the highest number."""

    def named(what, thread, **said):
        return {"name": what, "ph": "M", "pid": part["rank"], "tid": thread, "args": said}

    place = ", ".join(f"{axis}={number}" for axis, number in part["coordinates"].items())
    return [
        named("process_name", DOING, name=f"rank {part['rank']} ({place}) on {part['host']}"),
        named("process_sort_index", DOING, sort_index=part["rank"]),
        named("thread_name", DOING, name="does"),
        *(named("thread_name", thread, name="in flight") for thread in range(FLYING, last + 1)),
    ]


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
                late = last_needed(event.kind, entries, place) - event.start if event else 0
                if late > 0:
                    found[rank].append((event, min(late, event.stop - event.start)))
    return found


def last_needed(kind, entries, place):
    """When the last rank that the one at `place` waits for entered a collective. entries: when each rank did."""
    return max(entries[COLLECTIVES[kind].needs(place)])


def spans(rank, events, waits, zero):
    """What a viewer shows of a rank, as events of the format: those of a thread by their starts, each before those within it.

    waits: its entry in the result of `waiting`. zero: the time, in seconds, that is shown as 0."""

    def span(thread, category, title, start, stop, ranks=(), sent=0):
        start, stop = round((start - zero) * 1e9), round((stop - zero) * 1e9)
        shown = {"name": title, "cat": category, "ph": "X", "pid": rank, "tid": thread, "ts": start / 1e3}
        args = {"args": {"bytes": sent, "ranks": list(ranks)}} if ranks else {}  # of a collective
        return shown | {"dur": (stop - start) / 1e3} | args  # times in microseconds

    done = sorted((event for event in events if event.category != "flight"), key=attrgetter("step"))
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
    for event in sorted((event for event in events if event.category == "flight"), key=attrgetter("start")):
        lane = next((lane for lane, stop in enumerate(busy_until) if stop <= event.start), len(busy_until))
        busy_until[lane : lane + 1] = [event.stop]
        found.append(span(FLYING + lane, "flight", event.name, event.start, event.stop, event.ranks, event.bytes))
    return sorted(found, key=lambda span: (span["tid"], span["ts"], -span["dur"]))
