"""Random numbers and initial weights are functions of the seed and of global indices, never of the block that is drawn."""

import numpy as np
import pytest

from gridgrad.nn import Linear, Parameter, Sequential
from gridgrad.nn.device import to_host, xp
from gridgrad.nn.kernels.window import take
from gridgrad.nn.layer import Block
from gridgrad.nn.random import permutation, random_block


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("width", [1, 7, 16, 33])
def test_a_block_is_what_one_process_would_have_drawn(dtype, width):
    whole = random_block(3, "name", width, slice(0, 50), slice(0, width), dtype, step=4)
    for rows in (slice(0, 0), slice(0, 7), slice(13, 50), slice(49, 50), np.array([40, 2, 2])):
        for columns in (slice(0, 0), slice(0, 1), slice(width // 2, width)):
            assert np.array_equal(random_block(3, "name", width, rows, columns, dtype, step=4), whole[rows, columns])


def test_seed_name_and_step_each_give_another_stream():
    draws = {
        random_block(seed, name, 8, slice(0, 4), slice(0, 8), np.uint32, step).tobytes()
        for seed, name, step in [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1), (2**63, "a", 0), (2**63 + 1, "a", 0)]
    }
    assert len(draws) == 6


def test_orders_differ_by_epoch_and_repeat():
    assert sorted(permutation(0, 0, 31)) == list(range(31))
    assert np.array_equal(permutation(0, 5, 31), permutation(0, 5, 31))
    assert not np.array_equal(permutation(0, 0, 31), permutation(0, 1, 31))


def test_initial_weights_are_uniform_and_follow_the_seed_and_not_the_type():
    first, double, other = (
        to_host(Sequential([Linear(400, 300)], seed, dtype).params)
        for seed, dtype in ((1, np.float32), (1, np.float64), (2, np.float32))
    )
    assert np.allclose(double, first, rtol=1e-7) and not np.array_equal(other, first)
    assert abs(first[:-300]).max() <= 1 / 20 and first[:-300].std() == pytest.approx(1 / 20 / np.sqrt(3), rel=0.02)


@pytest.mark.parametrize("index", [(slice(1, 3), slice(0, 5), slice(2, 4)), ([3, 0, 1], [4, 2], [0, 3]), ([2], [1, 3])])
def test_a_block_of_initial_weights_is_that_of_the_whole(index):
    index = tuple(part if isinstance(part, slice) else np.array(part) for part in index)
    whole = Parameter("weight", (4, 5, 6)[: len(index)], 0.5)
    block = whole.placed(Block(index))
    for parameter in whole, block:
        parameter.value = xp.empty(parameter.block_shape, np.float64)
        parameter.initialise(3, "0.weight")
    assert np.array_equal(to_host(block.value), take(to_host(whole.value), index))
