"""Shares by the three rules: predicted for ranks of any speed, and measured on real ranks."""

import numpy as np
import pytest

from gridgrad.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Residual, Sequential, Sigmoid, TiedAutoencoder, measured
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.choose import shares
from gridgrad.parallel.choose.shares import RULES, measured_shares, predicted_shares
from gridgrad.parallel.grid.process_grid import GroupDescription
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.clock import Clock
from tests.mpi import mpi
from tests.parallel.equality import grids

OUT = PlacementSpec(plan="out")
MACHINE = machine.read("cori-haswell")
AXES = ("batch", "height", "model")


def images(dtype=np.float32):
    branch = Residual([Conv2d(22, 22, 3, padding=1)])
    layers = [Conv2d(3, 22, 5), ReLU(), MaxPool2d(2), branch, Conv2d(22, 40, 3), ReLU(), Flatten(), Linear(40 * 10 * 10, 30)]
    return Sequential([*layers, ReLU(), Linear(30, 10)], dtype=dtype, input_shape=(28, 28, 3))


def predicted(sizes, speeds, plan="out", batch_size=64, net=None):
    sizes = {axis: sizes.get(axis, 1) for axis in AXES}
    return predicted_shares(net or images(), sizes, plan, batch_size, MACHINE, speeds)


@pytest.mark.parametrize("plan", ["out", "fewest-bytes", "in", "replicate", "redundant", "laugier", "marques"])
@pytest.mark.parametrize("speeds", [[1], [3, 2, 1.5, 1], pytest.param([1, 1, 1, 1, 1, 0.01, 1, 1], marks=pytest.mark.long)])
def test_functions_are_never_slower_than_the_other_rules(plan, speeds):
    for sizes in grids(len(speeds), AXES):
        if plan == "marques" and sizes["height"] > 1:
            continue
        found = predicted(sizes, speeds, plan)
        for one in found.chosen:
            assert sum(one.even) == sum(one.constant) == sum(one.function) == one.total
            assert one.slowest(one.function) <= min(one.slowest(one.even), one.slowest(one.constant))
        several, outputs = {axis for axis, ranks in sizes.items() if ranks > 1}, {"0": 22, "4": 40, "7": 30, "9": 10}
        for rule in RULES:
            shares, owners = found.placement(rule)
            assert set(shares) <= set(found.speeds) == several
            assert all(len(weights) == sizes[axis] for axis, weights in shares.items())
            for name, partition in owners.items():
                assert (partition.length, partition.ranks) == (outputs[name], sizes["model"]) and partition.is_exact_cover


def test_hidden_units_of_an_autoencoder_and_kernels_of_a_master_are_shared():
    found = predicted({"model": 2}, [3, 1], "fewest-bytes", net=Sequential([TiedAutoencoder(784, 400), Sigmoid()]))
    assert {name: sum(partition.sizes) for name, partition in found.placement()[1].items()} == {"0": 400}
    assert found.chosen[0].function == pytest.approx([300, 100], abs=10)
    found = predicted({"model": 3}, [1, 1, 1], "marques")
    assert list(found.placement()[1]) == ["0", "4"], (
        "the Linear layers, and the convolution in a branch, have no shares of their own"
    )
    for one in found.chosen:
        assert one.function[0] > one.function[1], "what the master computes itself is not sent"


def test_what_a_share_costs_counts_the_layer_behind_and_what_a_master_hands_out(monkeypatch):
    of_weights = lambda *_: lambda block, shape, is_first: float(np.prod(block.parameters[0].block_shape))  # noqa: E731
    monkeypatch.setattr(shares, "predicted_block", of_weights)
    found = predicted({"model": 2}, [1, 1], "out,in", net=Sequential([Linear(8, 100), ReLU(), Linear(100, 16)]))
    assert found.chosen[0].layers == ("0", "2") and found.chosen[0].computing[0, 40] == 8 * 40 + 40 * 16
    one = predicted({"model": 3}, [1, 1, 1], "marques").chosen[0]
    elements = 64 * (28 * 28 * 3 + 7 * 24 * 24) + 7 * 5 * 5 * 3  # samples, outputs of 7 kernels, and those
    handed = MACHINE.collective_seconds("hand out", GroupDescription(3, 1, 3), 3, 4 * elements)
    assert one.sending[1, 7] == pytest.approx(2 * handed)


def test_constant_speeds_are_those_of_marques():
    """Section 4.1.2: performance values [3, 2, 1.5, 1]."""
    found = predicted({"model": 4}, [3, 2, 1.5, 1], net=Sequential([Linear(4096, 3000), ReLU(), Linear(3000, 10)]))
    assert found.speeds["model"] == pytest.approx((3, 2, 1.5, 1), rel=0.05)
    assert found.chosen[0].constant == [1200, 800, 600, 400]
    assert found.chosen[0].function == pytest.approx([1200, 800, 600, 400], abs=20)  # less to send for those with less
    assert found.placement("constant")[1]["0"].sizes == [1200, 800, 600, 400]


def test_a_rank_that_is_too_slow_is_left_out_with_the_reason():
    found = predicted({"batch": 4}, [1, 1, 0.001, 1])
    assert found.chosen[0].function[2] == 0 and sum(found.chosen[0].function) == 64
    (line,) = [line for line in found.lines() if "gets no" in line]
    assert line.startswith("rank 2 of batch gets no samples: it takes ") and "even for its fastest share" in line


