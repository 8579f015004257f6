"""Minibatches of random numbers, for programs that time training steps."""

import numpy as np

from gridgrad.nn.device import to_device


def minibatch(shape, outputs, batch_size, loss="cross-entropy"):
    """(x, y) of made-up samples of `shape`: y are labels below `outputs` or, for "mse", `outputs` values for each sample."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch_size, *shape), np.float32)
    if loss == "mse":
        return x, rng.standard_normal((batch_size, outputs), np.float32)
    return x, rng.integers(0, outputs, batch_size)


def own_block(net, x, y):
    """The part of a global minibatch on the host that a rank of a ParallelSequential trains on, on its device."""
    mine, outputs = net.input_block(len(x)), net.output_rows(len(x))
    return to_device(np.ascontiguousarray(x[mine])), to_device(y[outputs])
