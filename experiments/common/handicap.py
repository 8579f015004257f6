"""A slowdown of one rank, so that ranks of unequal speed can be tried on a machine whose cores are equal."""

from time import perf_counter

from gridgrad.parallel.observe.span_observer import SpanObserver


class Handicap(SpanObserver):
    """Makes this rank compute `factor` times as slowly, from training step `first` on.

    After each pass of a layer, the loss or the optimizer it pauses for (factor - 1) times what that pass computed, so that the
    rank works for 1 / factor of the time: a duty cycle. It stays awake, because a core that has slept is slower for a while, so
    it should have a core of its own. As in a long computation, there are progress points in a pause. Communication is not
    slowed down. A profile, a trace or a timer that observes the network after it sees the slower rank. factor: at least 1.
    """

    clock = staticmethod(perf_counter)

    def __init__(self, factor, first=0):
        super().__init__(None)
        self.factor, self.first, self._paused = factor, first, 0.0

    def slow_down(self, net):
        """Slow down the passes of a Sequential or ParallelSequential from now on, and no longer those of an earlier one."""
        if self.net is not None:
            self.net.forget(self)
        self.net = net
        net.observe(self)

    def record(self, span):
        (_, _, phase), start, stop, inner, step = span
        if step >= self.first and self.factor > 1 and phase != "load":
            self._pause((self.factor - 1) * (stop - start - inner))

    def end(self, thing, phase, context):
        super().end(thing, phase, context)
        self._inner += self._paused  # the pass around this one has not computed in that time
        self._paused = 0.0

    def _pause(self, seconds):
        start, progress = self.clock(), self.net.observer.progress
        while self.clock() < start + seconds:
            if progress is not None:
                progress()
        self._paused = self.clock() - start
