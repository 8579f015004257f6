"""Shares of unequal ranks: exact, against an exhaustive search; predicted by three rules; and measured on real ranks."""

from itertools import product

import numpy as np
import pytest

from gridgrad.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Residual, Sequential
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.choose import shares
from gridgrad.parallel.choose.shares import fastest_shares, measured_shares, predicted_shares
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.mpi import mpi
from tests.parallel.equality import grids

MACHINE, AXES = machine.read("cori-haswell"), ("batch", "height", "model")

# ----- exact


def by_trying_all(seconds):
    """The shares whose slowest rank is fastest, and of those the ones with the least sum of squares; None if none fits."""
    total, found = len(seconds[0]) - 1, []
    for some in product(range(total + 1), repeat=len(seconds)):
        if sum(some) == total:
            times = [of[share] for of, share in zip(seconds, some, strict=True)]
            found.append((max(times), sum(np.square(times)), some))
    slowest, _, best = min(found)
    return None if slowest == np.inf else list(best)


def random_problem(random):
    """Times of a few ranks: with steps, not monotone, with a price of taking part, with shares that are impossible."""
    ranks, total = random.integers(1, 5), random.integers(0, 9)
    some, step = np.arange(total + 1), random.choice([1, 2, 4])
    seconds = random.uniform(0.1, 3.0, (ranks, 1)) * -(-some // step) * step + random.uniform(0, 0.3, (ranks, total + 1))
    seconds += np.where(some, random.uniform(0, 6, (ranks, 1)) * (random.random((ranks, 1)) < 0.4), 0)
    seconds[random.random(seconds.shape) < random.choice([0, 0.1, 0.5])] = np.inf
    return seconds


def test_they_are_those_of_an_exhaustive_search():
    random = np.random.default_rng(5)
    for _ in range(200):
        seconds = random_problem(random)
        expected = by_trying_all(seconds)
        if expected is None:
            with pytest.raises(ValueError, match="no shares are possible"):
                fastest_shares(seconds)
        else:
            assert fastest_shares(seconds) == expected


def test_the_example_of_marques_and_a_rank_that_does_not_pay():
    """Section 4.1.2: four devices take 10, 15, 20 and 30 seconds for the same work, so that their speeds are 3, 2, 1.5, 1."""
    assert fastest_shares([np.arange(76) * whole / 75 for whole in (10, 15, 20, 30)]) == [30, 20, 15, 10]
    some = np.arange(101.0)
    slow = np.where(some > 0, 30 + some, 0.0)  # before its first share has been sent, the fast ones are done
    assert fastest_shares([0.5 * some, slow, 0.5 * some]) == [50, 0, 50]


# ----- predicted


def images(dtype=np.float32):
    branch = Residual([Conv2d(22, 22, 3, padding=1)])
    layers = [Conv2d(3, 22, 5), ReLU(), MaxPool2d(2), branch, Conv2d(22, 40, 3), ReLU(), Flatten(), Linear(40 * 10 * 10, 30)]
    return Sequential([*layers, ReLU(), Linear(30, 10)], dtype=dtype, input_shape=(28, 28, 3))


def predicted(sizes, speeds, plan="out", net=None, machine=MACHINE):
    sizes = {axis: sizes.get(axis, 1) for axis in AXES}
    return predicted_shares(net or images(), sizes, plan, 64, machine, speeds)


@pytest.mark.parametrize("plan", ["out", "in", "laugier"])
def test_functions_are_never_slower_than_the_other_rules(plan):
    for sizes in grids(4, AXES):
        found = predicted(sizes, [3, 2, 1.5, 1], plan)
        for one in found.chosen:
            assert sum(one.even) == sum(one.constant) == sum(one.function) == one.total
            if not found.left[one.axis]:  # else a whole step is faster
                assert one.slowest(one.function) <= min(one.slowest(one.even), one.slowest(one.constant))
        outputs = {"0": 22, "4": 40, "7": 30, "9": 10}
        given, owners = found.placement()
        assert all(len(weights) == sizes[axis] > 1 for axis, weights in given.items())
        for name, partition in owners.items():
            assert (partition.length, partition.ranks) == (outputs[name], sizes["model"]) and partition.is_exact_cover


def test_one_slow_rank_of_two_axes_is_not_corrected_twice():
    """Rank 3 of batch=2,model=2 is a third as fast: what one axis gives it less, the other need not."""
    net = Sequential([Linear(2048, 2048), ReLU(), Linear(2048, 2048)])
    found = predicted({"batch": 2, "model": 2}, [1, 1, 1, 1 / 3], net=net)
    assert found.seconds({one.name: one.even for one in found.chosen}) > 1.6 * found.seconds(found.shares)
    assert found.chosen[0].function[0] > 1400 and found.chosen[-1].function == pytest.approx([32, 32], abs=2)


@pytest.mark.parametrize(("axis", "plan"), [("batch", "out"), ("model", "fewest-bytes"), ("model", "out")])
def test_slow_ranks_behind_a_slow_link_get_nothing_and_equal_ones_behind_a_free_link_get_some(axis, plan):
    """Slow ranks have no part of layers without owners either. Layer by layer, plan "out" would give them some."""
    net = Sequential([Linear(4, 1024), ReLU(), Linear(1024, 1024), ReLU(), Linear(1024, 1)])
    slow, free = (machine.read(f"flops=60,{link}") for link in ("latency=100,bandwidth=10", "latency=1e-6,bandwidth=1e6"))
    found = predicted({axis: 4}, [1, 100, 1, 1], plan, net, slow)
    shares, owners = found.placement()
    for sizes in [shares[axis], *(partition.sizes for partition in owners.values())]:
        assert np.flatnonzero(sizes).tolist() == [1]
    chosen, fastest_alone = found.steps[axis][len(found.left[axis])], found.steps[axis][3]
    assert found.alone < chosen <= fastest_alone and found.left[axis] == ([0, 2, 3] if (axis, plan) == ("model", "out") else [])
    equal = predicted({axis: 4}, [1] * 4, plan, net, free)
    assert all(all(one.function) for one in equal.chosen[:2]) and not equal.left[axis] and equal.steps[axis][0] < equal.alone


# ----- measured


@mpi(2)
def test_measured_shares_are_the_same_on_all_ranks_and_the_network_takes_them(comm, monkeypatch):
    monkeypatch.setattr(shares, "RUNS", 1)
    for sizes in grids(comm.size, AXES):
        with ProcessGrid(comm, **sizes) as grid:
            found = measured_shares(images(), grid, PlacementSpec(plan="out"), 15, MACHINE)  # not to be shared evenly
            everywhere = comm.allgather((found.shares, list(found.lines())))
            assert all(one == everywhere[0] for one in everywhere)
            given, owners = found.placement()
            parallelize(images(), grid, "out", shares=given, owners=owners)
    with ProcessGrid(comm, batch=comm.size) as grid:
        net = parallelize(images(), grid, shares="auto", batch_size=16, machine=MACHINE)
        assert sum(net.splits["batch"].weights) == 16
