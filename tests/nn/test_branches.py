"""Branching layers of many structures: gradients against finite differences, and no array overwrites another in use."""

import numpy as np
import pytest

from nn import (
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
    Tanh,
    TiedAutoencoder,
)
from nn.device import to_device, to_host
from tests.memory import fresh_memory
from tests.nn.test_layers import assert_gradients_equal_finite_differences

FEATURES, IMAGES = (4,), (4, 3, 2)

# Branches that keep the shape: of features, and of images.
FLAT = {
    "nothing": lambda: [],
    "tanh": lambda: [Tanh()],
    "relu": lambda: [LeakyReLU(0.3)],
    "dropout": lambda: [Dropout(0.4)],
    "no dropout": lambda: [Dropout(0.0)],
    "flatten": lambda: [Flatten()],
    "flatten, tanh": lambda: [Flatten(), Tanh()],
    "linear": lambda: [Linear(4, 4)],
    "linear, tanh": lambda: [Linear(4, 4), Tanh()],
    "tanh, linear": lambda: [Tanh(), Linear(4, 4)],
    "autoencoder": lambda: [TiedAutoencoder(4, 2)],
    "norm": lambda: [BatchNorm(4)],
    "norm, relu": lambda: [BatchNorm(4), ReLU()],
    "neighbours": lambda: [LocalResponseNorm(3, 0.5)],
    "concat of one": lambda: [Concat([Tanh()])],
    "nested": lambda: [Residual([], [Concat([]), Sigmoid()]), Tanh()],
}
IMAGE = {
    "nothing": lambda: [],
    "tanh": lambda: [Tanh()],
    "dropout": lambda: [Dropout(0.4)],
    "max": lambda: [MaxPool2d(3, 1, 1)],
    "mean": lambda: [AvgPool2d(3, 1, 1)],
    "mean, tanh": lambda: [AvgPool2d(3, 1, 1), Tanh()],
    "conv": lambda: [Conv2d(2, 2, 3, padding=1)],
    "conv, max": lambda: [Conv2d(2, 2, 3, padding=1), MaxPool2d(3, 1, 1)],
    "conv, norm, relu": lambda: [Conv2d(2, 2, 1, bias=False), BatchNorm(2), ReLU()],
    "neighbours": lambda: [LocalResponseNorm(2, 0.5)],
    "nested": lambda: [Concat([], [Tanh()]), Conv2d(4, 2, 1), Residual([], [Sigmoid()])],
}
KINDS = {"features": (FLAT, FEATURES, lambda: Linear(4, 4)), "images": (IMAGE, IMAGES, lambda: Conv2d(2, 2, 1))}


def networks(kind):
    """{name: a function that returns layers}: all pairs of branches in both branching layers, and some deeper structures."""
    branches, _, weights = KINDS[kind]
    found = {}
    for a, first in branches.items():
        for b, second in branches.items():
            found[f"{a} + {b}"] = lambda f=first, s=second: [weights(), Residual(f(), s())]
            found[f"{a} | {b}"] = lambda f=first, s=second: [weights(), Concat(f(), s())]
        found[f"three times {a}"] = lambda f=first: [weights(), Concat(f(), f(), f())]
        found[f"{a} in branches"] = lambda f=first: [
            weights(), Residual([Residual(f(), [Residual([], f())])], [Concat(f()), Concat([]), Tanh()]),
            Residual([], []), Concat([Residual(f(), f())], [Concat([], f())], []),
        ]  # fmt: skip
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_finite_differences(kind):
    _, shape, _ = KINDS[kind]
    wrong = []
    for name, layers in networks(kind).items():
        rng = np.random.default_rng(0)
        net, x = Sequential(layers(), seed=1, dtype=np.float64), to_device(rng.standard_normal((2, *shape)))
        try:
            assert_gradients_equal_finite_differences(net, x, to_device(rng.standard_normal(net.forward(x).shape)))
        except AssertionError:
            wrong.append(name)
    assert not wrong


def passes(net, x, dy):
    """What the orders of the passes compute: outputs, gradients, and gradients of the input, as host arrays."""
    context, found = Context(), []
    for halves in (False, True):
        found.append(to_host(net.forward(x, context)).copy())
        if halves:
            dx = to_host(net.input_gradients(dy.copy(), context, input_gradient=True)).copy()
            net.parameter_gradients(context)
        else:
            dx = to_host(net.backward(dy.copy(), context, input_gradient=True)).copy()
        found += [dx, to_host(net.grads).copy()]
        net.forward(x, context)
        net.backward(dy.copy(), context)
        found.append(to_host(net.grads).copy())
        found.append(to_host(net.forward(x)).copy())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_reused_memory_changes_nothing(kind, monkeypatch):
    """The same bits where every array has memory of its own, which holds NaN at first."""
    _, shape, _ = KINDS[kind]
    for name, layers in networks(kind).items():
        results = []
        for fresh in (False, True):
            rng = np.random.default_rng(0)
            net, x = Sequential(layers(), seed=1), to_device(rng.standard_normal((3, *shape)).astype(np.float32))
            dy = to_device(rng.standard_normal(net.forward(x).shape).astype(np.float32))
            with monkeypatch.context() as patched:
                if fresh:
                    fresh_memory(patched)
                results.append(passes(net, x, dy))
        assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True)), name
