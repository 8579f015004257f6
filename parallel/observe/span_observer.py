"""The spans of time in which a rank is busy with passes and collectives: the common base of traces and profiles."""

import math
from collections.abc import Callable
from typing import Any

from gridgrad.nn import device
from gridgrad.nn.observer import Observer
from gridgrad.parallel.grid.group import Group

METHODS = "forward", "gradients", "input_gradient", "backward"  # the phases of a layer's passes


class SpanObserver(Observer):
    """A context manager that records every pass of a network on this rank, while it is open, as a span of time.

    net: a ParallelSequential, or a Sequential if the subclass has a `timer` of its own. Its passes are those of its layers, the
    loss, the optimizer and the reader; `nn/observer.py` defines them. Spans may lie within others. On a GPU each pass waits for
    the computations that it started, so that the spans are right; a step then takes a little longer.

    A subclass provides `record`, which is called at the end of each span with a tuple (what, start, stop, inner, step). what: a
    tuple (name, kind, phase), such as ("0", "Conv2d", "forward"). start, stop: seconds by `timer`. inner: the
    seconds of it that were spent in spans and collectives within it. step: the training step.
    A subclass may set `end_step`, the first step that is not recorded any more. If it overrides `collective` or `advanced`, it
    must call the methods of this class too.
    """

    end_step: float = math.inf
    record: Callable[[tuple], None]
    hears_collectives = True

    def __init__(self, net):
        self.net = net
        self._open: list[
            tuple[float, float]
        ] = []  # for each span under way: its start, and what `_inner` was in the span around it
        self._inner = 0.0  # seconds of the spans and collectives that ended within the innermost span under way

    def __enter__(self):
        self.clock = self.timer()
        self.net.observe(self)
        return self

    def __exit__(self, *exception):
        self.net.forget(self)
        self._open.clear()
        self._inner = 0.0

    def timer(self) -> Callable[[], float]:
        """The function that tells the time in seconds. It is asked for on entering: a simulation has a clock of its own."""
        return self.net.grid.tally.clock.now

    def begin(self, thing: Any, phase: str, context: Any) -> None:
        self._open.append((self.clock(), self._inner))
        self._inner = 0.0

    def end(self, thing: Any, phase: str, context: Any) -> None:
        device.synchronise()
        stop = self.clock()
        start, around = self._open.pop()
        step = self.net.step
        if step < self.end_step:
            self.record(((thing.name, type(thing).__name__, phase), start, stop, self._inner, step))
        self._inner = around + stop - start

    def collective(self, group: Group, layer: str, kind: str, bytes_sent: int, start: float, stop: float) -> None:
        self._inner += stop - start

    def advanced(self, group: Group, layer: str, kind: str, bytes_sent: int, start: float, stop: float) -> None:
        self._inner += stop - start
