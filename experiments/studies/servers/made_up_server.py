"""A parameter server without a training: workers push gradients of zeros to it and fetch the parameters."""

from gridgrad.nn import SGD, Linear, Sequential
from gridgrad.parallel.protocols.server import ParameterServer, single
from gridgrad.parallel.training.distribute import distribute


def momentum(updated):
    """An optimizer as most trainings have it."""
    return SGD(updated, lr=1e-4, momentum=0.9)


def made_up_server(workers, grid, parameters, make_optimizer=momentum):
    """An asynchronous ParameterServer with so many float32 parameters, at least 2, all of them on the first worker.

    workers: the Workers. grid: a ProcessGrid of one rank. Collective.
    """
    net = distribute(Sequential([Linear(parameters - 1, 1)]), grid)
    return ParameterServer(net, workers, make_optimizer, owners=single)


def gradient_of(protocol):
    """A gradient of zeros, as `push` takes it."""
    return protocol.counted.pack(protocol.net.grads)
