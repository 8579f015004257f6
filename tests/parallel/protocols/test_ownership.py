"""Who serves which parameter: small cases by hand, none, and more servers than parameters."""

import numpy as np
import pytest

from gridgrad.parallel.protocols.shard import OWNERSHIPS, greedy, round_robin, single

SIZES = 10, 1, 20, 2, 30, 3


def test_small_cases():
    assert single(SIZES, 3) == (0, 0, 0, 0, 0, 0)
    assert round_robin(SIZES, 3) == (0, 1, 2, 0, 1, 2)
    assert round_robin(SIZES, 2) == (0, 1, 0, 1, 0, 1)  # all weights at the first, all biases at the second
    assert greedy(SIZES, 2) == (0, 1, 1, 0, 0, 1)  # loads before each: 0 0, 10 0, 10 1, 10 21, 12 21, 42 21
    assert greedy([5, 5, 5, 5], 2) == (0, 1, 0, 1)


@pytest.mark.parametrize("method", OWNERSHIPS)
def test_no_parameters_and_more_servers_than_parameters(method):
    choose = OWNERSHIPS[method]
    assert choose([], 3) == ()
    assert choose([0, 0], 1) == (0, 0)
    owners = choose([4, 4], 5)
    assert set(owners) <= set(range(5)) and len(set(owners)) == (1 if method == "single" else 2)


def test_greedy_is_within_one_parameter_of_the_mean():
    for servers in range(1, 8):
        sizes = [(7 * index) % 23 for index in range(40)]
        loads = np.bincount(greedy(sizes, servers), sizes)
        assert loads.max() <= sum(sizes) / servers + max(sizes)
