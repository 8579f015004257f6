import math
from dataclasses import replace

import numpy as np
import pytest

from gridgrad.nn import OPTIMIZERS, SGD, Adadelta, Adagrad, Adam, AdamW, Linear, Sequential
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.kernels.kernel_table import kernels, use
from gridgrad.nn.optimizers import Optimizer, constant, cosine, parse_schedule, stepwise


def reference(steps, lr, momentum, nesterov, l2, l1):
    """The textbook update in float64, element by element."""
    net = Sequential([Linear(3, 2)], seed=1, dtype=np.float64)
    p, v = to_host(net.params).copy(), 0
    for step in range(steps):
        g = np.sin(p + step) + l2 * p + l1 * np.sign(p)
        v = momentum * v + g
        p = p - lr(step) * (g + momentum * v if nesterov else v)
    return p


@pytest.mark.parametrize("lr", [constant(0.1), cosine(0.1, 7), stepwise(0.1, 3, 0.5)])
@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.0, "nesterov": False, "l2": 0.0, "l1": 0.0},
        {"momentum": 0.9, "nesterov": False, "l2": 0.01, "l1": 0.0},
        {"momentum": 0.9, "nesterov": True, "l2": 0.0, "l1": 0.02},
        {"momentum": 0.0, "nesterov": False, "l2": 0.1, "l1": 0.1},
    ],
)
def test_equals_the_textbook(lr, options):
    use(replace(kernels(), chunk=3))  # several chunks, the last one short
    net = Sequential([Linear(3, 2)], seed=1, dtype=np.float64)
    optimizer = SGD(net, lr, **options)
    for step in range(7):
        net.grads[:] = xp.sin(net.params + step)
        optimizer.step()
        net.step += 1
    assert np.allclose(to_host(net.params), reference(7, lr, **options), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"momentum": 1.0}, "momentum must be a number in"),
        ({"momentum": -0.1}, "momentum must be a number in"),
        ({"l2": -1}, "l2 must be a finite number of at least 0, not -1"),
        ({"l1": -1}, "l1 must be a finite number of at least 0, not -1"),
        ({"nesterov": True}, "nesterov needs a momentum above 0"),
        ({"lr": 0}, "the learning rate must be above 0 and finite, not 0"),
        ({"lr": math.nan}, "the learning rate must be above 0 and finite, not nan"),
    ],
)
def test_values_out_of_range_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        SGD(Sequential([Linear(3, 2)]), **({"lr": 0.1} | options))


def gradient(size, step):
    """Made up: of both signs, of many sizes, and 0 here and there."""
    index = np.arange(size)
    return (index % 11 > 0) * np.sin(index * index + step) * 10.0 ** (3 * np.cos(index))


@pytest.mark.parametrize("kind", [Adam, Adagrad, Adadelta])
def test_float32_follows_float64(kind):
    nets = [Sequential([Linear(30, 20)], seed=1, dtype=dtype) for dtype in (np.float32, np.float64)]
    for net in nets:
        optimizer = kind(net, 0.01, l2=0.01, l1=0.01)
        for step in range(20):
            net.grads[:] = to_device(gradient(net.size, step))
            optimizer.step()
            net.step += 1
    assert nets[0].params.dtype == np.float32
    assert np.allclose(to_host(nets[0].params), to_host(nets[1].params), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [Adam, Adagrad, Adadelta])
def test_l1_adds_to_the_gradient(kind):
    nets = [Sequential([Linear(4, 3)], seed=1, dtype=np.float64) for _ in range(2)]
    optimizers = [kind(nets[0], 0.1, l1=0.05), kind(nets[1], 0.1)]
    for _ in range(3):
        nets[0].grads[:] = xp.cos(nets[0].params)
        nets[1].grads[:] = xp.cos(nets[1].params) + 0.05 * xp.sign(nets[1].params)
        for optimizer in optimizers:
            optimizer.step()
    assert np.allclose(to_host(nets[0].params), to_host(nets[1].params), rtol=1e-13)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_that_is_loaded_goes_on_bit_by_bit(name):
    def steps(net, optimizer, count):
        for _ in range(count):
            net.grads[:] = to_device(gradient(net.size, net.step))
            optimizer.step()
            net.step += 1

    def make():
        net = Sequential([Linear(7, 5)], seed=3)
        options = {"momentum": 0.9} if name == "sgd" else {}
        return net, OPTIMIZERS[name](net, cosine(0.1, 10), **options)

    (net, optimizer), (other, resumed) = make(), make()
    steps(net, optimizer, 4)
    other.params[:], other.step = net.params, net.step
    resumed.load_state({k: to_host(v).copy() for k, v in optimizer.state_arrays().items()}, optimizer.state_numbers())
    for pair in (net, optimizer), (other, resumed):
        steps(*pair, 4)
    assert resumed.updates == 8 and np.array_equal(to_host(net.params), to_host(other.params))
    for key, array in optimizer.state_arrays().items():
        assert array.shape == net.params.shape and xp.array_equal(resumed.state_arrays()[key], array)


