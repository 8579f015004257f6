"""A run in virtual time: the real program on real ranks, however many share a core, whose time passes as a cost model says.

Every rank has a clock of its own. It goes on by what a machine file says that each pass of each layer takes there, times a
factor where the rank is a straggler; and in communication it waits for the others, as in reality: a collective begins when its
last rank has come, and lasts as long as the model says. Those that do not block go on meanwhile, one after another, with no
need to be tested, as where the network has a processor of its own; one that blocks goes ahead of them. So stragglers, waiting
and overlap are simulated and not only added up, while the numbers that are trained are real.

Not simulated: reading the data, evaluations, sums in shared memory and in float16, several nodes' messages in each other's
way, and the seconds that a calibrated machine waits in each collective for no reason of the model's. Reports and traces of
such a run are in virtual time.
"""

from collections import Counter
from functools import cached_property

import numpy as np
from mpi4py import MPI

from nn.conv_pool import PooledConv2d
from nn.layer import Layer
from parallel.grid.description import Ranks
from parallel.observe.spans import METHODS, every_layer
from parallel.performance.cost import local_shape
from parallel.performance.workload import Walk
from parallel.placement.gathered_linear import GatheredLinear
from parallel.placement.halo import HaloConv2d
from parallel.placement.partition import size

PHASES = {  # of the work that a method of a layer does
    "forward": ("forward",),
    "gradients": ("gradients",),
    "input_gradient": ("backward",),
    "backward": ("gradients", "backward"),
}


class VirtualTime:
    """The clock of one rank, in the place of its tally's, for as long as the network lives.

    net: a ParallelSequential, whose methods let time pass from now on. machine: a Machine. slow: how many times as long as
    the machine file says this rank takes to compute.
    Raises ValueError for a network that can not be simulated.
    """

    progresses = False

    def __init__(self, net, machine, slow=1.0):
        if str(net.reduction).split(":")[0] not in ("plain", "overlap") or net.reduction.half:
            raise ValueError(f"reduction {net.reduction} can not be simulated: use plain or overlap:KIB, in float32 or float64")
        if any(isinstance(layer, GatheredLinear) for layer in net.layers):
            raise ValueError("a simulation runs on one machine: set GRIDGRAD_RANKS_PER_NODE no lower than its ranks")
        self.net, self.machine, self.slow = net, machine, slow
        self.time = self.link = 0.0  # seconds: now; and when what was under way last was over
        self.training, self.prices, self.groups = False, {}, {}
        net.grid.tally.clock = self
        self._watch()

    def now(self):
        return self.time

    def compare(self, comm):
        """All clocks began at 0."""
        return self.time, 0.0, 0.0

    # ----- computing

    def passes(self, seconds):
        """So long computes a rank that is no straggler."""
        if self.training:
            self.time += self.slow * seconds

    def price(self, layer, method):
        """Seconds of a method of a layer, for the minibatch that is trained."""
        if isinstance(layer, PooledConv2d):  # whose gradients are those behind its pooling
            of_pool = "input_gradient" if method == "gradients" else method
            return self.price(layer.conv, method) + self.price(layer.pool, of_pool)
        return sum(self._seconds(work) for work in self.walk.of[layer] if work.phase in PHASES[method])

    def _seconds(self, work):
        return work.seconds(self.machine, self.net.grid.size, self.net.dtype.itemsize)

    def _walk(self, batch_size):
        """This rank's work with a minibatch: a Walk."""
        if batch_size not in self.prices:
            grid, net = self.net.grid, self.net
            walk = Walk(local_shape(net.input, batch_size, grid), batch_size, net.dtype.itemsize)
            walk.step(net.layers, grid)
            self.prices[batch_size] = walk
        return self.prices[batch_size]

    @cached_property
    def _update(self):
        """Seconds for each parameter that is updated."""
        updates = [work for work in self.walk.works if work.name == "update"]
        return sum(self._seconds(work) for work in updates) / max(1, self.net.size)

    def _watch(self):
        net = self.net
        forward, backward, accumulate, changed = net.forward, net.backward, net.accumulate, net.changed

        def watched_forward(x, training=False, batch_size=None, first=0):
            self.training = training
            self.walk = self._walk(len(x) if batch_size is None else batch_size)
            return forward(x, training, batch_size, first)

        def of_loss(method):
            def watched(*arguments):
                self.passes(sum(self._seconds(work) for work in self.walk.works if work.name == "loss"))
                return method(*arguments)

            return watched

        def watched_changed(where):
            self.passes(self._update * size(where))
            changed(where)

        net.forward, net.backward, net.accumulate = watched_forward, of_loss(backward), of_loss(accumulate)
        net.changed = watched_changed
        for layer in every_layer(net.running):
            if isinstance(layer, HaloConv2d):
                self._watch_halo(layer)
            else:
                for method in METHODS:
                    self._watch_method(layer, method)

    def _watch_method(self, layer, method):
        """Let time pass behind a method; not behind those that only call others that are watched."""
        calls_others = method == "backward" and "backward" not in vars_of(layer) or method == "gradients" and layer.children
        if calls_others:
            return
        own = getattr(layer, method)

        def watched(*arguments):
            result = own(*arguments)
            self.passes(self.price(layer, method))
            return result

        setattr(layer, method, watched)

    def _watch_halo(self, layer):
        """A convolution that computes what needs no halo while that is under way: each of its parts takes its share."""
        conv = layer.conv
        compute, gradients, input_gradient = conv.compute, conv.gradients, conv.input_gradient

        def watched_compute(y, rows):
            compute(y, rows)
            self.passes(self.price(layer, "forward") * size(rows) / max(1, y.shape[1]))

        def watched_gradients(dy):
            gradients(dy)
            self.passes(self.price(layer, "gradients") + self.price(layer, "input_gradient") / 2)

        def watched_input_gradient(dy):
            result = input_gradient(dy)
            self.passes(self.price(layer, "input_gradient") / 2)
            return result

        conv.compute, conv.gradients, conv.input_gradient = watched_compute, watched_gradients, watched_input_gradient

    # ----- communicating

    def blocked(self, group, kind, sent):
        self.time = self._after(group, kind, sent, self.time)

    def landed(self, transfer):
        begun = max(transfer.started, self.link)
        self.link = self._after(transfer.group, transfer.kind, transfer.bytes_sent, begun)
        self.time = max(self.time, self.link)
        return self.link

    def _after(self, group, kind, sent, begun):
        """When a collective is over that this rank began at the time `begun`: the same on all its ranks. Collective."""
        latest = np.array([begun, sent], np.float64)
        group.comm.Allreduce(MPI.IN_PLACE, latest, MPI.MAX)
        begun, sent = latest.tolist()
        return begun + self.machine.collective_seconds(kind, self._ranks(group), self.net.grid.size, sent)

    def _ranks(self, group):
        """The group as the machine file's nodes hold it."""
        if group not in self.groups:
            nodes = Counter(rank // self.machine.node["ranks"] for rank in group.ranks)
            self.groups[group] = Ranks(group.size, group.rank, min(nodes.values()))  # the same on all of its ranks
        return self.groups[group]


def vars_of(layer):
    """What a layer's class defines itself, or one between it and `Layer`."""
    return {name for kind in type(layer).__mro__[: type(layer).__mro__.index(Layer)] for name in vars(kind)}
