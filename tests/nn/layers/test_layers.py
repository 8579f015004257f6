"""Layers and losses: gradients are finite differences, and values follow their formulas.

Against PyTorch, memory that is used again, and blocks on other ranks: tests/random_networks.
"""

import numpy as np
import pytest

from gridgrad.nn import (
    GELU,
    MSE,
    AvgPool2d,
    BatchNorm,
    Concat,
    Context,
    Conv2d,
    Dropout,
    Flatten,
    LeakyReLU,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Sigmoid,
    SoftmaxCrossEntropy,
    SparseLinear,
    Tanh,
    TiedAutoencoder,
)
from gridgrad.nn.device import to_device, to_host, xp

FEATURES, IMAGES = (6, 7), (2, 5, 7, 3)
PATTERN = np.random.default_rng(0).random((7, 9)) < 0.3

NETWORKS = [  # (shape of the input, layers)
    (FEATURES, lambda: [Linear(7, 5)]),
    (FEATURES, lambda: [Tanh(), LeakyReLU(0.1)]),
    (FEATURES, lambda: [GELU()]),
    (FEATURES, lambda: [Linear(7, 11), Tanh(), Dropout(0.2), Linear(11, 3), Sigmoid()]),
    (FEATURES, lambda: [SparseLinear(PATTERN), Tanh(), SparseLinear(PATTERN.T)]),
    (FEATURES, lambda: [Linear(7, 5), TiedAutoencoder(5, 3), Sigmoid(), TiedAutoencoder(5, 8)]),
    (IMAGES, lambda: [Conv2d(3, 2, 3)]),
    (IMAGES, lambda: [Conv2d(3, 5, (2, 3), (2, 1), ((1, 0), (0, 2)))]),
    (IMAGES, lambda: [Conv2d(3, 2, 1, 3, bias=False)]),
    (IMAGES, lambda: [Conv2d(3, 2, 3, padding=1), MaxPool2d(3, 2, 1), ReLU()]),  # which run as one
    (IMAGES, lambda: [MaxPool2d((2, 3), (3, 1))]),
    (IMAGES, lambda: [AvgPool2d(3, 1, 1)]),
    (IMAGES, lambda: [BatchNorm(3)]),
    (IMAGES, lambda: [LocalResponseNorm(2, 0.5, 0.6, 1.5)]),
    (IMAGES, lambda: [LocalResponseNorm(5, 2.0)]),
    (IMAGES, lambda: [Flatten(), Linear(105, 2)]),
    (IMAGES, lambda: [Residual([Conv2d(3, 2, 2), LeakyReLU(0.2), MaxPool2d(2, 1)], [Conv2d(3, 2, 3)])]),
    (IMAGES, lambda: [Residual([Conv2d(3, 2, 1), Conv2d(2, 3, 1)], [Conv2d(3, 3, 1)]), Conv2d(3, 1, 1)]),
    (IMAGES, lambda: [Residual([], [Conv2d(3, 2, 1), Conv2d(2, 3, 1)]), Concat([Tanh()], [Conv2d(3, 2, 1)]), Conv2d(5, 1, 1)]),
    (IMAGES, lambda: [Concat([Conv2d(3, 2, 2)], [MaxPool2d(2, 1)], [Tanh(), AvgPool2d(2, 1)])]),
]


def numbers(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def difference(function, array, index, step=1e-6):
    """The central difference of a function of no arguments when one element of `array` changes."""
    kept = array[index].item()
    array[index] = kept + step
    high = function()
    array[index] = kept - step
    low = function()
    array[index] = kept
    return (high - low) / (2 * step)


@pytest.mark.parametrize(("shape", "layers"), NETWORKS)
def test_gradients_equal_finite_differences(shape, layers):
    net, x, context = Sequential(layers(), seed=1, dtype=np.float64), to_device(numbers(shape)), Context()
    weights = to_device(numbers(net.forward(x, context).shape, 2))  # of the sum that is differentiated
    value = lambda: float((net.forward(x, context) * weights).sum())  # noqa: E731
    dx = to_host(net.backward(weights.copy(), context, input_gradient=True)).copy()
    grads = to_host(net.grads).copy()
    chosen = np.random.default_rng(3).choice(x.size, min(x.size, 50), replace=False)
    for index in (np.unravel_index(place, shape) for place in chosen):
        assert difference(value, x, index) == pytest.approx(dx[index], abs=1e-7)
    for layer, parameter in net.parameters:
        trained = layer.pattern if isinstance(layer, SparseLinear) and parameter is layer.weight else True
        gradient = to_host(parameter.grad).copy()
        assert not gradient[~np.broadcast_to(trained, gradient.shape)].any()
        for index in map(tuple, np.argwhere(np.broadcast_to(trained, gradient.shape))):
            assert difference(value, parameter.value, index) == pytest.approx(gradient[index], abs=1e-7)
    net.grads.fill(-1)
    value()
    net.backward(weights.copy(), context)  # without the input's gradient: the others are the same
    assert np.array_equal(grads, to_host(net.grads))


def response_norm(x):
    """Of windows of two channels, the own one and the one before it."""
    squares = np.square(np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 0))))
    return x / (1.5 + 0.5 / 2 * (squares[..., :-1] + squares[..., 1:])) ** 0.6


