"""What this rank does, as spans of time: the one source of traces and of profiles."""

import math

from nn import device
from nn.observer import Observer

METHODS = "forward", "gradients", "input_gradient", "backward"


class SpanObserver(Observer):
    """While it is open (`with`), it is told of every span of time that this rank spends in a pass or a collective.

    net: a ParallelSequential. What is told are the passes of its layers, of the loss, the optimizer and the reader, see
    `nn/observer.py`. SpanObserver may be opened within others. On a GPU each pass waits for what it started: the spans are then
    right, and a step takes a little longer.

    A subclass has `tell`, a function of a tuple (what, start, stop, inner, step): `what`, a tuple (name, kind, phase),
    began and ended in that step of training, `inner` seconds of it being those of the spans within. end: of the steps of
    which it is told. It may override the methods that tell of collectives, and calls those of this class then.
    """

    end_step = math.inf
    hears_collectives = True

    def __init__(self, net):
        self.net, self.tally = net, net.grid.tally
        self._open = []  # of each span that has begun: its start, and `_inner` of the one around it
        self._inner = 0.0  # seconds of the spans that ended within the one that is open

    def __enter__(self):
        self.clock = self.tally.clock.now
        self.net.observe(self)
        return self

    def __exit__(self, *exception):
        self.net.forget(self)
        self._open.clear()
        self._inner = 0.0

    def begin(self, thing, phase, context):
        self._open.append((self.clock(), self._inner))
        self._inner = 0.0

    def end(self, thing, phase, context, share=1.0):
        device.synchronise()
        stop = self.clock()
        start, around = self._open.pop()
        step = self.net.step
        if step < self.end_step:
            self.tell(((thing.name, type(thing).__name__, phase), start, stop, self._inner, step))
        self._inner = around + stop - start

    def collective(self, group, layer, kind, bytes_sent, start, stop):
        self._inner += stop - start

    def advanced(self, group, layer, kind, bytes_sent, start, stop):
        self._inner += stop - start


def every_layer(layers):
    """All layers, each that has branches before what is in them."""
    for layer in layers:
        yield layer
        for branch in layer.children:
            yield from every_layer(branch)
