"""A new communicating layer is one file and its rows: it runs, is counted, priced, calibrated and traced."""

from functools import partial

import numpy as np

from gridgrad.nn import SGD, Linear, ReLU, Residual, Sequential
from gridgrad.parallel import PLANS, ProcessGrid
from gridgrad.parallel.grid.collectives import COLLECTIVES
from tests.mpi import mpi
from tests.parallel.equality import assert_same, grids, parallel, serial
from tests.parallel.placement import ring_layer
from tests.parallel.prediction.test_cost import compare, dense, images


def know(monkeypatch):
    """Put the rows into their tables."""
    monkeypatch.setitem(COLLECTIVES, ring_layer.KIND, ring_layer.COLLECTIVE)
    monkeypatch.setitem(PLANS, "ring", ring_layer.PLAN)


def network():
    layers = [Linear(7, 31), ReLU(), Linear(31, 11), ReLU(), Linear(11, 3)]
    return Sequential(layers, seed=3, dtype=np.float64, input_shape=(7,))


@mpi(2, 3, 4, 5, 6, 7, 8, long=(5, 6, 7, 8))
def test_it_trains_the_serial_network(comm, monkeypatch):
    know(monkeypatch)
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((13, 7)), rng.integers(0, 3, 13)) for _ in range(4)]
    sgd = partial(SGD, lr=0.02, momentum=0.9)
    expected = serial(network(), sgd, "cross-entropy", batches)
    for sizes in grids(comm.size):
        for plan in ("ring", "in,ring,ring", "ring,ring,in"):
            with ProcessGrid(comm, **sizes) as grid:
                found = parallel(network(), grid, plan, sgd, "cross-entropy", batches)
            assert_same(found, expected, 1e-10, f"{sizes} {plan}")


class Doubled(Residual):
    def forward(self, x, context):
        return 2 * super().forward(x, context)

    def backward(self, dy, context):
        return super().backward(2 * dy, context)


@mpi(2, 4)
def test_a_layer_with_branches_of_another_class_keeps_its_own_passes(comm):
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((13, 7)), rng.integers(0, 3, 13)) for _ in range(4)]

    def net():
        layers = [Linear(7, 9), Doubled([Linear(9, 11), ReLU(), Linear(11, 9)]), Linear(9, 3)]
        return Sequential(layers, seed=3, dtype=np.float64, input_shape=(7,))

    sgd = partial(SGD, lr=0.02)
    expected = serial(net(), sgd, "cross-entropy", batches)
    for sizes in grids(comm.size):
        for plan in ("fewest-bytes", "out", "redundant"):
            with ProcessGrid(comm, **sizes) as grid:
                assert_same(parallel(net(), grid, plan, sgd, "cross-entropy", batches), expected, 1e-10, f"{sizes} {plan}")


@mpi(2, 3, 4)
def test_its_bytes_are_those_that_are_priced(comm, monkeypatch):
    know(monkeypatch)
    compare(comm, dense, ("batch", "model"), ("ring", "in,ring,ring"), (13, 3))
    compare(comm, images, ("batch", "model"), ("ring",), (5,))


@mpi(2, 3)
def test_it_is_calibrated(comm, monkeypatch):
    know(monkeypatch)
    with ProcessGrid(comm, model=comm.size) as grid:
        COLLECTIVES[ring_layer.KIND].trial(grid.group("model"), 11)()
        sent = sum(record.bytes for (_, kind), record in grid.tally.records.items() if kind == ring_layer.KIND)
        assert comm.allreduce(sent) == 4 * 11 * (comm.size - 1)


def test_a_trace_knows_for_whom_it_waits(monkeypatch):
    know(monkeypatch)
    assert [max([2, 1, 3][COLLECTIVES[ring_layer.KIND].needs(place)]) for place in range(3)] == [3, 3, 3]
