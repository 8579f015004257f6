"""Time that passes as a machine file says, so that what depends on the speed of ranks repeats."""

from gridgrad.nn.observer import Observer
from gridgrad.parallel.prediction.cost import local_shape
from gridgrad.parallel.prediction.workload import Workload


class VirtualClock(Observer):
    """Takes the place of the clock of a network's tally: passes of layers take time, and ranks wait for each other.

    slow: from training step `first` on, this rank takes so many times as long as the Machine says.
    """

    def __init__(self, net, machine, slow=1.0, first=0):
        self.net, self.machine, self.slow, self.first = net, machine, slow, first
        self.time, self._open, self._workloads = 0.0, [], {}
        net.grid.tally.clock = self
        net.observe(self)

    def now(self):
        return self.time

    def begin(self, thing, phase, context):
        self._open.append([thing, False])

    def end(self, thing, phase, context):
        _, counted = self._open.pop()
        if context is not None and thing.name != "loss" and not counted:
            self.time += self._seconds(thing, phase, context.batch_size) * (self.slow if self.net.step >= self.first else 1.0)
        if self._open and self._open[-1][0] is thing:  # a pass within another one of the same layer accounts for all of it
            self._open[-1][1] = True

    def _seconds(self, thing, phase, batch_size):
        grid, itemsize = self.net.grid, self.net.dtype.itemsize
        if batch_size not in self._workloads:
            workload = Workload(local_shape(self.net.input, batch_size, grid), batch_size, itemsize)
            workload.step(self.net.layers, grid)
            self._workloads[batch_size] = workload
        phases = {"backward": ("gradients", "backward"), "input_gradient": ("backward",)}.get(phase, (phase,))
        works = [work for work in self._workloads[batch_size].works if work.layer == thing.name and work.phase in phases]
        if getattr(thing, "kind", ""):  # moves and biases that are layers of their own have the same name
            works = [work for work in works if work.name.startswith(thing.kind)]
        return sum(work.seconds(self.machine, grid.size, itemsize) for work in works if work.group is None)

    def relocated(self, relocation):
        self._workloads.clear()
