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

import numpy as np
from mpi4py import MPI

from nn.observer import Observer
from parallel.grid.description import Ranks
from parallel.performance.cost import local_shape
from parallel.performance.workload import Walk
from parallel.placement.gathered_linear import GatheredLinear
from parallel.placement.partition import size


class VirtualTime(Observer):
    """The clock of one rank, in the place of its tally's, for as long as the network lives.

    net: a ParallelSequential, whose passes let time pass from now on. machine: a Machine. slow: how many times as long as
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
        self.walks, self.groups, self.batch_size = {}, {}, None
        self._open = []  # of each pass that has begun: [thing, the share of its work for which time has passed already]
        net.grid.tally.clock = self
        net.observe(self)

    def now(self):
        return self.time

    def compare(self, comm):
        """All clocks began at 0."""
        return self.time, 0.0, 0.0

    # ----- computing

    def begin(self, thing, phase, context):
        self._open.append([thing, 0.0])

    def end(self, thing, phase, context, share=1.0):
        """Let the time pass that a pass takes, but for what has passed within it already."""
        _, passed = self._open.pop()
        if context is not None:
            self.passes(self.price(thing, phase, context.batch_size) * (share - passed))
        if self._open and self._open[-1][0] is thing:  # a pass in the parts of which all of its time passes
            self._open[-1][1] = 1.0

    def worked(self, thing, phase, context, share):
        self.passes(self.price(thing, phase, context.batch_size) * share)
        self._open[-1][1] += share

    def parameters_changed(self, where):
        walk = self._walk(self.batch_size)
        update = sum(self._seconds(work) for work in walk.works if work.name == "update")
        self.passes(update / max(1, self.net.size) * size(where))

    def passes(self, seconds):
        """So long computes a rank that is no straggler."""
        self.time += self.slow * seconds

    def price(self, thing, phase, batch_size):
        """Seconds of a pass of a layer or a loss, for a minibatch of so many samples."""
        walk = self._walk(batch_size)
        if thing.name == "loss":
            return sum(self._seconds(work) for work in walk.works if work.name == "loss") if phase == "backward" else 0.0
        forward, gradients, backward = (
            sum(self._seconds(work) for work in walk.of[thing] if work.phase == name)
            for name in ("forward", "gradients", "backward")
        )
        # What is noted as "backward" is both halves of a layer that has parameters and computes them at once.
        half = backward / 2 if thing.has_fused_backward and thing.parameters else 0.0
        return {
            "forward": forward,
            "gradients": gradients + half,
            "input_gradient": backward - half,
            "backward": gradients + backward,
        }[phase]

    def _seconds(self, work):
        return work.seconds(self.machine, self.net.grid.size, self.net.dtype.itemsize)

    def _walk(self, batch_size):
        """This rank's work with a minibatch: a Walk."""
        self.batch_size = batch_size
        if batch_size not in self.walks:
            grid, net = self.net.grid, self.net
            walk = Walk(local_shape(net.input, batch_size, grid), batch_size, net.dtype.itemsize)
            walk.step(net.layers, grid)
            self.walks[batch_size] = walk
        return self.walks[batch_size]

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
