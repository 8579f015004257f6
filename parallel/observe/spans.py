"""What this rank does, as spans of time: the one source of traces and of profiles."""

import math

from nn import device
from nn.layer import Layer
from nn.conv_pool import PooledConv2d
from parallel.placement.halo_conv import HaloConv2d

METHODS = "forward", "gradients", "input_gradient", "backward"


class Spans:
    """While it is open (`with`), it is told of every span of time that this rank spends in a layer or a collective.

    net: a ParallelSequential. others: objects by name whose methods load, forward, backward and step are spans too.

    The methods of the layers give way to ones that look at the clock, and come back at the end: a network that nobody
    watches pays nothing. Spans may be opened within others, and are closed in reverse. Evaluations are left out. On a GPU
    each method waits for what it started: the spans are then right, and a step takes a little longer.

    A subclass has `tell`, a function of a tuple (what, start, stop, inner, step): `what`, a tuple (name, kind, method),
    began and ended in that step of training, `inner` seconds of it being those of the spans within. end: of the steps of
    which it is told. It may listen to collectives as well: see `Tally`.
    """

    end = math.inf

    def __init__(self, net, **others):
        self.net, self.others, self.tally = net, others, net.grid.tally
        self._inner = 0.0  # seconds of the spans that ended within the one that is open
        self._outer, self._replaced, self._evaluates = None, [], False

    def __enter__(self):
        for layer in every_layer(self.net.running):
            for owner, method, what in watched_methods(layer):
                self._replace(owner, method, what)
        for name, thing in self.others.items():
            for method in ("load", "forward", "backward", "step"):
                if hasattr(thing, method):
                    self._replace(thing, method, (name, type(thing).__name__, method))
        self._outer, self.tally.listener = self.tally.listener, self
        return self

    def __exit__(self, *exception):
        self.tally.listener = self._outer
        while self._replaced:
            thing, method, before = self._replaced.pop()
            delattr(thing, method)
            if before:
                setattr(thing, method, before)

    def _replace(self, thing, method, what):
        own = getattr(thing, method)
        new = timed = self._timed(own, what)
        if isinstance(thing, Layer) and method == "forward":

            def new(x, training=False):
                if training:
                    return timed(x, training)
                self._evaluates = True  # and with it what it calls
                result = own(x)
                self._evaluates = False
                return result

        self._replaced.append((thing, method, vars(thing).get(method)))
        setattr(thing, method, new)

    def _timed(self, method, what):
        """`method`, telling its spans. It runs some dozens of times a step, which may take no longer than 0.1 ms."""
        clock, settle, tell, net, end = self.tally.clock.now, device.synchronise, self.tell, self.net, self.end

        def timed(*arguments):
            outer, self._inner = self._inner, 0.0
            start = clock()
            result = method(*arguments)
            settle()
            stop = clock()
            if net.step < end and not self._evaluates:
                tell((what, start, stop, self._inner, net.step))
            self._inner = outer + stop - start
            return result

        return timed

    # ----- what the tally tells

    def collective(self, group, layer, kind, bytes_sent, start, stop):
        self._inner += stop - start
        if self._outer:
            self._outer.collective(group, layer, kind, bytes_sent, start, stop)

    def progress(self, group, layer, kind, bytes_sent, start, stop):
        self._inner += stop - start
        if self._outer:
            self._outer.progress(group, layer, kind, bytes_sent, start, stop)

    def flight(self, *told):
        if self._outer:
            self._outer.flight(*told)


def every_layer(layers):
    """All layers, each that has branches before what is in them."""
    for layer in layers:
        yield layer
        for branch in layer.children:
            yield from every_layer(branch)


def watched_methods(layer):
    """(object, method, what) of all that `layer` computes in.

    Where a layer shares work between the halves of its backward pass they are one, `backward`. A HaloConv2d leaves them
    to its convolution. A PooledConv2d is its convolution, but for the blocks in which its pooling works.
    """
    inner = layer.conv if isinstance(layer, HaloConv2d) else layer
    kind = type(layer.conv if isinstance(layer, PooledConv2d) else layer).__name__
    for owner, method in zip((layer, inner, inner, layer), METHODS):
        if getattr(type(owner), method) is not getattr(Layer, method):
            yield owner, method, (layer.name, kind, method)
    if isinstance(layer, PooledConv2d):
        pool = layer.pool
        for block, method in (("forward_block", "forward"), ("backward_block", "input_gradient")):
            yield pool, block, (pool.name, type(pool).__name__, method)
