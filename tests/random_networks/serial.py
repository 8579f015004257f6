"""What is true of every serial network: its gradients are those of finite differences, and its memory may be used again."""

from dataclasses import replace

import numpy as np
import pytest

from gridgrad.nn import Context, device
from gridgrad.nn.device import to_device, to_host
from gridgrad.nn.kernels.workspace import Workspace

STEPS = 1e-6, 1e-5, 1e-7  # of differences: where a kink lies within one, another one decides
TOLERANCE = 1e-6  # of a difference, relative to the derivative and the loss, at least 1


def gradients_equal_differences(case):
    """The gradients of the loss of a Case with respect to each array of parameters, and to the input."""
    net, x, y = prepared(case)
    context, loss = Context(), case.make_loss()

    def value():
        return loss.forward(net.forward(x, context), y, context)

    value()
    dx = to_host(net.backward(loss.backward(context), context, input_gradient=True)).copy()
    grads = to_host(net.grads).copy()
    start, rng = 0, case.rng
    for layer, parameter in net.parameters:
        where = slice(start, start + parameter.size)
        start = where.stop
        if type(layer).__name__ == "SparseLinear" and parameter is layer.weight:
            kept = to_host(parameter.kept).ravel()
            assert not grads[where][~kept].any(), (f"{layer.name}.{parameter.name}", case)  # those weights stay zero
            direction = rng.standard_normal(parameter.size) * kept
        else:
            direction = rng.standard_normal(parameter.size)
        along = (direction * grads[where]).sum()
        assert is_derivative(value, net.params[where], direction, along), (f"{layer.name}.{parameter.name}", case)
    direction = rng.standard_normal(x.shape)
    assert is_derivative(value, x, direction, (direction * dx).sum()), ("the input", case)


def is_derivative(value, array, direction, expected):
    """Whether the derivative of value() along a direction of an array, which it depends on, is as expected."""
    kept, direction = array.copy(), to_device(direction)
    for step in STEPS:
        array[...] = kept + step * direction
        high = value()
        array[...] = kept - step * direction
        low = value()
        array[...] = kept
        found = (high - low) / (2 * step)
        if abs(found - expected) <= TOLERANCE * max(1.0, abs(expected), abs(high)):
            return True
    return False


def prepared(case):
    """(the network with a random state, x, y) of a Case, on the device."""
    case = replace(case, samples="normal")  # integers are at kinks: zeros, and pixels that are equal
    net, (x, y) = case.network(), case.batches()[0]
    net.load_state_dict(case.state())
    return net, to_device(x), to_device(y)


def memory_may_be_used_again(case):
    """All orders of the passes give the same bits where every array has memory of its own, which holds NaN at first."""
    results = []
    for fresh in (False, True):
        net, x, _ = prepared(case)
        dy = to_device(case.rng.standard_normal(net.forward(x).shape))
        with pytest.MonkeyPatch.context() as patched:
            if fresh:
                fresh_memory(patched)
            results.append(passes(net, x, dy))
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True)), case


def halves_are_the_whole(case):
    """The two halves of backward, called apart, give what backward does, with and without the gradient of the input."""
    net, x, _ = prepared(case)
    dy = to_device(case.rng.standard_normal(net.forward(x).shape))
    found = passes(net, x, dy)
    for a, b in zip(found[: len(found) // 2], found[len(found) // 2 :], strict=True):
        assert np.abs(a - b).max(initial=0) <= 1e-12 * max(1.0, np.abs(a).max(initial=0)), case


def passes(net, x, dy):
    """What the orders of the passes compute, as host arrays, first for backward as a whole, then for its halves.

    These are outputs, gradients of the input, and those of the parameters, with and without computing that of the input.
    """
    context, found = Context(), []
    for halves in (False, True):
        outputs = to_host(net.forward(x, context)).copy()
        if halves:
            dx = to_host(net.input_gradients(dy.copy(), context, input_gradient=True)).copy()
            net.parameter_gradients(context)
        else:
            dx = to_host(net.backward(dy.copy(), context, input_gradient=True)).copy()
        grads = to_host(net.grads).copy()
        net.forward(x, context)
        if halves:
            net.input_gradients(dy.copy(), context)
            net.parameter_gradients(context)
        else:
            net.backward(dy.copy(), context)
        found += [outputs, dx, grads, to_host(net.grads).copy()]
        net.forward(x)  # an evaluation, after which training goes on
    return found


def fresh_memory(monkeypatch):
    """From now on every array that a workspace returns has memory of its own, which holds NaN, or the like, at first.

    An array that is overwritten while it is still needed then keeps its numbers, and one that is read before it is written
    gives NaN: either way the result differs from the usual one.
    """

    def fresh(workspace, name, shape, dtype):
        array = device.empty(int(np.prod(shape)), dtype).reshape(shape)
        array.fill(np.nan if np.dtype(dtype).kind == "f" else 1)
        workspace._spaces[name] = array, array.reshape(-1)
        return array

    monkeypatch.setattr(Workspace, "__call__", fresh)
