"""A slowdown of one rank, so that ranks of unequal speed can be tried on a machine whose cores are equal."""

import time

from parallel.observe.span_observer import SpanObserver

LEAST = 2e-4  # seconds: shorter pauses are saved up, because sleeping is not exact


class Handicap(SpanObserver):
    """Makes this rank compute `factor` times as slowly, from training step `first` on.

    After each pass of a layer, the loss or the optimizer it sleeps for (factor - 1) times what that pass computed, so that the
    rank works for 1 / factor of the time: a duty cycle. Communication is not slowed down. A profile, a trace or a timer that
    observes the network after it sees the slower rank. factor: at least 1.
    """

    clock = staticmethod(time.perf_counter)

    def __init__(self, factor, first=0):
        super().__init__(None)
        self.factor, self.first = factor, first
        self._owed = 0.0

    def slow_down(self, net):
        """Slow down the passes of a Sequential or ParallelSequential from now on, and no longer those of an earlier one."""
        self.net = net
        net.observe(self)

    def record(self, span):
        _, start, stop, inner, step = span
        if step >= self.first:
            self._owed += (self.factor - 1) * (stop - start - inner)

    def end(self, thing, phase, context, share=1.0):
        super().end(thing, phase, context, share)
        if self._owed > LEAST:
            start = time.perf_counter()
            time.sleep(self._owed)
            slept = time.perf_counter() - start
            self._owed -= slept
            self._inner += slept  # the pass around this one has not computed in that time
