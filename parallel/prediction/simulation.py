"""Simulation: the real program runs on real ranks, but its time is virtual and passes as the cost model says.

Every rank has its own virtual clock. Computing advances it by the seconds that a machine file gives for each pass of each
layer, times a factor if the rank is a straggler. In communication the ranks wait for each other: a collective begins when its
last rank has arrived, and lasts as long as the cost model says. Non-blocking collectives progress in the background, one after
another, without being tested, as on a network with its own processor; a blocking collective overtakes them. So stragglers,
waiting and overlap are simulated, while the trained numbers are real. Any number of ranks may share a core.

Not simulated are reading the data, evaluations, sums in shared memory and in float16, congestion between the messages of
several nodes, and the constant waiting time per collective that a calibration fits (`wait` of a machine file). Reports and
traces of a simulated run are in virtual time.
"""

from collections import Counter

import numpy as np
from mpi4py import MPI

from gridgrad.nn.observer import Observer
from gridgrad.parallel.grid.collectives import COLLECTIVES
from gridgrad.parallel.grid.grid_description import GroupDescription
from gridgrad.parallel.placement.gathered_linear import GatheredLinear
from gridgrad.parallel.placement.partition import size
from gridgrad.parallel.prediction.cost import local_shape
from gridgrad.parallel.prediction.workload import Workload


class SimulatedClock(Observer):
    """The virtual clock of one rank. It replaces the clock of the grid's tally as long as the network exists.

    net: a ParallelSequential, whose passes advance the clock from now on. machine: a Machine. slow: the factor by which this
    rank computes more slowly than the machine file says, from training step `first` on. All times are in seconds.
    Raises ValueError for a network that cannot be simulated: reductions other than plain and overlap, float16, several nodes,
    pipelines.
    """

    progresses = False

    def __init__(self, net, machine, slow=1.0, first=0):
        if str(net.reduction).split(":")[0] not in ("plain", "overlap") or net.reduction.float16_gradients:
            raise ValueError(f"reduction {net.reduction} can not be simulated: use plain or overlap:KIB, in float32 or float64")
        if any(isinstance(layer, GatheredLinear) for layer in net.layers):
            raise ValueError("a simulation runs on one machine: set GRIDGRAD_RANKS_PER_NODE no lower than its ranks")
        if net.pipeline:
            raise ValueError("pipelines can not be simulated in this way: leave the axis stage and the pipeline out")
        self.net, self.machine, self.slow, self.first = net, machine, slow, first
        self.time = self.link = 0.0  # now, and when the last non-blocking collective ended
        self.workloads, self.groups, self.batch_size = {}, {}, None
        self._open = []  # for each pass under way: [layer or loss, share of its time that has passed]
        net.grid.tally.clock = self
        net.observe(self)

    def now(self):
        return self.time

    def compare(self, comm):
        """(now, offset, accuracy), as `compare_clocks` returns them: all virtual clocks began at 0, so there is no offset."""
        return self.time, 0.0, 0.0

    # ----- computing

    def begin(self, thing, phase, context):
        self._open.append([thing, 0.0])

    def end(self, thing, phase, context, share=1.0):
        """Advance the clock by the time of a pass, less what `worked` and passes within it have already accounted for."""
        _, passed = self._open.pop()
        if context is not None:
            self.passes(self.price(thing, phase, context.batch_size) * (share - passed))
        if self._open and self._open[-1][0] is thing:  # a pass within another pass of the same layer accounts for all of it
            self._open[-1][1] = 1.0

    def worked(self, thing, phase, context, share):
        self.passes(self.price(thing, phase, context.batch_size) * share)
        self._open[-1][1] += share

    def parameters_changed(self, where):
        workload = self._workload(self.batch_size)
        update = self._seconds(work for work in workload.works if work.name == "update")
        self.passes(update / max(1, self.net.size) * size(where))

    def passes(self, seconds):
        """Advance the clock. seconds: the computing time of a rank that is no straggler."""
        self.time += seconds * (self.slow if self.net.step >= self.first else 1.0)

    def price(self, thing, phase, batch_size):
        """Seconds of a pass of a layer or a loss. batch_size: of the global minibatch."""
        workload = self._workload(batch_size)
        if thing.name == "loss":
            return self._seconds(work for work in workload.works if work.name == "loss") if phase == "backward" else 0.0
        seconds = lambda name: self._seconds(work for work in workload.works_of[thing] if work.phase == name)  # noqa: E731
        if phase == "backward":
            return seconds("gradients") + seconds("backward")
        return seconds("backward" if phase == "input_gradient" else phase)

    def _seconds(self, works):
        return sum(work.seconds(self.machine, self.net.grid.size, self.net.dtype.itemsize) for work in works)

    def _workload(self, batch_size):
        """The Workload of this rank for a minibatch of this global size."""
        self.batch_size = batch_size
        if batch_size not in self.workloads:
            grid, net = self.net.grid, self.net
            workload = Workload(local_shape(net.input, batch_size, grid), batch_size, net.dtype.itemsize)
            workload.step(net.layers, grid)
            self.workloads[batch_size] = workload
        return self.workloads[batch_size]

    def relocated(self, relocation):
        self.workloads.clear()

    # ----- communicating

    def blocked(self, group, kind, sent):
        self.time = self._after(group, kind, sent, self.time)

    def completed(self, transfer):
        begun = max(transfer.started, self.link)
        self.link = self._after(transfer.group, transfer.kind, transfer.bytes_sent, begun)
        self.time = max(self.time, self.link)
        return self.link

    def _after(self, group, kind, sent, begun):
        """The time at which a collective ends, the same on all its ranks. Collective over the group.

        begun: when this rank arrived at it. sent: bytes that this rank sends.
        """
        latest, whole = np.array([begun, sent], np.float64), np.array([sent], np.float64)
        group.comm.Allreduce(MPI.IN_PLACE, latest, MPI.MAX)
        begun, sent = latest.tolist()
        if COLLECTIVES[kind].through_first:  # one rank sends or receives what all of them do
            group.comm.Allreduce(MPI.IN_PLACE, whole, MPI.SUM)
            sent = float(whole[0])
        return begun + self.machine.collective_seconds(kind, self._ranks(group), self.net.grid.size, sent)

    def _ranks(self, group):
        """The description of a group, with its ranks on nodes as the machine file says."""
        if group not in self.groups:
            nodes = Counter(rank // self.machine.node["ranks"] for rank in group.ranks)
            self.groups[group] = GroupDescription(group.size, group.rank, min(nodes.values()))  # the same on all of its ranks
        return self.groups[group]
