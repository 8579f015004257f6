"""A handicap makes a rank pause for the right share of what it computes."""

import numpy as np
import pytest

from gridgrad.experiments.run_parts import Handicap
from gridgrad.nn import SGD, Linear, Residual, Sequential, SoftmaxCrossEntropy
from gridgrad.nn.layer import Layer
from gridgrad.parallel.observe.span_observer import SpanObserver


class Clock:
    """A clock that advances by what a `Work` computes, and by a microsecond when somebody looks."""

    def __init__(self):
        self.time = self.worked = 0.0

    def perf_counter(self):
        self.time += 1e-6
        return self.time

    def work(self, seconds):
        self.time += seconds
        self.worked += seconds


class Work(Layer):
    """A layer that computes for 10 ms in forward and for 20 ms in backward."""

    def __init__(self, clock):
        self.clock = clock

    def forward(self, x, context):
        self.clock.work(0.01)
        return x

    def input_gradient(self, dy, context):
        self.clock.work(0.02)
        return dy


class Spans(SpanObserver):
    """What the passes took, without what passes within them took."""

    def __init__(self, net, clock):
        super().__init__(net)
        self.clock, self.seconds = clock.perf_counter, 0.0

    def record(self, span):
        _, start, stop, inner, _ = span
        self.seconds += stop - start - inner


def trained(monkeypatch, factor, first=0, steps=3):
    """(seconds of each step, seconds that a later observer saw in all) of a network that computes 60 ms a step."""
    clock = Clock()
    monkeypatch.setattr(Handicap, "clock", staticmethod(clock.perf_counter))
    net = Sequential([Linear(4, 4), Work(clock), Residual([Linear(4, 4), Work(clock)]), Linear(4, 2)])
    Handicap(factor, first).slow_down(net)
    spans, optimizer, loss, seconds = Spans(net, clock), SGD(net, 0.1), SoftmaxCrossEntropy(), []
    net.observe(spans)
    for _ in range(steps):
        before = clock.time
        net.learn(np.ones((5, 4), np.float32), np.zeros(5, int), loss, optimizer)
        seconds.append(clock.time - before)
    assert clock.worked == pytest.approx(0.06 * steps)
    return seconds, spans.seconds


@pytest.mark.parametrize(
    ("factor", "first", "expected"), [(1, 0, [60, 60, 60]), (2, 0, [120, 120, 120]), (3.5, 2, [60, 60, 210])]
)
def test_it_pauses_in_proportion_to_what_was_computed(monkeypatch, factor, first, expected):
    seconds, _ = trained(monkeypatch, factor, first)
    assert np.multiply(seconds, 1e3) == pytest.approx(expected, rel=0.01)


def test_what_observes_after_it_sees_a_slower_rank(monkeypatch):
    assert trained(monkeypatch, 5)[1] == pytest.approx(5 * 3 * 0.06, rel=0.01)
