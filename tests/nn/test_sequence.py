"""A network is a sequence of layers over flat buffers; its state has the names and shapes of PyTorch's.

Its passes: test_layers.py; those of chunks of it, and of several micro-batches in progress: tests/random_networks.
"""

import numpy as np
import pytest

from gridgrad.nn import BatchNorm, Context, Conv2d, Flatten, Linear, ReLU, Sequential
from gridgrad.nn.device import to_host, xp


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
