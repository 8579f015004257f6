"""A trace of all ranks: what each of them does in some steps of training, on one timeline."""

import math
import os
import platform
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from gridgrad.nn import device
from gridgrad.parallel.job.run import on_root
from gridgrad.parallel.observe.span_observer import SpanObserver
from gridgrad.parallel.observe.timeline import TimelineEvent, chrome_trace, write

if TYPE_CHECKING:
    from gridgrad.parallel.training.network import ParallelSequential

STEPS = 20  # how many steps are recorded by default


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
        self.spans: list[tuple] = []  # of passes: the tuples that SpanObserver records
        self.collectives: list[tuple] = []  # (category, (group, layer, kind, bytes), start, stop, step)
        self.instructions: list[tuple] = []  # (Instruction, start, stop, step)
        self._last_call = -math.inf  # when the last call of a collective that is recorded began
        self.record = self.spans.append

    def __enter__(self) -> "Trace":
        self.end_step = self.net.step + self.steps
        self.comparisons = [self.net.grid.tally.clock.compare(self.net.grid.comm)]
        super().__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        super().__exit__(kind, *exception)
        if kind is None:  # after an exception the other ranks may not take part
            self.comparisons.append(self.net.grid.tally.clock.compare(self.net.grid.comm))

    def begin_instruction(self, instruction: Any) -> None:
        self._begun = self.clock(), self.net.step

    def end_instruction(self, instruction: Any) -> None:
        device.synchronise()
        start, step = self._begun
        if step < self.end_step:
            self.instructions.append((instruction, start, self.clock(), step))

    def collective(self, *call: Any) -> None:
        super().collective(*call)
        self._record_collective("collective", *call)

    def advanced(self, *call: Any) -> None:
        super().advanced(*call)
        self._record_collective("progress", *call)

    def flight(self, group: Any, layer: str, kind: str, bytes_sent: int, start: float, stop: float) -> None:
        opened = self.comparisons[0][0]
        if opened <= start and (self.net.step < self.end_step or start <= self._last_call):  # its first call is recorded
            self.collectives.append(("flight", (group, layer, kind, bytes_sent), start, stop, self.net.step))

    def _record_collective(self, category, group, layer, kind, bytes_sent, start, stop):
        if self.net.step < self.end_step:
            self.collectives.append((category, (group, layer, kind, bytes_sent), start, stop, self.net.step))
            self._last_call = start

    def timeline(self) -> dict[str, Any] | None:
        """The timeline of all ranks in the Chrome trace format, a dict to be written as JSON, on rank 0; None elsewhere.

        Collective. `write` writes it to a file."""
        grid, accuracy = self.net.grid, max(error for *_, error in self.comparisons)
        part = {"rank": MPI.COMM_WORLD.rank, "coordinates": grid.coordinates, "host": platform.node(), "accuracy": accuracy}
        parts = grid.gather(part | {"events": self._events()})
        return parts and chrome_trace(parts)

    def write(self, path: str | os.PathLike) -> None:
        """Write the timeline of all ranks to a JSON file for ui.perfetto.dev, whole or not at all. Collective.

        An earlier file at `path` is replaced. If it can not be written, every rank raises a UserError that says why."""
        found = self.timeline()
        on_root(self.net.grid.comm, lambda: write(path, found))

    def _events(self):
        """What this rank has recorded: TimelineEvents on the clock of rank 0, those of collectives behind all others."""
        begun = begins(self.collectives)
        events = [TimelineEvent("instruction", str(what), start, stop, step) for what, start, stop, step in self.instructions]
        for what, start, stop, _, step in self.spans:
            events.append(TimelineEvent("layer", " ".join(what), start, stop, step))
        for number, (category, (group, layer, kind, sent), start, stop, step) in enumerate(self.collectives):
            category, name = "begin" if number in begun else category, f"{layer} {kind}"
            events.append(TimelineEvent(category, name, start, stop, step, kind, group.ranks, int(sent)))
        times = np.array([(event.start, event.stop) for event in events]).reshape(-1, 2)
        times = to_clock_of_rank_0(times, self.comparisons).tolist()
        return [event._replace(start=start, stop=stop) for event, (start, stop) in zip(events, times)]


def to_clock_of_rank_0(times, comparisons):
    """Times by this rank's clock, an array, as rank 0's clock shows them. comparisons: results of `WallClock.compare`.

    Offsets are linear between comparisons and constant outside."""
    now, offsets, _ = zip(*comparisons)
    return times + np.interp(times, now, offsets)


def begins(collectives):
    """The positions, in `Trace.collectives`, of the calls that began a non-blocking collective."""
    calls = defaultdict(list)
    for number, (category, what, start, *_) in enumerate(collectives):
        if category == "collective":
            calls[what[:3]].append((start, number))
    found = set()
    for category, what, start, *_ in collectives:
        if category == "flight":  # its time under way starts just before the call that began it
            mine = calls[what[:3]]
            first = bisect_left(mine, (start,))
            found.update(number for _, number in mine[first : first + 1])
    return found
