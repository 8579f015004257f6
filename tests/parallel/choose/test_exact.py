"""Exact shares against an exhaustive search."""

from itertools import product

import numpy as np
import pytest

from gridgrad.parallel.choose.shares import fastest_shares


def by_trying_all(seconds):
    """(least time of the slowest rank, least sum of squares of the times among those) over all shares; None if none fits."""
    total = len(seconds[0]) - 1
    found = []
    for shares in product(range(total + 1), repeat=len(seconds)):
        if sum(shares) == total:
            times = [of[share] for of, share in zip(seconds, shares, strict=True)]
            found.append((max(times), sum(np.square(times)), shares))
    slowest = min(time for time, _, _ in found)
    if slowest == np.inf:
        return None
    return min((squares, shares) for time, squares, shares in found if time == slowest)[1], slowest


def random_problem(random):
    """Times of a few ranks: with steps, not monotone, with a price of taking part, with shares that are impossible."""
    ranks, total = random.integers(1, 5), random.integers(0, 9)
    shares = np.arange(total + 1)
    seconds = random.uniform(0.1, 3.0, (ranks, 1)) * shares + random.uniform(0, 0.3, (ranks, total + 1))
    if random.random() < 0.5:  # kernels step
        step = random.integers(2, 5)
        seconds = random.uniform(0.1, 3.0, (ranks, 1)) * -(-shares // step) * step + random.uniform(0, 1e-3, seconds.shape)
    seconds += np.where(shares, random.uniform(0, 6, (ranks, 1)) * (random.random((ranks, 1)) < 0.4), 0)
    seconds[random.random(seconds.shape) < random.choice([0, 0.1, 0.5])] = np.inf
    return seconds


def test_they_are_those_of_an_exhaustive_search():
    random, impossible, with_zeros = np.random.default_rng(5), 0, 0
    for _ in range(300):
        seconds = random_problem(random)
        expected = by_trying_all(seconds)
        if expected is None:
            impossible += 1
            with pytest.raises(ValueError, match="no shares are possible"):
                fastest_shares(seconds)
            continue
        shares, slowest = expected
        found = fastest_shares(seconds)
        assert found == list(shares), f"{found} instead of {shares}"
        assert max(of[share] for of, share in zip(seconds, found, strict=True)) == slowest
        with_zeros += 0 in found
    assert impossible > 20 and with_zeros > 20


def test_equal_ranks_get_even_shares():
    assert sorted(fastest_shares([np.arange(11.0)] * 4)) == [2, 2, 3, 3]


def test_the_example_of_marques():
    """Section 4.1.2: four devices take 10, 15, 20 and 30 seconds for the same work, so that their speeds are 3, 2, 1.5, 1."""
    total = 75
    assert fastest_shares([np.arange(total + 1) * whole / total for whole in (10, 15, 20, 30)]) == [30, 20, 15, 10]


def test_a_rank_that_does_not_pay_is_left_out():
    shares = np.arange(101.0)
    slow = np.where(shares > 0, 30 + shares, 0.0)  # before its first share has been sent, the fast ones are done
    assert fastest_shares([0.5 * shares, slow, 0.5 * shares]) == [50, 0, 50]


def test_nothing_to_share_and_one_rank():
    assert fastest_shares([[0.0], [0.0]]) == [0, 0]
    assert fastest_shares([[0.0, 5.0, 1.0]]) == [2]
