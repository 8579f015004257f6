"""A network is a sequence of layers over flat buffers; its state has PyTorch's names, and begins with the seed's numbers.

Its passes: test_layers.py; those of chunks of it, and of several micro-batches in progress: tests/random_networks.
"""

import numpy as np
import pytest

from gridgrad.nn import BatchNorm, Context, Conv2d, Flatten, Linear, Parameter, ReLU, Sequential
from gridgrad.nn.device import to_host, xp
from gridgrad.nn.kernels.window import take
from gridgrad.nn.layer import Block
from gridgrad.nn.random import permutation, random_block


def small(seed=0):
    return Sequential([Linear(5, 7), ReLU(), Linear(7, 3)], seed=seed)


def test_parameters_are_views_of_flat_buffers():
    net = small()
    assert net.params.size == net.grads.size == 5 * 7 + 7 + 7 * 3 + 3
    net.params[:] = 2
    assert all((p.value == 2).all() for _, p in net.parameters)
    assert not xp.is_cpu or net.params.ctypes.data % 64 == 0
    assert Sequential([ReLU()]).params.size == 0


def test_a_state_has_pytorchs_names_and_shapes():
    net = Sequential([Conv2d(2, 4, (3, 5)), BatchNorm(4), Flatten(), Linear(48, 3, bias=False)])
    state = net.state_dict()
    assert {name: value.shape for name, value in state.items()} == {
        "0.weight": (4, 2, 3, 5), "0.bias": (4,), "1.weight": (4,), "1.bias": (4,), "1.running_mean": (4,),
        "1.running_var": (4,), "3.weight": (3, 48),
    }  # fmt: skip
    convolution, _, _, linear = net.layers
    assert np.array_equal(state["0.weight"], to_host(convolution.weight.value).transpose(3, 2, 0, 1))
    assert np.array_equal(state["3.weight"], to_host(linear.weight.value).T)


def test_a_state_is_loaded_whole_or_in_part():
    first, other = small(seed=1), small(seed=2)
    other.load_state_dict(first.state_dict())
    assert np.array_equal(to_host(other.params), to_host(first.params))
    other.load_state_dict({"2.bias": np.ones(3), "9.bias": np.ones(4)}, strict=False)
    found, expected = other.state_dict(), first.state_dict() | {"2.bias": np.ones(3)}
    assert all(np.array_equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("change", [
    {"0.weight": np.zeros((5, 7))}, {"extra": np.zeros(1)}, {"0.bias": np.zeros(7, complex)}, {"0.bias": np.full(7, np.nan)},
    {"0.bias": np.full(7, "1")}, {"0.bias": np.full(7, 1e5, np.longdouble) ** 100},
])  # fmt: skip
def test_a_state_that_does_not_fit_changes_nothing(change):
    net = small()
    before = to_host(net.params).copy()
    with pytest.raises(ValueError, match="state_dict: "):
        net.load_state_dict(net.state_dict() | change)
    assert np.array_equal(to_host(net.params), before)


def test_the_bytes_of_a_context_are_counted():
    net, context = Sequential([Linear(6, 8), ReLU(), Linear(8, 2)], dtype=np.float64), Context()
    assert context.nbytes == 0
    net.forward(xp.ones((3, 6)), context)
    assert context.nbytes == 8 * 3 * (6 + 8 + 2), "the input, and the outputs of two layers; ReLU works in place"
    net.backward(xp.ones((3, 2)), context)
    assert context.nbytes == 8 * 3 * (6 + 8 + 2 + 8), "and one gradient"
    net.input_gradients(xp.ones((3, 2)), context)
    assert context.nbytes == 8 * 3 * (6 + 8 + 2 + 8 + 2 + 8), "the gradients of both outputs are kept"


# ----- random numbers and initial weights: functions of the seed and of global indices, never of the block that is drawn


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


@pytest.mark.parametrize("index", [(slice(1, 3), slice(0, 5), slice(2, 4)), ([3, 0, 1], [4, 2], [0, 3])])
def test_a_block_of_initial_weights_is_that_of_the_whole(index):
    index = tuple(part if isinstance(part, slice) else np.array(part) for part in index)
    whole = Parameter("weight", (4, 5, 6)[: len(index)], 0.5)
    block = whole.placed(Block(index))
    for parameter in whole, block:
        parameter.value = xp.empty(parameter.block_shape, np.float64)
        parameter.initialise(3, "0.weight")
    assert np.array_equal(to_host(block.value), take(to_host(whole.value), index))
