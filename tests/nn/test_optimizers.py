import math

import numpy as np
import pytest

from nn import SGD, Linear, Sequential, schedules


def reference(steps, lr, momentum, nesterov, l2, l1):
    """The textbook update in float64, element by element."""
    net = Sequential([Linear(3, 2)], seed=1, dtype=np.float64)
    p, v = net.params.copy(), 0
    for step in range(steps):
        g = np.sin(p + step) + l2 * p + l1 * np.sign(p)
        v = momentum * v + g
        p = p - lr(step) * (g + momentum * v if nesterov else v)
    return p


@pytest.mark.parametrize("lr", [schedules.constant(0.1), schedules.cosine(0.1, 7), schedules.stepwise(0.1, 3, 0.5)])
@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.0, "nesterov": False, "l2": 0.0, "l1": 0.0},
        {"momentum": 0.9, "nesterov": False, "l2": 0.01, "l1": 0.0},
        {"momentum": 0.9, "nesterov": True, "l2": 0.0, "l1": 0.02},
        {"momentum": 0.0, "nesterov": False, "l2": 0.1, "l1": 0.1},
    ],
)
def test_equals_the_textbook(lr, options, monkeypatch):
    monkeypatch.setattr("nn.optimizers.CHUNK", 3)  # several chunks, the last one short
    net = Sequential([Linear(3, 2)], seed=1, dtype=np.float64)
    optimizer = SGD(net, lr, **options)
    for step in range(7):
        net.grads[:] = np.sin(net.params + step)
        optimizer.step()
        net.step += 1
    assert np.allclose(net.params, reference(7, lr, **options), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    "options", [{"momentum": 1.0}, {"momentum": -0.1}, {"l2": -1}, {"l1": -1}, {"nesterov": True}, {"lr": 0}, {"lr": math.nan}]
)
def test_values_out_of_range_are_refused(options):
    with pytest.raises(ValueError):
        SGD(Sequential([Linear(3, 2)]), **({"lr": 0.1} | options))


def test_schedules():
    assert [schedules.parse("step:2:0.1", 1.0, 9)(s) for s in (0, 1, 2, 4)] == pytest.approx([1, 1, 0.1, 0.01])
    cosine = schedules.parse("cosine", 1.0, 10)
    assert [cosine(s) for s in (0, 5, 10, 11)] == pytest.approx([1, 0.5, 0, 0])
    warm = schedules.parse("constant,warmup:4", 1.0, 10)
    assert [warm(s) for s in (0, 1, 4, 9)] == pytest.approx([0.2, 0.4, 1, 1])


@pytest.mark.parametrize(
    "text", ["linear", "step", "step:0:0.1", "step:x:1", "cosine:3", "constant,warmup", "constant,warmup:-1"]
)
def test_unknown_schedules_are_refused(text):
    with pytest.raises(ValueError, match="schedule|warm-up"):
        schedules.parse(text, 1.0, 10)
