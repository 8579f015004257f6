"""Changing shares while training: what is proposed, what is adopted, and that the network trained is the serial one.

How long layers have taken is made up, so that every decision repeats.
"""

from functools import partial
from types import SimpleNamespace
from unittest import mock

import numpy as np

from gridgrad.nn import LOSSES, SGD
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.choose.rebalance import GAIN, LayerTimes, Rebalancer
from gridgrad.parallel.choose.shares import predicted_shares
from gridgrad.parallel.training.steps import train_step
from tests.mpi import mpi
from tests.parallel.choose.test_shares import MACHINE, images
from tests.parallel.equality import assert_same, block, serial

STEPS, INTERVAL, BATCH = 12, 3, 17
momentum = partial(SGD, lr=0.01, momentum=0.9)
LOSS = LOSSES["cross-entropy"]()


def batches():
    random = np.random.default_rng(3)
    return [(random.standard_normal((BATCH, 28, 28, 3)), random.integers(0, 10, BATCH)) for _ in range(STEPS)]


def run(grid, slow, first):
    """(losses and state, the log of the Rebalancer) of training where ranks become slower by `slow` after the step `first`."""
    net = parallelize(images(np.float64), grid, "out", reduction="plain")
    net.grid.tally.clock = SimpleNamespace(now=lambda: 0.0)  # for which a move takes no time
    own, losses = momentum(net), []
    balance = predicted_shares(images(np.float64), grid.sizes, "out", BATCH, MACHINE, [1.0] * grid.size)
    rebalancer = Rebalancer(net, images(np.float64), own, balance, INTERVAL, STEPS)
    for x, y in batches():
        losses.append(train_step(net, LOSS, own, *block(net, x, y), len(x)))
        seconds = balance.computing(rebalancer.shares_held())[grid.rank] * (slow[grid.rank] if net.step > first else 1.0)
        with mock.patch.object(LayerTimes, "seconds", [seconds]):
            rebalancer.after_step()
    return (losses, net.state_dict(everywhere=True)), rebalancer.log


@mpi(2, 3)
def test_the_network_is_the_serial_one_and_slow_ranks_get_less(comm):
    expected = serial(images(np.float64), momentum, "cross-entropy", batches())
    slow = [1.0] * (comm.size - 1) + [3.0]
    for axis in ("batch", "model", "height"):
        with ProcessGrid(comm, **{axis: comm.size}) as grid:
            found, log = run(grid, slow, 4)
        assert_same(found, expected, 1e-10, axis)
        assert [entry["step"] for entry in log] == [3, 6, 9]
        assert not log[0]["adopted"], "before any rank is slow even shares of many things are good enough"
        assert any(entry["adopted"] for entry in log[1:]), log
        assert np.allclose([entry["slowness"] for entry in log[:2]], [[1.0] * comm.size, slow])
        for shares in (shares for shares in log[-1]["shares"].values() if sum(shares) > 3 * comm.size):
            assert shares[-1] < max(shares[:-1])
        for entry in log:
            assert entry["adopted"] == (entry["seconds"] > GAIN * entry["proposed_seconds"] and entry["saved"] > entry["move"])
