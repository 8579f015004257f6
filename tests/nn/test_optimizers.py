"""Optimizers follow the textbook, whatever the learning rate does, and go on from their state; and training ends early."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from gridgrad.nn import OPTIMIZERS, SGD, EarlyStopping, Linear, Sequential
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.nn.kernels.kernel_table import kernels, use
from gridgrad.nn.learning_rates import constant, cosine, parse_schedule, stepwise


def network(dtype=np.float64):
    return Sequential([Linear(3, 2)], seed=1, dtype=dtype)


def textbook(name, p, lr, steps, momentum=0.0, nesterov=False, l2=0.0, l1=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01,
             rho=0.9):  # fmt: skip
    """The parameters p after some steps, element by element as in the papers."""
    velocity = squares = changes = 0.0
    for step in range(steps):
        rate, g = lr(step), np.sin(p + step) + l2 * p + l1 * np.sign(p)
        if name == "sgd":
            velocity = momentum * velocity + g
            p = p - rate * (g + momentum * velocity if nesterov else velocity)
        elif name == "adagrad":
            squares = squares + g**2
            p = p - rate * g / (np.sqrt(squares) + eps)
        elif name == "adadelta":
            squares = rho * squares + (1 - rho) * g**2
            change = np.sqrt(changes + eps) / np.sqrt(squares + eps) * g
            changes = rho * changes + (1 - rho) * change**2
            p = p - rate * change
        else:
            p = p * (1 - rate * weight_decay) if name == "adamw" else p
            velocity = betas[0] * velocity + (1 - betas[0]) * g
            squares = betas[1] * squares + (1 - betas[1]) * g**2
            mean, variance = velocity / (1 - betas[0] ** (step + 1)), squares / (1 - betas[1] ** (step + 1))
            p = p - rate * mean / (np.sqrt(variance) + eps)
    return p


RATES = {
    "constant": constant(0.1), "cosine": cosine(0.1, 7), "stepwise": stepwise(0.1, 3, 0.5),
    "from 0": lambda step: max(0.0, 0.05 * (step - 2)),
    "through 0": lambda step: (0.1, 0.05, 0.0, 0.0, 0.02, 0.1, 0.0, 0.3)[step],
}  # fmt: skip
OPTIONS = [
    ("sgd", {}), ("sgd", {"momentum": 0.9, "l2": 0.01}), ("sgd", {"momentum": 0.9, "nesterov": True, "l1": 0.02}),
    ("adam", {"l2": 0.1, "l1": 0.05}), ("adam", {"betas": (0.5, 0.8), "eps": 0.1}), ("adamw", {"weight_decay": 0.3}),
    ("adagrad", {"eps": 0.01, "l1": 0.1}), ("adadelta", {"rho": 0.7, "eps": 0.1, "l2": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize("schedule", RATES)
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_equals_the_textbook(name, options, schedule):
    use(replace(kernels(), chunk=3))  # several chunks, the last one short
    net = network()
    start, optimizer = to_host(net.params).copy(), OPTIMIZERS[name](net, RATES[schedule], **options)
    for _ in range(8):
        net.grads[:] = xp.sin(net.params + net.step)
        optimizer.step()
        net.step += 1
    assert np.allclose(to_host(net.params), textbook(name, start, RATES[schedule], 8, **options), rtol=1e-12, atol=1e-14)


def gradient(size, step):
    """Made up: of both signs, of many sizes, and 0 here and there."""
    index = np.arange(size)
    return (index % 11 > 0) * np.sin(index * index + step) * 10.0 ** (3 * np.cos(index))


def train(net, optimizer, steps):
    for _ in range(steps):
        net.grads[:] = to_device(gradient(net.size, net.step))
        optimizer.step()
        net.step += 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_that_is_loaded_goes_on_bit_by_bit(name):
    options = {"momentum": 0.9} if name == "sgd" else {}
    net, other = network(), network()
    optimizer, resumed = (OPTIMIZERS[name](one, cosine(0.1, 10), **options) for one in (net, other))
    train(net, optimizer, 4)
    other.params[:], other.step = net.params, net.step
    resumed.load_state({k: to_host(v).copy() for k, v in optimizer.state_arrays().items()}, optimizer.state_numbers())
    train(net, optimizer, 4)
    train(other, resumed, 4)
    assert resumed.updates == 8 and np.array_equal(to_host(net.params), to_host(other.params))
    assert SGD(network(), 0.1).state_arrays() == {}, "without momentum there is no state"


def test_a_long_gradient_is_shortened_before_penalties_are_added():
    """A step with plain SGD shows the gradient; one that is short enough stays as it is."""
    net = network()
    start, gradient = to_host(net.params).copy(), np.arange(1.0, 9.0)
    for clip, length in ((2.0, 2.0), (100.0, np.linalg.norm(gradient))):
        net.params[...], net.grads[...] = to_device(start), to_device(gradient)
        SGD(net, 1.0, l2=0.5, clip_norm=clip).step()
        moved = start - to_host(net.params) - 0.5 * start
        assert np.allclose(moved, gradient * length / np.linalg.norm(gradient), rtol=1e-6)


def test_schedules():
    for text, total, rates in (
        ("step:2:0.1", 9, {0: 1, 1: 1, 2: 0.1, 4: 0.01}),
        ("cosine", 10, {0: 1, 5: 0.5, 10: 0, 11: 0}),
        ("constant,warmup:4", 10, {0: 0.2, 1: 0.4, 4: 1, 9: 1}),
    ):
        schedule = parse_schedule(text, 1.0, total)
        assert [schedule(step) for step in rates] == pytest.approx(list(rates.values()))
    for text in ("linear", "step:0:0.1", "constant,warmup:-1"):
        with pytest.raises(ValueError, match="schedule|warm-up"):
            parse_schedule(text, 1.0, 10)
    for rate in math.nan, -0.1:
        with pytest.raises(ValueError, match=f"the schedule gives the learning rate {rate} at step 0"):
            SGD(network(), lambda step, rate=rate: rate)
    optimizer = SGD(network(), 0.1)
    for optimizer.lr in constant(0.3), 0.3:  # may be changed between two steps
        assert optimizer.rate() == 0.3


# ----- early stopping


@pytest.mark.parametrize(
    ("values", "arguments", "expected"),  # (the epoch of the stop or None, the best epoch, which epochs improved)
    [
        ([3, 4, 5, 2, 3, 3, 3, 9], (3,), (7, 4, [1, 4])),
        ([3, 2.95, 2.5, 2.45, 2.41], (2, 0.1), (5, 3, [1, 3])),  # small falls do not add up unseen: 2.5 stays the best
        ([math.nan, 5, math.nan, math.nan], (2,), (4, 2, [2])),
    ],
)
def test_training_stops_once_patience_runs_out(values, arguments, expected):
    """Also where it goes on from its state after each epoch."""
    early, improved, stopped = EarlyStopping(*arguments), [], None
    for epoch, value in enumerate(values, start=1):
        improved += [epoch] * early.see(value)
        state, early = early.state(), EarlyStopping(*arguments)
        early.restore(json.loads(json.dumps(state)))
        if early.stop:
            stopped = epoch
            break
    assert (stopped, early.best_epoch, improved) == expected
