"""Sparse layers against finite differences and against dense layers of masked weights, and pruning by magnitude."""

import numpy as np
import pytest

from gridgrad.nn import (
    SGD,
    Adam,
    Context,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    ReLU,
    Sequential,
    SoftmaxCrossEntropy,
    SparseLinear,
    Tanh,
)
from gridgrad.nn.device import to_device, to_host
from gridgrad.nn.layer import Block
from gridgrad.nn.zoo.pruning import prune, with_patterns
from tests.nn.test_layers import difference


def pattern(inputs, outputs, density=0.3, seed=0):
    return np.random.default_rng(seed).random((inputs, outputs)) < density


def dense_twin(sparse):
    """A dense network with the weights of a sparse one."""
    layers = [Linear(*layer.pattern.shape) if isinstance(layer, SparseLinear) else type(layer)() for layer in sparse.layers]
    dense = Sequential(layers, sparse.seed, sparse.dtype)
    dense.load_state_dict(sparse.state_dict())
    return dense


def sparse_network(dtype=np.float64):
    return Sequential([SparseLinear(pattern(7, 9)), Tanh(), SparseLinear(pattern(9, 4, seed=1))], seed=3, dtype=dtype)


def test_the_first_values_are_those_of_a_linear_layer():
    sparse, dense = (Sequential([layer], seed=5) for layer in (SparseLinear(pattern(7, 9)), Linear(7, 9)))
    ours, theirs = sparse.state_dict(), dense.state_dict()
    assert ours["0.weight"].shape == (9, 7)
    assert np.array_equal(ours["0.weight"], theirs["0.weight"] * pattern(7, 9).T)
    assert np.array_equal(ours["0.bias"], theirs["0.bias"])


