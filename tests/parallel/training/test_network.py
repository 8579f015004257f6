"""What a network on a grid gives beside training: the gradient of its input, and outputs of whole inputs."""

import numpy as np

from gridgrad.nn import MSE, BatchNorm, Concat, Context, Conv2d, Flatten, Linear, MaxPool2d, ReLU, Residual, Sequential, Tanh
from gridgrad.nn.device import to_device, to_host
from gridgrad.parallel import ProcessGrid, parallelize
from tests.mpi import mpi


def mlp(seed=0):
    return Sequential([Linear(7, 11), ReLU(), Linear(11, 3)], seed, np.float64)


def branching():
    inner = Concat([Linear(7, 5)], [Tanh(), Linear(7, 4)])
    return Sequential([Residual([Linear(7, 9), ReLU(), Linear(9, 7)]), inner, BatchNorm(9), Linear(9, 3)], dtype=np.float64)


def images():
    layers = [Conv2d(2, 3, 3, padding=1), ReLU(), MaxPool2d(2), Flatten(), Linear(18, 3)]
    return Sequential(layers, dtype=np.float64, input_shape=(6, 4, 2))


PLANS = {
    mlp: ("out,in", "in,out", "replicate,out", "redundant,out", "laugier"),
    branching: ("out", "in", "fewest-bytes"),
    images: ("out", "conv=out,linear=in", "conv=redundant,linear=in", "conv=height,linear=out"),
}


@mpi(2, 4)
def test_each_rank_gets_the_whole_gradient_of_its_input_block(comm):
    for make, plans in PLANS.items():
        net = make()
        x = np.random.default_rng(0).standard_normal((6, *(net.input_shape or (7,))))
        y = np.random.default_rng(1).standard_normal((6, 3))
        loss, context = MSE(), Context()
        loss.forward(net.forward(to_device(x), context), to_device(y), context)
        expected = to_host(net.backward(loss.backward(context), context, input_gradient=True)).copy()
        for plan in plans:
            with ProcessGrid(comm, batch=comm.size // 2, model=2) as grid:
                net = parallelize(make(), grid, plan)
                loss, mine, context = MSE(), np.ascontiguousarray(x[net.input_block(6)]), Context()
                outputs = net.forward(to_device(mine), context, batch_size=6)
                loss.forward(outputs, to_device(y[net.output_rows(6)]), context)
                dx = to_host(net.backward(loss.backward(context), context, input_gradient=True)).copy()
            assert dx.shape == mine.shape, plan
            assert np.allclose(dx, expected[net.input_block(6)], rtol=0, atol=1e-12 * np.abs(expected).max()), plan


@mpi(4)
def test_the_whole_input_is_predicted_in_the_order_of_its_samples(comm):
    """Blocks of consecutive ranks are not consecutive samples here: `model` divides these before `height` does."""
    x = np.random.default_rng(3).standard_normal((7, 6, 4, 2))
    expected = images().predict(x)
    with ProcessGrid(comm, height=2, model=2) as grid:
        net = parallelize(images(), grid, "replicate")
        found = net.predict(x)
        assert (found is None) == (comm.rank > 0)
        assert comm.rank or np.allclose(found, expected, rtol=1e-10, atol=1e-12)
