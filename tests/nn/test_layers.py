"""Every layer and loss against finite differences. Against PyTorch: tests/random_networks/test_pytorch.py."""

import numpy as np
import pytest

from gridgrad.nn import (
    GELU,
    MSE,
    BatchNorm,
    Context,
    Conv2d,
    Dropout,
    LeakyReLU,
    Linear,
    ReLU,
    Sequential,
    Sigmoid,
    SoftmaxCrossEntropy,
    SparseLinear,
    Tanh,
    TiedAutoencoder,
)
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.layer import Block, Layer

LAYERS = [
    lambda: [Linear(7, 5)],
    lambda: [ReLU()],
    lambda: [LeakyReLU(0.1)],
    lambda: [GELU()],
    lambda: [Tanh()],
    lambda: [Sigmoid()],
    lambda: [Dropout(0.4)],
    lambda: [Linear(7, 11), Tanh(), Dropout(0.2), Linear(11, 3), Sigmoid()],
]


def difference(function, array, index, step=1e-6):
    """The central difference of a function of no arguments when one element of `array` changes."""
    kept = array[index].item()
    array[index] = kept + step
    high = function()
    array[index] = kept - step
    low = function()
    array[index] = kept
    return (high - low) / (2 * step)


@pytest.mark.parametrize("layers", LAYERS)
def test_gradients_equal_finite_differences(layers):
    rng = np.random.default_rng(0)
    net, x = Sequential(layers(), seed=1, dtype=np.float64), to_device(rng.standard_normal((6, 7)))
    assert_gradients_equal_finite_differences(net, x, to_device(rng.standard_normal(net.forward(x).shape)))


def assert_gradients_equal_finite_differences(net, x, weights):
    """Both gradients of the sum of the outputs of a network for x. weights: those of the sum, in the shape of the outputs."""
    context = Context()
    value = lambda: float((net.forward(x, context) * weights).sum())  # noqa: E731
    value()
    dx = to_host(net.backward(weights.copy(), context, input_gradient=True)).copy()
    grads = to_host(net.grads).copy()
    for index in np.ndindex(x.shape):
        assert difference(value, x, index) == pytest.approx(dx[index], abs=1e-7)
    for i in range(net.params.size):
        assert difference(value, net.params, i) == pytest.approx(grads[i], abs=1e-7)


@pytest.mark.parametrize(
    ("loss", "target"),
    [(SoftmaxCrossEntropy(), np.array([0, 3, 1])), (MSE(), np.random.default_rng(1).standard_normal((3, 4)))],
)
def test_loss_gradients(loss, target):
    context = Context(batch_size=5)
    y, target = to_device(np.random.default_rng(0).standard_normal((3, 4))), to_device(target)
    value = lambda: loss.forward(y, target, context)  # noqa: E731 (a global minibatch of 5, of which 3 are here)
    value()
    dy = to_host(loss.backward(context)).copy()
    for index in np.ndindex(y.shape):
        assert difference(value, y, index) == pytest.approx(dy[index], abs=1e-8)


def test_losses_of_blocks_add_up():
    context = Context(batch_size=7)
    y, rng = to_device(np.random.default_rng(0).standard_normal((7, 4))), np.random.default_rng(1)
    for loss, target in ((SoftmaxCrossEntropy(), rng.integers(0, 4, 7)), (MSE(), rng.standard_normal((7, 4)))):
        target = to_device(target)
        whole = loss.forward(y, target, context)
        parts = sum(loss.forward(y[p], target[p], context) for p in (slice(0, 3), slice(3, 7), slice(7, 7)))
        assert parts == pytest.approx(whole, rel=1e-14)


def test_cross_entropy_is_finite_for_huge_logits():
    assert SoftmaxCrossEntropy().forward(xp.array([[1e30, -1e30]], dtype=np.float32), xp.array([0]), Context(batch_size=1)) == 0


def test_sigmoid_does_not_overflow():
    with np.errstate(all="raise"):
        y = Sequential([Sigmoid()]).forward(xp.array([[-1e4, 0, 1e4]], dtype=np.float32))
    assert y.tolist() == [[0, 0.5, 1]]


def test_batch_sizes_may_change_and_be_zero():
    context = Context()
    net = Sequential([Linear(3, 4), ReLU(), Dropout(0.5), Linear(4, 2)])
    for n in (5, 2, 0, 9):
        x = xp.ones((n, 3), np.float32)
        assert net.forward(x, context).shape == (n, 2)
        net.backward(xp.ones((n, 2), np.float32), context)
        assert xp.isfinite(net.grads).all()
        if n == 0:
            assert not net.grads.any()


def test_dropout_keeps_the_mean_and_follows_the_step():
    context = Context()
    net = Sequential([Dropout(0.3)], seed=5)
    x = xp.ones((200, 300), np.float32)
    again = lambda: to_host(net.forward(x, context)).copy()  # noqa: E731
    first = again()
    assert first.mean() == pytest.approx(1, abs=0.02)
    assert (first == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert np.array_equal(first, again())
    net.step = 1
    assert not np.array_equal(first, again())
    assert net.forward(x) is x


@pytest.mark.parametrize("bad", [lambda: Linear(0, 3), lambda: Dropout(1.0), lambda: Dropout(-0.1), lambda: LeakyReLU(1.0)])
def test_bad_sizes_are_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        bad()


BLOCK = Linear(7, 5).placed(weight=Block((slice(0, 2), slice(1, 3))))


@pytest.mark.parametrize("layer", [Linear(7, 5), Conv2d(7, 5, 3), BLOCK])
def test_outputs_of_a_dense_layer_need_all_inputs(layer):
    for columns in (slice(2, 3), np.array([0, 4])):
        assert layer.inputs_of(columns) == slice(0, 7)
    for columns in (slice(2, 2), np.array([], int)):
        assert layer.inputs_of(columns) == slice(0, 0)


@pytest.mark.parametrize(
    "layer",
    [
        Linear(6, 5),
        Linear(6, 5, bias=False),
        SparseLinear(np.tri(6, 5, dtype=bool)),
        Conv2d(6, 5, 3, padding=1),
        BatchNorm(5),
        TiedAutoencoder(6, 5),
    ],
    ids=repr,
)
def test_a_block_is_a_new_layer_with_parts_of_the_same_arrays(layer):
    whole = Sequential([layer], seed=1, dtype=np.float64)
    whole.allocate()
    held, memory = np.array([0, 3]), whole.params.copy()
    block = layer.placed(**{p.name: Block((*p.index[:-1], held)) for p in (*layer.parameters, *layer.buffers)})
    assert type(block) is type(layer) and block.name == "" and all(p.value is None for p in block.parameters)
    part = Sequential([block], seed=1, dtype=np.float64)
    part.allocate()
    for mine, theirs in zip((*block.parameters, *block.buffers), (*layer.parameters, *layer.buffers), strict=True):
        assert mine.shape == theirs.shape and np.array_equal(to_host(mine.value), to_host(theirs.value)[..., held])
    part.params.fill(0)
    assert np.array_equal(to_host(whole.params), to_host(memory)) and layer.name == "0"


def test_the_block_of_an_array_that_is_not_named_is_all_of_it():
    block = Linear(7, 5).placed(weight=Block((slice(0, 2), slice(1, 3))))
    assert block.weight.block_shape == (2, 2) and block.bias.block_shape == (5,)
    with pytest.raises(ValueError, match="has no parameter gain"):
        Linear(7, 5).placed(gain=Block((slice(0, 2),)))


def test_base_layer_is_abstract():
    with pytest.raises(NotImplementedError):
        Layer().forward(None, Context())
