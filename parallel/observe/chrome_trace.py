"""A timeline in the Chrome trace format, which Perfetto and chrome://tracing can show. Each rank is shown as a process.

Format: "Trace Event Format", Google 2016.
"""

import json

from gridgrad.nn.files.whole_files import write_text
from gridgrad.parallel.observe.timeline import DOING, FLYING


def chrome_trace(timeline):
    """The contents of the trace file of a Timeline, as a dict to be written as JSON."""
    found = []
    for one in timeline.ranks:
        found += names(one) + [mark(span, one.rank) for span in one.spans]
    return {
        "traceEvents": found,
        "displayTimeUnit": "ms",
        "otherData": {
            "ranks": len(timeline.ranks),
            "clock": "that of rank 0, compared by ping-pong at both ends, linear in between",
            "clock accuracy in microseconds": round(timeline.accuracy * 1e6, 3),
        },
    }


def write(path, timeline):
    """Write the trace file of a Timeline, whole or not at all. OSError if that can not be done."""
    write_text(path, json.dumps(chrome_trace(timeline), allow_nan=False) + "\n")


def mark(span, rank):
    """A Span of a rank as an event of the format, with its times in microseconds."""
    found = {"name": span.title, "cat": span.category, "ph": "X", "pid": rank, "tid": span.thread, "ts": span.start / 1e3}
    found["dur"] = (span.stop - span.start) / 1e3
    if span.event and span.event.ranks:  # a collective: what the viewer shows beside it
        found["args"] = {"bytes": span.event.bytes, "ranks": list(span.event.ranks)}
    return found


def names(one):
    """The events of the format that name the process of a rank, a RankTimeline, and its threads."""
    named = lambda what, thread, **said: {"name": what, "ph": "M", "pid": one.rank, "tid": thread, "args": said}  # noqa: E731
    return [
        named("process_name", DOING, name=one.title),
        named("process_sort_index", DOING, sort_index=one.rank),
        named("thread_name", DOING, name="does"),
        *(named("thread_name", thread, name="in flight") for thread in range(FLYING, one.threads)),
    ]
