import numpy as np
import pytest

from gridgrad.nn import Context, Linear, Parameter, ReLU, Sequential
from gridgrad.nn.device import to_host, xp
from gridgrad.nn.kernels.window import take
from gridgrad.nn.layer import Block


def net(seed=0, dtype=np.float32):
    return Sequential([Linear(5, 7), ReLU(), Linear(7, 3)], seed=seed, dtype=dtype)


def params(net):
    return to_host(net.params).copy()


def test_parameters_are_views_of_flat_buffers():
    n = net()
    assert n.params.size == n.grads.size == 5 * 7 + 7 + 7 * 3 + 3
    n.params[:] = 2
    assert all((p.value == 2).all() for _, p in n.parameters)
    if xp.is_cpu:
        assert n.params.ctypes.data % 64 == 0


def test_a_network_costs_no_memory_until_used():
    huge = Sequential([Linear(10**7, 10**7)])
    assert not huge.allocated
    assert huge.output_shape((10**7,)) == (10**7,)


def test_initial_weights_follow_the_seed_and_not_the_type():
    assert np.array_equal(params(net(seed=1)), params(net(seed=1)))
    assert not np.array_equal(params(net(seed=1)), params(net(seed=2)))
    assert np.allclose(params(net(dtype=np.float64)), params(net()), rtol=1e-7)
    weight = params(Sequential([Linear(400, 300)]))[:-300]
    assert abs(weight).max() <= 1 / 20
    assert weight.std() == pytest.approx(1 / 20 / np.sqrt(3), rel=0.02)


@pytest.mark.parametrize(
    "index",
    [(slice(1, 3), slice(0, 5), slice(2, 4)), ([3, 0], slice(0, 5), [1, 2]), ([3, 0, 1], [4, 2], [0, 3]), ([2], [1, 3])],
)
def test_a_block_of_initial_weights_is_that_of_the_whole(index):
    index = tuple(part if isinstance(part, slice) else np.array(part) for part in index)
    blocks = {}
    whole = Parameter("weight", (4, 5, 6)[: len(index)], 0.5)
    for name, p in (("whole", whole), ("block", whole.placed(Block(index)))):
        p.value = xp.empty(p.block_shape, np.float64)
        p.initialise(3, "0.weight")
        blocks[name] = to_host(p.value)
    assert np.array_equal(blocks["block"], take(blocks["whole"], index))


def test_state_dict_has_pytorchs_names_and_shapes_and_loads():
    state = net(seed=1).state_dict()
    assert {name: value.shape for name, value in state.items()} == {
        "0.weight": (7, 5), "0.bias": (7,), "2.weight": (3, 7), "2.bias": (3,),
    }  # fmt: skip
    other = net(seed=2)
    other.load_state_dict(state)
    assert np.array_equal(params(other), params(net(seed=1)))


def test_a_state_of_some_layers_leaves_the_others_as_they_are():
    other, expected = net(seed=2), net(seed=2).state_dict()
    other.load_state_dict({"2.bias": np.ones(3), "9.bias": np.ones(4)}, strict=False)
    found = other.state_dict()
    assert all(np.array_equal(found[name], np.ones(3) if name == "2.bias" else value) for name, value in expected.items())


@pytest.mark.parametrize("change", [
    {"0.weight": np.zeros((5, 7))}, {"extra": np.zeros(1)}, {"0.bias": np.zeros(7, complex)}, {"0.bias": np.full(7, np.nan)},
    {"0.bias": np.full(7, "1")}, {"0.bias": np.full(7, 1e5, np.longdouble) ** 100},
])  # fmt: skip
def test_a_state_that_does_not_fit_changes_nothing(change):
    n = net()
    before = params(n)
    with pytest.raises(ValueError, match="state_dict: "):
        n.load_state_dict(n.state_dict() | change)
    assert np.array_equal(params(n), before)


def test_backward_computes_the_input_gradient_only_if_asked():
    context = Context()
    n = net()
    y = n.forward(xp.ones((4, 5), np.float32), context)
    assert n.backward(xp.ones_like(y), context) is None
    grads = n.grads.copy()
    assert grads.any()
    n.grads.fill(-1)
    assert n.backward(xp.ones_like(y), context, input_gradient=True).shape == (4, 5)
    assert xp.array_equal(n.grads, grads)


def test_layers_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"layer 2 Linear\(8, 3\) takes 8 features but gets 7"):
        Sequential([Linear(5, 7), ReLU(), Linear(8, 3)]).output_shape((5,))


def test_a_network_without_parameters():
    n = Sequential([ReLU()])
    assert n.params.size == 0
    assert n.forward(xp.array([[-1.0, 2.0]], dtype=np.float32)).tolist() == [[0, 2]]


def test_a_layer_belongs_to_one_network():
    layer = Linear(3, 3)
    Sequential([layer])
    with pytest.raises(ValueError, match="layer 1 .* is part of a network already"):
        Sequential([ReLU(), layer])
