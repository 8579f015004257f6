"""The tally of a grid: how often this rank communicated, how many bytes it sent and how many seconds that took."""

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass

from gridgrad.nn import device
from gridgrad.nn.observer import Observable
from gridgrad.parallel.grid.clock import WallClock
from gridgrad.parallel.job import under_way


@dataclass
class Record:
    """What one entry of a tally has counted: calls, bytes sent by this rank, and seconds that this rank spent in the calls.

    messages: those that this rank sent from point to point; the messages within MPI's collectives are not known.
    """

    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0
    messages: int = 0


class Tally(Observable):
    """Counts this rank's communication: `records` maps (layer, kind of collective) to a Record.

    clock: measures the seconds, a `WallClock` unless a simulation installs another one.
    Observers that are registered here are told of every collective: see the communication methods in `nn/observer.py`.
    """

    def __init__(self):
        self.clock = WallClock()
        self.records = defaultdict(Record)

    @contextmanager
    def measure(self, group, layer, kind, bytes_sent, calls=1, blocks=True, messages=0):
        """A `with` block around one collective, or around one call that advances a collective that does not block.

        group: the Group that communicates. layer, kind: the entry of `records`. bytes_sent: by this rank.
        calls: 1 for the call that runs or begins a collective, 0 for a later call that tests it or waits for it.
        blocks: whether the collective is complete when the block ends. messages: see `Record`.
        The device is synchronised first: otherwise the end of its earlier computations would be counted as communication.
        """
        device.synchronise()
        start = self.clock.now()
        under_way.enter(group, layer, kind)
        try:
            yield
            if blocks:
                self.clock.blocked(group, kind, bytes_sent)
        finally:
            under_way.leave()
        stop = self.clock.now()
        record = self.records[layer, kind]
        record.calls += calls
        record.bytes += int(bytes_sent)
        record.seconds += stop - start
        record.messages += messages
        self._report_call(calls, group, layer, kind, bytes_sent, start, stop)

    def _report_call(self, calls, *call):
        """Tell the observer, if there is one, of a collective (`calls` is 1) or of progress on one that does not block (0)."""
        if self.observer:
            (self.observer.collective if calls else self.observer.advanced)(*call)

    def report_flight(self, group, layer, kind, bytes_sent, start, stop, messages=None):
        """Tell the observer, if there is one, that a collective that does not block was under way from `start` to `stop`.

        messages: its Messages, None for one of MPI's collectives.
        """
        if self.observer:
            self.observer.flight(group, layer, kind, bytes_sent, start, stop, messages)

    def clear(self):
        """Set all counts to zero."""
        self.records.clear()

    @contextmanager
    def set_aside(self):
        """A `with` block whose communication is neither counted nor reported to observers, such as that of an evaluation."""
        before, self.records, self.observer = (self.records, self.observer), defaultdict(Record), None
        try:
            yield
        finally:
            self.records, self.observer = before

    @property
    def seconds(self):
        """The seconds that this rank has spent in communication, over all entries."""
        return sum(record.seconds for record in self.records.values())
