"""Changing shares while training: what is proposed, what is adopted, and that the network trained is the serial one.

Time is virtual (`virtual_clock.py`): it passes as the cost model says, so that every decision repeats.
"""

import numpy as np

from gridgrad.nn import LOSSES, SGD
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.choose.rebalance import GAIN, LayerTimes, Rebalancer
from gridgrad.parallel.choose.shares import predicted_shares
from gridgrad.parallel.training.steps import train_step
from tests.mpi import mpi
from tests.parallel.choose.test_choose import MACHINE, images
from tests.parallel.choose.virtual_clock import VirtualClock
from tests.parallel.equality import assert_same, block, on_cpus, serial

STEPS, INTERVAL, BATCH = 12, 3, 17


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
    VirtualClock(net, MACHINE, slow[grid.rank], first)
    rebalancer = Rebalancer(net, network(), own, balance, INTERVAL, steps)
    for x, y in batches()[:steps]:
        losses.append(train_step(net, LOSSES["cross-entropy"](), own, *block(net, x, y), len(x)))
        rebalancer.after_step()
    return (losses, net.state_dict(everywhere=True)), rebalancer.log


@mpi(1, 2, 3, 4, 5, 7, 8, long=(4, 5, 7, 8))
def test_the_network_is_the_serial_one_and_slow_ranks_get_less(comm):
    expected = serial(network(), optimizer, "cross-entropy", batches())
    slow = [3.0 if rank == comm.size - 1 else 1.0 for rank in range(comm.size)]
    axes = ["batch", "model"] + ["height"] * (comm.size <= 4)  # 28 rows are too few for more ranks
    for axis in axes if comm.size > 1 else []:
        with ProcessGrid(comm, **{axis: comm.size}) as grid:
            found, log = run(grid, "out", slow, 4)
        assert_same(found, expected, 1e-10, f"{axis}={comm.size}")
        assert [entry["step"] for entry in log] == [3, 6, 9]
        assert not log[0]["adopted"] or comm.size == 8, "before any rank is slow even shares of many things are good enough"
        assert any(entry["adopted"] for entry in log[1:]), log
        ratio = np.divide(log[1]["slowness"], log[0]["slowness"])
        assert np.allclose(ratio, [1.0] * (comm.size - 1) + [3.0], rtol=0.02)
        last = log[-1]["shares"]
        for shares in (shares for shares in last.values() if sum(shares) > 3 * comm.size):
            assert shares[-1] < max(shares[:-1])
        for entry in log:
            assert entry["adopted"] == (entry["seconds"] > GAIN * entry["proposed_seconds"] and entry["saved"] > entry["move"])
            assert (entry["took"] is None) != entry["adopted"] and entry["reason"]


@mpi(4)
def test_uneven_shares_at_the_start_two_axes_and_a_rank_without_a_share(comm):
    expected = serial(network(), optimizer, "cross-entropy", batches())
    for sizes, plan, shares in [
        ({"model": 4}, "out", {"model": (3, 2, 1.5, 1)}),
        ({"model": 4}, "fewest-bytes", {"model": (3, 0, 1.5, 1)}),
        ({"batch": 2, "model": 2}, "out", {"batch": (2, 1), "model": (3, 2)}),
        ({"batch": 4}, "out", {"batch": (0, 1, 1, 1)}),
        *[({"model": 4}, "marques", {"model": (1, 1, 1, 1)})] * on_cpus(comm),
    ]:
        with ProcessGrid(comm, **sizes) as grid:
            found, log = run(grid, plan, [1.0, 1.0, 8.0, 1.0], 0, shares=shares)
        assert_same(found, expected, 1e-10, f"{sizes} {plan} {shares}")
        assert log[0]["adopted"], log


@mpi(2)
def test_a_move_that_comes_too_late_is_not_made(comm):
    with ProcessGrid(comm, batch=2) as grid:
        _, log = run(grid, "out", [1.0, 2.0], 0, steps=INTERVAL + 1)
    (entry,) = log
    assert not entry["adopted"] and entry["reason"] == "moving would take longer than it saves"
    assert entry["seconds"] > 1.3 * entry["proposed_seconds"]


@mpi(3)
def test_equal_ranks_look_equally_slow_with_every_plan(comm):
    """Also where a master computes layers alone, in branches, and where the axis shares samples."""
    plans = ["out", "fewest-bytes", "conv=out,linear=replicate", "conv=in,linear=out", *["marques"] * on_cpus(comm)]
    for plan in plans:
        with ProcessGrid(comm, model=3) as grid:
            _, log = run(grid, plan, [1.0] * 3, 0)
        for entry in log:
            assert np.allclose(entry["slowness"], entry["slowness"][0], rtol=0.1), f"{plan}: {entry}"


@mpi(2)
def test_small_minibatches_and_the_first_step_do_not_count(comm):
    with ProcessGrid(comm, batch=2) as grid:
        net = parallelize(network(), grid, reduction="plain")
        VirtualClock(net, MACHINE)
        own = optimizer(net)
        times = LayerTimes(net, {"0", "4"})
        net.observe(times)
        for number, (x, y) in enumerate(batches()[:5]):
            few = len(x) if number != 3 else 1
            train_step(net, LOSSES["cross-entropy"](), own, *block(net, x[:few], y[:few]), few)
        assert len(times.seconds) == 3 and max(times.seconds) < 1.01 * min(times.seconds)
        times.begin_anew()
        assert times.seconds == []
        balance = predicted_shares(network(), grid.sizes, "out", BATCH, MACHINE, [1.0, 1.0])
        every = Rebalancer(net, network(), own, balance, 1, 100)
        x, y = batches()[0]
        train_step(net, LOSSES["cross-entropy"](), own, *block(net, x, y), len(x))
        assert every.after_step() is None, "there is nothing to judge by yet"
