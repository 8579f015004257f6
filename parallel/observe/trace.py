"""One timeline of what all ranks do in some steps of training."""

import platform
from bisect import bisect_left
from collections import defaultdict

import numpy as np
from mpi4py import MPI

from parallel.grid import clock
from parallel.observe.span_observer import SpanObserver
from parallel.observe.timeline import Event, timeline

STEPS = 20


class Trace(SpanObserver):
    """While it is open, remembers when this rank was in which layer and collective.

        with Trace(net) as trace:
            ...
        timeline = trace.timeline()  # on rank 0, to be written as JSON

    net: as of SpanObserver. steps: how many to remember; later ones leave no mark. Opened and closed on all ranks
    together, since their clocks are compared then.
    """

    def __init__(self, net, steps=STEPS):
        super().__init__(net)
        self.steps = steps
        self.spans = []  # of layers, as SpanObserver tells them
        self.told = []  # of collectives: (category, (group, layer, kind, bytes), start, stop, step)
        self.tell = self.spans.append

    def __enter__(self):
        self.end_step = self.net.step + self.steps
        self.comparisons = [self.tally.clock.compare(self.net.grid.comm)]
        return super().__enter__()

    def __exit__(self, kind, *exception):
        super().__exit__(kind, *exception)
        if kind is None:  # else the other ranks may not come
            self.comparisons.append(self.tally.clock.compare(self.net.grid.comm))

    def collective(self, *told):
        super().collective(*told)
        self._remember("collective", *told)

    def advanced(self, *told):
        super().advanced(*told)
        self._remember("progress", *told)

    def flight(self, *told):
        self._remember("flight", *told)

    def _remember(self, category, group, layer, kind, bytes_sent, start, stop):
        if self.net.step < self.end_step:
            self.told.append((category, (group, layer, kind, bytes_sent), start, stop, self.net.step))

    def timeline(self):
        """On rank 0 the timeline of all ranks in the format of `parallel/observe/timeline.py`, None elsewhere. Collective."""
        part = {
            "rank": MPI.COMM_WORLD.rank,
            "coordinates": self.net.grid.coordinates,
            "host": platform.node(),
            "accuracy": clock.accuracy(self.comparisons),
            "events": self._events(),
        }
        parts = self.net.grid.gather(part)
        return parts and timeline(parts)

    def _events(self):
        """What this rank remembers, as Events on the clock of rank 0; those of layers first."""
        begun, events = begins(self.told), []
        for what, start, stop, _, step in self.spans:
            events.append(Event("layer", " ".join(what), start, stop, step))
        for number, (category, (group, layer, kind, sent), start, stop, step) in enumerate(self.told):
            category = "begin" if number in begun else category
            events.append(Event(category, f"{layer} {kind}", start, stop, step, kind, group.ranks, int(sent)))
        times = np.array([(event.start, event.stop) for event in events]).reshape(-1, 2)
        times = clock.to_clock_of_rank_0(times, self.comparisons).tolist()
        return [event._replace(start=start, stop=stop) for event, (start, stop) in zip(events, times)]


def begins(told):
    """The positions of those collectives that only began what then went on by itself."""
    calls = defaultdict(list)
    for number, (category, what, start, *_) in enumerate(told):
        if category == "collective":
            calls[what[:3]].append((start, number))
    found = set()
    for category, what, start, *_ in told:
        if category == "flight":  # which took off just before its first call
            mine = calls[what[:3]]
            first = bisect_left(mine, (start,))
            found.update(number for _, number in mine[first : first + 1])
    return found