VALUES = {  # of layers without weights
    "ReLU": (ReLU(), lambda x: np.maximum(x, 0)),
    "LeakyReLU": (LeakyReLU(0.2), lambda x: np.maximum(x, 0.2 * x)),
    "GELU": (GELU(), lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    "Tanh": (Tanh(), np.tanh),
    "Sigmoid": (Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
    "Flatten": (Flatten(), lambda x: x.transpose(0, 3, 1, 2).reshape(len(x), -1)),
    "Residual": (Residual([Tanh()]), lambda x: x + np.tanh(x)),
    "Concat": (Concat([], [Tanh()]), lambda x: np.concatenate([x, np.tanh(x)], axis=3)),
    "LocalResponseNorm": (LocalResponseNorm(2, 0.5, 0.6, 1.5), response_norm),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_follow_their_formulas(name):
    layer, formula = VALUES[name]
    x = numbers(IMAGES)
    found = to_host(Sequential([layer], dtype=np.float64).forward(to_device(x)))
    assert np.allclose(found, formula(x), rtol=1e-12, atol=1e-14)


def test_the_derivative_of_relu_at_0_is_0():
    net, context = Sequential([ReLU()]), Context()
    net.forward(xp.zeros((1, 3), np.float32), context)
    assert not net.backward(xp.ones((1, 3), np.float32), context, input_gradient=True).any()
    net, context = Sequential([BatchNorm(3), ReLU()]), Context()  # which run as one layer
    net.forward(xp.zeros((2, 3), np.float32), context)
    net.backward(xp.ones((2, 3), np.float32), context)
    assert not net.grads.any()


def test_nothing_overflows():
    with np.errstate(all="raise"):
        y = Sequential([Sigmoid()]).forward(xp.array([[-1e4, 0, 1e4]], dtype=np.float32))
    assert y.tolist() == [[0, 0.5, 1]]
    assert SoftmaxCrossEntropy().forward(xp.array([[1e30, -1e30]], dtype=np.float32), xp.array([0]), Context(batch_size=1)) == 0


@pytest.mark.parametrize("shape", [(6, 5), (3, 2, 4, 5), (1, 5), (1, 1, 1, 5)])
def test_batch_norm_follows_its_formula(shape):
    """Also of one value a channel, which PyTorch refuses: a rank, or the last minibatch of an epoch, may have no more."""
    net, context, x = Sequential([BatchNorm(5, eps=0.1, momentum=0.3)], dtype=np.float64), Context(), numbers(shape)
    net.load_state_dict({name: np.abs(numbers(5, len(name))) for name in net.state_dict()})
    weight, bias, old_mean, old_variance = net.state_dict().values()
    axes, count = tuple(range(len(shape) - 1)), x.size // 5
    mean, variance = x.mean(axes), x.var(axes)
    expected = (x - mean) / np.sqrt(variance + 0.1) * weight + bias
    assert np.allclose(to_host(net.forward(to_device(x), context)), expected, rtol=1e-12)
    dx = to_host(net.backward(to_device(numbers(shape, 1)), context, input_gradient=True))
    assert count > 1 or np.abs(dx).max() < 1e-10
    _, _, mean_now, variance_now = net.state_dict().values()
    assert np.allclose(mean_now, 0.7 * old_mean + 0.3 * mean, rtol=1e-12)
    assert np.allclose(variance_now, 0.7 * old_variance + 0.3 * variance * count / max(count - 1, 1), rtol=1e-12)
    evaluated = (x - mean_now) / np.sqrt(variance_now + 0.1) * weight + bias
    assert np.allclose(to_host(net.forward(to_device(x))), evaluated, rtol=1e-12)


def test_dropout_keeps_the_mean_and_follows_the_step_and_the_number_of_the_sample():
    net, context, x = Sequential([Dropout(0.3)], seed=5), Context(), xp.ones((200, 300), np.float32)
    first = to_host(net.forward(x, context)).copy()
    assert first.mean() == pytest.approx(1, abs=0.02) and (first == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert np.array_equal(first, to_host(net.forward(x, context)))
    part = net.forward(x[50:], Context(), 150, 50, minibatch_size=200)
    assert np.array_equal(first[50:], to_host(part))
    net.step = 1
    assert not np.array_equal(first, to_host(net.forward(x, context)))
    assert net.forward(x) is x, "evaluations drop nothing"


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (SoftmaxCrossEntropy(), np.array([0, 3, 1])),
        (SoftmaxCrossEntropy(smoothing=0.2), np.array([0, 3, 1])),
        (MSE(), numbers((3, 4), 1)),
    ],
)
def test_losses_are_means_over_the_minibatch_and_have_the_gradients_of_them(loss, target):
    """Of a minibatch of 9 samples in micro-batches of 5, this rank has 3."""
    y, target, context = to_device(numbers((3, 4))), to_device(target), Context()
    context.begin(seed=0, step=0, batch_size=5, minibatch_size=9)
    value = lambda: loss.forward(y, target, context)  # noqa: E731
    assert value() == pytest.approx(loss.forward(y, target, Context(batch_size=3)) * 3 / 9, rel=1e-14)
    parts = sum(loss.forward(y[part], target[part], context) for part in (slice(0, 1), slice(1, 3), slice(3, 3)))
    assert parts == pytest.approx(value(), rel=1e-14)
    dy = to_host(loss.backward(context)).copy()
    for index in np.ndindex(y.shape):
        assert difference(value, y, index) == pytest.approx(dy[index], abs=1e-8)
