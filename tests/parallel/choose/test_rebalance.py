"""Changing shares while training: what is proposed, what is adopted, and that the network trained is the serial one.

Time is virtual: it passes as the cost model says, so that every decision repeats.
"""

import numpy as np

from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.observer import Observer
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.choose.rebalance import GAIN, LayerTimes, Rebalancer
from gridgrad.parallel.choose.shares import predicted_shares
from gridgrad.parallel.prediction.cost import local_shape
from gridgrad.parallel.prediction.workload import Workload
from gridgrad.parallel.training.steps import train_step
from tests.mpi import mpi
from tests.parallel.choose.test_shares import MACHINE, images
from tests.parallel.equality import assert_same, block, serial

STEPS, INTERVAL, BATCH = 12, 3, 17
LOSS = LOSSES["cross-entropy"]()


class VirtualClock(Observer):
    """Takes the place of the clock of a network's tally: passes of layers take time, and ranks wait for each other.

    slow: from training step `first` on, this rank takes so many times as long as the Machine says.
    """

    def __init__(self, net, slow=1.0, first=0):
        self.net, self.slow, self.first = net, slow, first
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
        return sum(work.seconds(MACHINE, grid.size, itemsize) for work in works if work.group is None)

    def relocated(self, relocation):
        self._workloads.clear()


def network():
    return images(np.float64)


def batches():
    random = np.random.default_rng(3)
    return [(random.standard_normal((BATCH, 28, 28, 3)), random.integers(0, 10, BATCH)) for _ in range(STEPS)]


def optimizer(net):
    return SGD(net, lr=0.01, momentum=0.9)


def run(grid, plan, slow, first, steps=STEPS, **options):
    """(losses and state, the log of the Rebalancer) of training where the ranks become slower by `slow` at the step `first`."""
    net = parallelize(network(), grid, plan, reduction="plain", **options)
    own, losses = optimizer(net), []
    balance = predicted_shares(network(), grid.sizes, plan, BATCH, MACHINE, [1.0] * grid.size)
    VirtualClock(net, slow[grid.rank], first)
    rebalancer = Rebalancer(net, network(), own, balance, INTERVAL, steps)
    for x, y in batches()[:steps]:
        losses.append(train_step(net, LOSS, own, *block(net, x, y), len(x)))
        rebalancer.after_step()
    return (losses, net.state_dict(everywhere=True)), rebalancer.log


@mpi(2, 3)
def test_the_network_is_the_serial_one_and_slow_ranks_get_less(comm):
    expected = serial(network(), optimizer, "cross-entropy", batches())
    slow = [3.0 if rank == comm.size - 1 else 1.0 for rank in range(comm.size)]
    for axis in ("batch", "model", "height"):
        with ProcessGrid(comm, **{axis: comm.size}) as grid:
            found, log = run(grid, "out", slow, 4)
        assert_same(found, expected, 1e-10, axis)
        assert [entry["step"] for entry in log] == [3, 6, 9]
        assert not log[0]["adopted"], "before any rank is slow even shares of many things are good enough"
        assert any(entry["adopted"] for entry in log[1:]), log
        ratio = np.divide(log[1]["slowness"], log[0]["slowness"])
        assert np.allclose(ratio, [1.0] * (comm.size - 1) + [3.0], rtol=0.02)
        for shares in (shares for shares in log[-1]["shares"].values() if sum(shares) > 3 * comm.size):
            assert shares[-1] < max(shares[:-1])
        for entry in log:
            assert entry["adopted"] == (entry["seconds"] > GAIN * entry["proposed_seconds"] and entry["saved"] > entry["move"])
            assert (entry["took"] is None) != entry["adopted"] and entry["reason"]


@mpi(2)
def test_what_does_not_count_and_what_comes_too_late(comm):
    """Equal ranks look equally slow; small minibatches and the first step do not count; a late move is not made."""
    with ProcessGrid(comm, model=2) as grid:
        _, log = run(grid, "out", [1.0] * 2, 0)
    for entry in log:
        assert np.allclose(entry["slowness"], entry["slowness"][0], rtol=0.1), entry
    with ProcessGrid(comm, batch=2) as grid:
        _, (entry,) = run(grid, "out", [1.0, 2.0], 0, steps=INTERVAL + 1)
        assert not entry["adopted"] and entry["reason"] == "moving would take longer than it saves"
        assert entry["seconds"] > 1.3 * entry["proposed_seconds"]
        net = parallelize(network(), grid, reduction="plain")
        VirtualClock(net)
        own, times = optimizer(net), LayerTimes(net, {"0", "4"})
        net.observe(times)
        for number, (x, y) in enumerate(batches()[:5]):
            few = len(x) if number != 3 else 1
            train_step(net, LOSS, own, *block(net, x[:few], y[:few]), few)
        assert len(times.seconds) == 3 and max(times.seconds) < 1.01 * min(times.seconds)
        times.begin_anew()
        assert times.seconds == []
