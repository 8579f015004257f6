"""Training on one rank and on every grid, to be compared: what the tests of whole networks share."""

from itertools import product
from math import prod

import numpy as np

from gridgrad.nn import LOSSES, Context
from gridgrad.nn.device import to_device
from gridgrad.parallel import parallelize
from gridgrad.parallel.grid.devices import ranks_on_cpus
from gridgrad.parallel.placement.partition import Partition, size

RANKS = 1, 2, 3, 4, 5, 6, 7, 8
SMALL = 1e-3  # of the largest number of a state: rounding of float32, 1e-7 of that, is then 1e-4 of the least scale


def grids(ranks, axes=("batch", "model")):
    """All grids of `ranks` places over the axes."""
    sizes = product(range(1, ranks + 1), repeat=len(axes))
    return [dict(zip(axes, places, strict=True)) for places in sizes if prod(places) == ranks]


def on_cpus(comm):
    """Whether all ranks compute on CPUs. Collective."""
    return len(ranks_on_cpus(comm)) == comm.size


def serial(net, optimizer, loss, batches, micro_batches=1):
    """The losses and the state after a step on each (x, y) by the plain Sequential, with no parallel code involved.

    optimizer: a function of a network. loss: a Loss or its name. micro_batches: into how many parts each minibatch is cut;
    their gradients are added here.
    """
    optimizer, loss, losses = optimizer(net), LOSSES[loss]() if isinstance(loss, str) else loss, []
    context = Context()
    for x, y in batches:
        total, gradients = 0.0, 0.0
        for part in micro_batches_of(len(x), micro_batches):
            outputs = net.forward(to_device(x[part]), context, size(part), part.start, minibatch_size=len(x))
            total += loss.forward(outputs, to_device(y[part]), context)
            net.backward(loss.backward(context), context)
            gradients = gradients + net.grads
        net.grads[:] = gradients
        losses.append(total)
        optimizer.step()
        net.step += 1
    return losses, net.state_dict()


def on_first(comm, reference, *arguments):
    """What `reference(*arguments)`, such as `serial`, returns: rank 0 computes it for all. Collective.

    Where a reference serves few networks, many ranks on few cores would else spend as much time on it as on what they test.
    """
    return comm.bcast(reference(*arguments) if comm.rank == 0 else None)


def micro_batches_of(samples, number):
    """The slices of a minibatch that are its micro-batches: `number` of them, or fewer where there are fewer samples."""
    return [part for part in Partition.even(samples, number).parts if size(part)]


def parallel(net, grid, plan, optimizer, loss, batches, micro_batches=1, **options):
    """The same by the network that this rank of a grid runs. options: of `parallelize`."""
    net, losses = parallelize(net, grid, plan, **options), []
    optimizer = optimizer(net)
    for x, y in batches:
        mine = [(*block(net, x[part], y[part]), size(part)) for part in micro_batches_of(len(x), micro_batches)]
        losses.append(net.trainer(LOSSES[loss](), optimizer).complete_step(mine, len(x)))
    return losses, net.state_dict(everywhere=True)


def block(net, x, y):
    """This rank's block of a minibatch."""
    return np.ascontiguousarray(x[net.input_block(len(x))]), y[net.output_rows(len(x))]


def assert_same(found, expected, tolerance, words):
    """Fail, with `words`, unless two results of training, (losses, state) each, agree within a relative tolerance."""
    (losses, state), (expected_losses, expected_state) = found, expected
    assert np.allclose(losses, expected_losses, rtol=tolerance, atol=tolerance), f"{words}: {losses} {expected_losses}"
    assert error(state, expected_state) < tolerance, f"{words}: {error(state, expected_state)}"


def error(state, expected):
    """The largest relative difference of two states that hold the same arrays: infinite where one of them is not finite.

    An array is measured by its own largest number, so that a wrong one that is small is not lost beside large ones. Some
    arrays are nothing but rounding, such as a bias before a BatchNorm, whose gradient is zero: they have no digits to
    compare. That is why no array is measured by less than SMALL times the largest number of the state.
    """
    assert {name: value.shape for name, value in state.items()} == {name: value.shape for name, value in expected.items()}
    if not all(np.isfinite(value).all() for value in (*state.values(), *expected.values())):
        return np.inf
    largest = {name: np.abs(value).max(initial=0) for name, value in expected.items()}
    least = SMALL * max(largest.values()) or 1.0
    return max(np.abs(state[name] - value).max(initial=0) / max(largest[name], least) for name, value in expected.items())
