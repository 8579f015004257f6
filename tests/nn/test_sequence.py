"""A network is a sequence of layers over flat buffers, which chunks of it compute as well, one after another."""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from gridgrad.nn import (
    BatchNorm,
    Concat,
    Context,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Tanh,
)
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.sequence import Chunk

SHAPE = 8, 6, 2


def layers():
    branch = [Conv2d(4, 4, 3, padding=1), BatchNorm(4), ReLU()]
    return [Conv2d(2, 4, 3, padding=1), BatchNorm(4), ReLU(), MaxPool2d(2), Residual(branch),
            Concat([Conv2d(4, 2, 3, padding=1)], [MaxPool2d(3, 1, 1)]), Dropout(0.2), Flatten(), Linear(72, 5), Tanh(),
            Linear(5, 3)]  # fmt: skip


def network():
    net = Sequential(layers(), seed=2, dtype=np.float64, input_shape=SHAPE)
    net.allocate()
    return net


def chunks_of(net, cuts):
    bounds = [0, *cuts, len(net.layers)]
    return [Chunk(net.layers[start:stop]) for start, stop in zip(bounds, bounds[1:], strict=False)]


@pytest.mark.parametrize("halves", (False, True))
def test_passes_of_chunks_are_those_of_the_network(halves):
    rng = np.random.default_rng(0)
    x, dy = to_device(rng.standard_normal((5, *SHAPE))), to_device(rng.standard_normal((5, 3)))
    for cuts in combinations_with_replacement(range(0, len(layers()) + 1, 2 if halves else 1), 2):
        whole, context = network(), Context()
        y = whole.forward(x, context).copy()
        whole.backward(dy.copy(), context)
        net = network()
        chunks, shared = chunks_of(net, cuts), Context()
        contexts = [Context(sharing=shared) for _ in chunks]
        assert sum(chunk.size for chunk in chunks) == net.size
        between = x
        for chunk, mine in zip(chunks, contexts, strict=True):
            mine.begin(net.seed, net.step, 5)
            between = chunk.forward(between, mine)
        assert np.array_equal(to_host(between), to_host(y)), cuts
        gradient = dy.copy()
        for number in reversed(range(len(chunks))):
            compute = chunks[number].input_gradients if halves else chunks[number].backward
            gradient = compute(gradient, contexts[number], input_gradient=number > 0)
            assert (gradient is None) == (number == 0)
            gradient = gradient if gradient is None else gradient.copy()
        for chunk, mine in zip(chunks, contexts, strict=True) if halves else ():
            chunk.parameter_gradients(mine)
        assert np.allclose(to_host(net.grads), to_host(whole.grads), rtol=1e-12, atol=1e-13), cuts
        for (_, a), (_, b) in zip(net.buffers, whole.buffers, strict=True):
            assert np.array_equal(to_host(a.value), to_host(b.value))


def test_an_empty_chunk_passes_everything_on():
    x, context, chunk = np.ones((2, 3)), Context(), Chunk([])
    assert chunk.forward(x, context) is x and chunk.size == 0
    for compute in (chunk.backward, chunk.input_gradients):
        assert compute(x, context) is x and compute(x, context, input_gradient=False) is None
    chunk.parameter_gradients(context)


# ----- buffers and states


def small(seed=0):
    return Sequential([Linear(5, 7), ReLU(), Linear(7, 3)], seed=seed)


def test_parameters_are_views_of_flat_buffers():
    net = small()
    assert net.params.size == net.grads.size == 5 * 7 + 7 + 7 * 3 + 3
    net.params[:] = 2
    assert all((p.value == 2).all() for _, p in net.parameters)
    assert not xp.is_cpu or net.params.ctypes.data % 64 == 0
    assert Sequential([ReLU()]).params.size == 0


def test_a_network_costs_no_memory_until_used():
    huge = Sequential([Linear(10**7, 10**7)])
    assert not huge.allocated and huge.output_shape((10**7,)) == (10**7,)


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
