"""The passes of chunks, one after another, are those of the whole network."""

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
from gridgrad.nn.device import to_device, to_host
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
    for cuts in combinations_with_replacement(range(len(layers()) + 1), 2):
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
        if halves:
            for chunk, mine in zip(chunks, contexts, strict=True):
                if chunk.layers:
                    chunk.parameter_gradients(mine)
        assert np.allclose(to_host(net.grads), to_host(whole.grads), rtol=1e-12, atol=1e-13), cuts
        for (_, a), (_, b) in zip(net.buffers, whole.buffers, strict=True):
            assert np.array_equal(to_host(a.value), to_host(b.value))


def test_an_empty_chunk_passes_everything_on():
    x, context = np.ones((2, 3)), Context()
    chunk = Chunk([])
    assert chunk.forward(x, context) is x and chunk.size == 0
    for compute in (chunk.backward, chunk.input_gradients):
        assert compute(x, context) is x and compute(x, context, input_gradient=False) is None
    chunk.parameter_gradients(context)
