"""Networks that end with branches of which the first has no weights equal serial: the ranks agree on who has which gradient."""

from functools import partial

import numpy as np

from nn import SGD, BatchNorm, Concat, Dropout, Linear, ReLU, Residual, Sequential, Tanh
from parallel import ProcessGrid
from tests.mpi import mpi
from tests.parallel.equality import assert_same, grids, on_first, parallel, serial

ENDS = {
    "residual": lambda: [Residual([], [Linear(5, 5), Tanh()])],
    "concat": lambda: [Concat([], [Linear(5, 5), Tanh()])],
    "activation behind": lambda: [Linear(5, 5, bias=False), Residual([], [Linear(5, 5), Tanh()]), ReLU()],
    "dropout behind": lambda: [Linear(5, 4), Concat([Tanh()], [Linear(4, 3)]), Dropout(0.3)],
    "norms": lambda: [BatchNorm(5), Residual([], [Linear(5, 5), BatchNorm(5)]), Linear(5, 4), BatchNorm(4)],
}


@mpi(2, 3, 4)
def test_any_end_of_a_network_equals_serial(comm):
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((n, 5)), rng.integers(0, 4, n)) for n in (6, 3, 7)]
    training = partial(SGD, lr=0.1, momentum=0.9), "cross-entropy", batches
    for name, layers in ENDS.items():
        make = lambda layers=layers: Sequential(layers(), seed=1, dtype=np.float64, input_shape=(5,))  # noqa: E731
        expected = on_first(comm, serial, make(), *training)
        for sizes in grids(comm.size):
            for plan in ("out", "in", "laugier"):
                with ProcessGrid(comm, **sizes) as grid:
                    found = parallel(make(), grid, plan, *training)
                assert_same(found, expected, 1e-10, f"{name} {sizes} {plan}")