def stepping(net, machine, ranks, speed):
    """A rank whose kernels compute outputs by the sixteen, of which the last ones may be thrown away."""
    return lambda block, shape, is_first: -(-block.parameters[0].block_shape[-1] // 16) * 1e-3 / speed


def test_functions_find_the_steps_of_kernels_that_constant_speeds_miss(monkeypatch):
    monkeypatch.setattr(shares, "predicted_block", stepping)
    found = predicted({"model": 2}, [2, 1], net=Sequential([Linear(8, 100), ReLU(), Linear(100, 16)]))
    first = found.chosen[0]
    assert first.constant == [67, 33]  # 5 and 3 sixteens: 2.5 and 3 ms
    assert -(-first.function[0] // 16) == 5 and first.function[1] <= 32
    assert first.slowest(first.constant) > 1.15 * first.slowest(first.function)


@mpi(2, 4, long=(4,))
def test_measured_shares_are_the_same_on_all_ranks_and_the_network_takes_them(comm, monkeypatch):
    monkeypatch.setattr(shares, "RUNS", 1)
    for sizes in grids(comm.size, AXES):
        with ProcessGrid(comm, **sizes) as grid:
            found = measured_shares(images(), grid, OUT, 16, MACHINE)
            everywhere = comm.allgather((found.shares, list(found.lines())))
            assert all(one == everywhere[0] for one in everywhere)
            given, owners = found.placement()
            net = parallelize(images(), grid, "out", shares=given, owners=owners)
            assert all(np.isfinite(one.computing).all() and (one.computing >= 0).all() for one in found.chosen)
            assert sum(p.size for leaf in net.leaves() for p in leaf.parameters) == net.size
        with ProcessGrid(comm, **sizes) as grid:  # without images, and with samples that can not be shared evenly
            found = measured_shares(Sequential([Linear(9, 7), ReLU(), Linear(7, 3)]), grid, OUT, 5, MACHINE)
            shared = {one.axis: sum(one.function) for one in found.chosen if one.axis != "model"}
            assert shared == {axis: 5 for axis, ranks in sizes.items() if ranks > 1 and axis != "model"}
    with ProcessGrid(comm, batch=comm.size) as grid:
        net = parallelize(images(), grid, shares="auto", batch_size=16, machine=MACHINE)
        assert sum(net.splits["batch"].weights) == 16


def test_one_slow_rank_of_two_axes_is_not_corrected_twice():
    """Rank 3 of batch=2,model=2 is a third as fast: what one axis gives it less, the other need not."""
    net = Sequential([Linear(2048, 2048), ReLU(), Linear(2048, 2048), ReLU(), Linear(2048, 2048)])
    found = predicted({"batch": 2, "model": 2}, [1, 1, 1, 1 / 3], net=net)
    even = {one.name: one.even for one in found.chosen}
    assert found.seconds(even) > 1.7 * found.seconds(found.shares)
    assert found.chosen[0].function[0] > 1400 and found.chosen[-1].function == pytest.approx([32, 32], abs=2)
    equal = predicted({"batch": 2, "model": 2}, [1, 1, 1, 1], net=net)
    slowed = equal.slowed(np.array([1, 1, 1, 3.0]))
    assert slowed.seconds(slowed.shares) == pytest.approx(found.seconds(found.shares), rel=0.1)
    assert slowed.computing(slowed.shares) == pytest.approx(found.computing(found.shares), rel=0.1)


def test_shares_that_do_not_fit_the_memory_are_impossible():
    net = Sequential([Linear(1000, 400), ReLU(), Linear(400, 10)])
    seconds = shares.block_seconds(net, (1000,), shares.measured_block(net, memory=4 * 2 * 1000 * 250))
    assert seconds(net.layers[0], 1000, 300, 1, 1.0) == np.inf and seconds(net.layers[0], 1000, 100, 1, 1.0) < np.inf
    known = {0: np.zeros((2, 1)), 4: np.array([[1.0], [np.inf]]), 8: np.array([[2.0], [np.inf]]), 2: np.array([[0.5], [3.0]])}
    assert shares.interpolated(known, 0, 8)[1].tolist() == [0, 1.5, 3.0] + [np.inf] * 6
    assert shares.interpolated(known, 0, 8)[0].tolist() == [i / 4 for i in range(9)]


def test_once_the_budget_is_spent_blocks_are_run_as_seldom_as_possible(monkeypatch):
    clock, runs = Clock(), []
    for module in shares, measured:
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(shares, "synchronise", lambda: runs.append(clock.sleep(0.01)))
    net = Sequential([Linear(9, 7)])
    seconds = shares.block_seconds(net, (9,), shares.measured_block(net))
    assert seconds(net.layers[0], 9, 7, 4, 1.0) == pytest.approx(0.01) and len(runs) == 1 + shares.RUNS
    clock.sleep(shares.BUDGET)
    assert seconds(net.layers[0], 9, 5, 4, 1.0) == pytest.approx(0.01) and len(runs) == 1 + shares.RUNS + 2