def test_state_that_does_not_fit_is_refused():
    net = Sequential([Linear(7, 5)], seed=3)
    optimizer = Adam(net, 0.1)
    arrays, numbers = optimizer.state_arrays(), optimizer.state_numbers()
    for bad in ({}, arrays | {"more": arrays["squares"]}, arrays | {"squares": arrays["squares"][:-1]}):
        with pytest.raises(ValueError, match="state of Adam"):
            optimizer.load_state(bad, numbers)
    with pytest.raises(ValueError, match="state of Adam"):
        optimizer.load_state(arrays, {})


def test_sgd_without_momentum_keeps_no_state():
    assert SGD(Sequential([Linear(7, 5)]), 0.1).state_arrays() == {}


def test_the_base_is_abstract():
    net = Sequential([Linear(3, 2)])
    with pytest.raises(NotImplementedError):
        Optimizer(net, 0.1).step()
    with pytest.raises(NotImplementedError):
        Optimizer(net, 0.1).update(net.params, net.grads, [], [])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {"lr": lr}) for kind in (Adam, Adagrad, Adadelta) for lr in (0, -1, math.inf)),
        *((kind, {"eps": eps}) for kind in (Adam, Adagrad, Adadelta) for eps in (0, -1e-8, math.nan)),
        *((kind, {"l2": -1}) for kind in (Adam, Adagrad, Adadelta)),
        (Adam, {"betas": (1, 0.9)}),
        (Adam, {"betas": (0.9, -0.1)}),
        (AdamW, {"weight_decay": -1}),
        (Adam, {"clip_norm": 0}),
        (Adadelta, {"rho": 1}),
    ],
)
def test_values_out_of_range_are_refused_by_all(kind, options):
    with pytest.raises(ValueError, match="must be"):
        kind(Sequential([Linear(3, 2)]), **options)


def test_a_long_gradient_is_shortened_before_penalties_are_added():
    """A step with plain SGD shows the gradient; one that is short enough stays to the last bit."""
    net = Sequential([Linear(3, 2)], seed=1, dtype=np.float64)
    start, gradient = to_host(net.params).copy(), np.arange(1.0, 9.0)
    for clip, length in ((2.0, 2.0), (100.0, np.linalg.norm(gradient))):
        net.params[...], net.grads[...] = to_device(start), to_device(gradient)
        SGD(net, 1.0, l2=0.5, clip_norm=clip).step()
        moved = start - to_host(net.params) - 0.5 * start
        assert np.allclose(moved, gradient * length / np.linalg.norm(gradient), rtol=1e-6)


def test_schedules():
    assert [parse_schedule("step:2:0.1", 1.0, 9)(s) for s in (0, 1, 2, 4)] == pytest.approx([1, 1, 0.1, 0.01])
    cosine = parse_schedule("cosine", 1.0, 10)
    assert [cosine(s) for s in (0, 5, 10, 11)] == pytest.approx([1, 0.5, 0, 0])
    warm = parse_schedule("constant,warmup:4", 1.0, 10)
    assert [warm(s) for s in (0, 1, 4, 9)] == pytest.approx([0.2, 0.4, 1, 1])


@pytest.mark.parametrize(
    "text", ["linear", "step", "step:0:0.1", "step:x:1", "cosine:3", "constant,warmup", "constant,warmup:-1"]
)
def test_unknown_schedules_are_refused(text):
    with pytest.raises(ValueError, match="schedule|warm-up"):
        parse_schedule(text, 1.0, 10)
