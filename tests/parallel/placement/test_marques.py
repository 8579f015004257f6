"""The plan "marques": a master and its slaves send what equation 5.1 says. Random networks train with it, bit for bit."""

import numpy as np

from gridgrad.experiments.papers import marques2016_scaling as volumes
from gridgrad.nn import (
    SGD,
    Conv2d,
    Flatten,
    Linear,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    SoftmaxCrossEntropy,
)
from gridgrad.nn.sequence import shapes
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.placement.placements import MASTER
from tests.mpi import mpi
from tests.parallel.equality import block, grids

SHAPE = 13, 12, 3


def net_of():
    """Layers as those of the paper's networks, with sizes that nothing divides, and a branch."""
    layers = [Conv2d(3, 7, 5), LocalResponseNorm(5), MaxPool2d(2), Residual([Conv2d(7, 7, 3, padding=1, bias=False)]),
              Conv2d(7, 11, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(11, 5)]  # fmt: skip
    return Sequential(layers, input_shape=SHAPE)


@mpi(2, 3, 4)
def test_a_step_sends_what_equation_5_1_says(comm):
    x, y = np.ones((6, *SHAPE), np.float32), np.zeros(6, int)
    for sizes in grids(comm.size):
        ranks = sizes["model"]
        for weights in (None, [3, 0, 1.5, 1][:ranks], [0] * (ranks - 1) + [1]):
            with ProcessGrid(comm, **sizes) as grid:
                net = parallelize(net_of(), grid, "marques", shares={"model": tuple(weights)} if weights else None)
                expected = []
                for layer, before, after in shapes(net_of().layers, SHAPE):
                    if layer.kind == "conv":
                        kernels = tuple(net.splits["model"].of_length(layer.outputs).sizes)
                        expected.append(volumes.MarquesConvolution(before, after, layer.window.kernel, kernels))
                train_step(net, SoftmaxCrossEntropy(), SGD(net, 0.1), *block(net, x, y), 6)
                mine = sum(record.bytes for (_, kind), record in grid.tally.records.items() if kind.startswith("hand"))
                assert comm.allreduce(mine) == volumes.marques_step(6, expected, sizes["batch"]), (sizes, weights)
                rank = grid.coordinates["model"]
                assert mine == 0 or not weights or rank == MASTER or weights[rank], "a slave without kernels sends nothing"