def test_gradients_equal_finite_differences():
    net, rng, context = sparse_network(), np.random.default_rng(0), Context()
    x, weights = (to_device(rng.standard_normal(shape)) for shape in ((6, 7), (6, 4)))
    value = lambda: float((net.forward(x, context) * weights).sum())  # noqa: E731
    value()
    dx = to_host(net.backward(weights.copy(), context, input_gradient=True)).copy()
    for index in np.ndindex(x.shape):
        assert difference(value, x, index) == pytest.approx(dx[index], abs=1e-7)
    for layer, p in net.parameters:
        kept = np.ones(p.shape, bool) if p.name == "bias" else layer.pattern
        grad = to_host(p.grad).copy()
        assert not grad[~kept].any()
        for index in np.argwhere(kept):
            assert difference(value, p.value, tuple(index)) == pytest.approx(grad[tuple(index)], abs=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_passes_equal_those_of_a_dense_layer_of_masked_weights(dtype):
    sparse, rng = sparse_network(dtype), np.random.default_rng(0)
    dense, contexts = dense_twin(sparse), (Context(), Context())
    x, dy = (to_device(rng.standard_normal(shape).astype(dtype)) for shape in ((5, 7), (5, 4)))
    found = []
    for net, context in zip((sparse, dense), contexts, strict=True):
        found.append((to_host(net.forward(x, context)).copy(), to_host(net.backward(dy.copy(), context, input_gradient=True))))
    for ours, theirs in zip(*found, strict=True):
        assert np.array_equal(ours, theirs)
    for (layer, p), (_, q) in zip(sparse.parameters, dense.parameters, strict=True):
        kept = layer.pattern if p.name == "weight" else 1
        assert np.array_equal(to_host(p.grad), to_host(q.grad) * kept)


@pytest.mark.parametrize("make", [lambda net: SGD(net, 0.1, 0.9, l2=0.01, l1=0.01), lambda net: Adam(net, 0.01, l2=0.1)])
def test_zeros_stay_zeros_in_training(make):
    net, rng, loss = sparse_network(), np.random.default_rng(0), SoftmaxCrossEntropy()
    optimizer, before = make(net), net.state_dict()
    for _ in range(4):
        net.learn(rng.standard_normal((6, 7)), rng.integers(0, 4, 6), loss, optimizer)
    after = net.state_dict()
    for name, kept in (("0.weight", pattern(7, 9)), ("2.weight", pattern(9, 4, seed=1))):
        assert not after[name].T[~kept].any() and (after[name] != before[name]).T[kept].all()


def test_blocks_are_parts_of_the_whole():
    whole, rng = SparseLinear(pattern(7, 9)), np.random.default_rng(0)
    columns = np.array([1, 4, 5])
    rows = whole.inputs_of(columns)
    block = whole.placed(weight=Block((rows, columns)), bias=Block((columns,)))
    net, part = Sequential([whole], seed=2, dtype=np.float64), Sequential([block], seed=2, dtype=np.float64)
    x = rng.standard_normal((5, 7))
    found, expected = (to_host(one.forward(to_device(some))) for one, some in ((part, x[:, rows]), (net, x)))
    assert np.allclose(found, expected[:, columns], rtol=1e-13)
    assert block.inputs_of(columns).tolist() == rows.tolist()
    part.load_state_dict(net.state_dict())
    assert np.array_equal(to_host(block.weight.value), to_host(whole.weight.value)[np.ix_(rows, columns)])


def test_inputs_are_those_with_a_weight_into_the_outputs():
    layer = SparseLinear(np.array([[1, 0, 0], [0, 0, 0], [1, 0, 1], [0, 0, 1]], bool))
    assert layer.inputs_of(slice(0, 3)).tolist() == [0, 2, 3]
    assert layer.inputs_of(np.array([0])).tolist() == [0, 2]
    assert layer.inputs_of(slice(1, 2)).tolist() == layer.inputs_of(slice(2, 2)).tolist() == []


@pytest.mark.parametrize("bad", [np.ones((3, 4)), np.ones(3, bool), np.ones((0, 4), bool), None])
def test_bad_patterns_are_refused(bad):
    with pytest.raises(ValueError, match="SparseLinear: pattern must be|must be a whole number"):
        SparseLinear(bad)


def test_a_dense_state_loses_what_is_outside_of_the_pattern():
    sparse = Sequential([SparseLinear(pattern(7, 9))])
    state = {"0.weight": np.ones((9, 7)), "0.bias": np.ones(9)}
    sparse.load_state_dict(state)
    assert np.array_equal(sparse.state_dict()["0.weight"].T, pattern(7, 9))


def test_the_smallest_weights_are_pruned():
    net = Sequential([Flatten(), Linear(20, 30), ReLU(), Dropout(0.25), Linear(30, 10)], seed=1, input_shape=(20,))
    state = net.state_dict()
    pruned = prune(net, 0.9)
    assert [type(layer) for layer in pruned.layers] == [Flatten, SparseLinear, ReLU, Dropout, SparseLinear]
    assert pruned.layers[3].p == 0.25 and pruned.input_shape == (20,)
    kept, gone = [], []
    for name in ("1.weight", "4.weight"):
        ours = pruned.state_dict()[name]
        kept += [state[name][ours != 0]]
        gone += [state[name][ours == 0]]
        assert np.array_equal(ours[ours != 0], kept[-1])
    assert sum(map(len, kept)) == 90 and np.abs(np.concatenate(kept)).min() > np.abs(np.concatenate(gone)).max()
    assert all(np.array_equal(pruned.state_dict()[name], state[name]) for name in ("1.bias", "4.bias"))
    assert all(np.array_equal(net.state_dict()[name], value) for name, value in state.items())


def test_each_layer_can_lose_as_much():
    net = Sequential([Linear(20, 30), ReLU(), Linear(30, 10)], seed=1)
    assert [prune(net, 0.9, layer_by_layer=True).layers[i].pattern.sum() for i in (0, 2)] == [60, 30]


def test_a_pruned_network_can_be_pruned_further():
    net = Sequential([Linear(20, 30), ReLU(), Linear(30, 10)], seed=1)
    once = prune(net, 0.5)
    twice = prune(once, 0.9)
    at_once = prune(net, 0.9)
    assert all(np.array_equal(twice.layers[i].pattern, at_once.layers[i].pattern) for i in (0, 2))
    assert prune(net, 0).layers[0].pattern.all()


def test_what_can_not_be_pruned_says_so():
    with pytest.raises(ValueError, match="fraction of zeros must be at least 0 and below 1, not 1"):
        prune(Sequential([Linear(2, 2)]), 1)
    with pytest.raises(ValueError, match="no Linear layer"):
        prune(Sequential([ReLU()]), 0.5)
    with pytest.raises(ValueError, match="only Linear layers may have weights"):
        prune(Sequential([Conv2d(1, 2, 3), Flatten(), Linear(8, 2)]), 0.5)
    with pytest.raises(ValueError, match="expected"):
        with_patterns(Sequential([Linear(3, 2)]), {"0": pattern(2, 2)}, {"0.weight": np.ones((2, 3)), "0.bias": np.ones(2)})
