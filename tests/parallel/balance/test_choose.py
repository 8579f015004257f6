"""Shares by the three rules: predicted for ranks of any speed, and measured on real ranks."""

import numpy as np
import pytest

from nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Residual, Sequential, Sigmoid, TiedAutoencoder
from parallel import ProcessGrid, parallelize
from parallel.balance import choose, layer_seconds
from parallel.balance.choose import measured_shares, predicted_shares
from parallel.performance import machine
from tests.mpi import mpi
from tests.parallel.equality import grids

MACHINE = machine.read("cori-haswell")
AXES = ("batch", "height", "model")


def images(dtype=np.float32):
    branch = Residual([Conv2d(22, 22, 3, padding=1)])
    layers = [Conv2d(3, 22, 5), ReLU(), MaxPool2d(2), branch, Conv2d(22, 40, 3), ReLU(), Flatten(), Linear(40 * 10 * 10, 30)]
    return Sequential([*layers, ReLU(), Linear(30, 10)], dtype=dtype, input_shape=(28, 28, 3))


def predicted(sizes, speeds, plan="out", batch_size=64, net=None):
    sizes = {axis: sizes.get(axis, 1) for axis in AXES}
    return predicted_shares(net or images(), sizes, plan, batch_size, MACHINE, speeds)


@pytest.mark.parametrize("plan", ["out", "fewest-bytes", "in", "replicate", "laugier", "marques"])
@pytest.mark.parametrize("speeds", [[1], [3, 2, 1.5, 1], [1, 1, 1, 1, 1, 0.01, 1, 1]])
def test_functions_are_never_slower_than_the_other_rules(plan, speeds):
    for sizes in grids(len(speeds), AXES):
        if plan == "marques" and sizes["height"] > 1:
            continue
        found = predicted(sizes, speeds, plan)
        for one in found.chosen:
            assert sum(one.even) == sum(one.constant) == sum(one.function) == one.total
            assert one.slowest(one.function) <= min(one.slowest(one.even), one.slowest(one.constant))
        several = {axis for axis, ranks in sizes.items() if ranks > 1}
        assert set(found.speeds) == set(found.shares) == several
        assert all(len(shares) == sizes[axis] for axis, shares in found.shares.items())
        outputs = {"0": 22, "4": 40, "7": 30, "9": 10}
        for name, partition in found.owners.items():
            assert (partition.length, partition.ranks) == (outputs[name], sizes["model"]) and partition.is_exact_cover


def test_hidden_units_of_an_autoencoder_and_kernels_of_a_master_are_shared():
    found = predicted({"model": 2}, [3, 1], "fewest-bytes", net=Sequential([TiedAutoencoder(784, 400), Sigmoid()]))
    assert {name: sum(partition.sizes) for name, partition in found.owners.items()} == {"0": 400}
    assert found.chosen[0].function == pytest.approx([300, 100], abs=10)
    found = predicted({"model": 3}, [1, 1, 1], "marques")
    assert list(found.owners) == ["0", "4"], "the Linear layers, and the convolution in a branch, have no shares of their own"
    for one in found.chosen:
        assert one.function[0] > one.function[1], "what the master computes itself is not sent"


def test_constant_speeds_are_those_of_marques():
    """Section 4.1.2: performance values [3, 2, 1.5, 1]."""
    found = predicted({"model": 4}, [3, 2, 1.5, 1], net=Sequential([Linear(4096, 3000), ReLU(), Linear(3000, 10)]))
    assert found.speeds["model"] == pytest.approx((3, 2, 1.5, 1), rel=0.05)
    assert found.chosen[0].constant == [1200, 800, 600, 400]
    assert found.chosen[0].function == pytest.approx([1200, 800, 600, 400], abs=20)  # less to send for those with less
    assert (
        list(found.lines())[0].startswith("speeds along model: 3, 2, 1.5, 1") or "speeds along model" in list(found.lines())[0]
    )


def test_a_rank_that_is_too_slow_is_left_out_with_the_reason():
    found = predicted({"batch": 4}, [1, 1, 0.001, 1])
    assert found.chosen[0].function[2] == 0 and sum(found.chosen[0].function) == 64
    (line,) = [line for line in found.lines() if "left out" in line]
    assert line.startswith("rank 2 of the axis batch is left out: it takes ") and "even for its fastest share" in line


class Stepping(layer_seconds.PredictedSeconds):
    """A rank whose kernels compute outputs by the sixteen, of which the last ones may be thrown away."""

    def of_block(self, block, shape, is_first):
        return -(-block.parameters[0].block_shape[-1] // 16) * 1e-3 / self.speed


def test_functions_find_the_steps_of_kernels_that_constant_speeds_miss(monkeypatch):
    monkeypatch.setattr(choose, "PredictedSeconds", Stepping)
    found = predicted({"model": 2}, [2, 1], net=Sequential([Linear(8, 100), ReLU(), Linear(100, 16)]))
    first = found.chosen[0]
    assert first.constant == [67, 33]  # 5 and 3 sixteens: 2.5 and 3 ms
    assert -(-first.function[0] // 16) == 5 and first.function[1] <= 32
    assert first.slowest(first.constant) > 1.15 * first.slowest(first.function)


@mpi(2, 4)
def test_measured_shares_are_the_same_on_all_ranks_and_the_network_takes_them(comm, monkeypatch):
    monkeypatch.setattr(layer_seconds, "RUNS", 1)
    for sizes in grids(comm.size, AXES):
        with ProcessGrid(comm, **sizes) as grid:
            found = measured_shares(images(), grid, "out", 16, MACHINE)
            told = comm.allgather((found.shares, {name: p.sizes for name, p in found.owners.items()}, list(found.lines())))
            assert all(one == told[0] for one in told)
            net = parallelize(images(), grid, "out", shares=found.shares, owners=found.owners)
            assert all(np.isfinite(one.computing).all() and (one.computing >= 0).all() for one in found.chosen)
            assert sum(p.size for leaf in net.leaves() for p in leaf.parameters) == net.size
    with ProcessGrid(comm, batch=comm.size) as grid:
        net = parallelize(images(), grid, shares="auto", batch_size=16, machine=MACHINE)
        assert sum(net.splits["batch"].weights) == 16
