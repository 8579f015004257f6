"""Minibatches of random numbers, for programs that time training steps."""

import numpy as np

from gridgrad.experiments.common.options import process_grid_of, user_input
from gridgrad.nn.device import to_device
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import parallelize
from gridgrad.parallel.grid.devices import use_device


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


def problem_of(args, comm):
    """(grid, network on it, x and y of this rank) that the options of `add_problem`, `add_grid` and `add_device` name.

    Collective. UserError for options that do not fit.
    """
    with user_input():
        use_device(comm, args.device, args.tf32)
        grid = process_grid_of(args, comm)
        serial = network_names.build(args.net, args.shape, args.outputs)
        net = parallelize(serial, grid, reduction="plain")
    return grid, net, *own_block(net, *minibatch(serial.input_shape, args.outputs, args.batch_size))
