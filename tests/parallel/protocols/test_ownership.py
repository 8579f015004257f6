"""Who serves which parameter: small cases by hand, none, and more servers than parameters."""

import pytest

from gridgrad.parallel.protocols.ownership import OWNERSHIPS, greedy, imbalance, loads, round_robin, single

SIZES = 10, 1, 20, 2, 30, 3


def test_small_cases():
    assert single(SIZES, 3) == (0, 0, 0, 0, 0, 0)
    assert round_robin(SIZES, 3) == (0, 1, 2, 0, 1, 2)
    assert round_robin(SIZES, 2) == (0, 1, 0, 1, 0, 1)  # all weights at the first, all biases at the second
    assert greedy(SIZES, 2) == (0, 1, 1, 0, 0, 1)  # loads before each: 0 0, 10 0, 10 1, 10 21, 12 21, 42 21
    assert greedy([5, 5, 5, 5], 2) == (0, 1, 0, 1)


def test_loads_and_imbalance():
    assert loads(SIZES, greedy(SIZES, 2), 2) == [42, 24]
    assert imbalance(SIZES, greedy(SIZES, 2), 2) == pytest.approx(42 / 33)
    assert imbalance(SIZES, single(SIZES, 4), 4) == 4
    assert imbalance([3, 3, 3], round_robin([3, 3, 3], 3), 3) == 1


@pytest.mark.parametrize("method", OWNERSHIPS)
def test_no_parameters_and_more_servers_than_parameters(method):
    choose = OWNERSHIPS[method]
    assert choose([], 3) == () and imbalance([], (), 3) == 1
    assert choose([0, 0], 1) == (0, 0) and imbalance([0, 0], (0, 0), 1) == 1
    owners = choose([4, 4], 5)
    assert set(owners) <= set(range(5)) and imbalance([4, 4], owners, 5) == (5 if method == "single" else 2.5)


def test_greedy_is_within_one_parameter_of_the_mean():
    for servers in range(1, 8):
        sizes = [(7 * index) % 23 for index in range(40)]
        assert max(loads(sizes, greedy(sizes, servers), servers)) <= sum(sizes) / servers + max(sizes)
