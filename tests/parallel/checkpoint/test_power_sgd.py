"""PowerSGD goes on with what it has not passed on yet: bit by bit on the same grid, as a sum on another one."""

from functools import partial

import numpy as np

from gridgrad.nn import SGD, Linear, Sequential, Tanh
from gridgrad.nn.device import to_host
from gridgrad.nn.kernels.window import put
from gridgrad.parallel import ProcessGrid
from gridgrad.parallel.checkpoint.state import states_of
from gridgrad.parallel.sync import power_sgd
from tests.mpi import mpi
from tests.parallel.checkpoint.training import Training, folder, minibatches
from tests.parallel.equality import grids

SAVED, STEPS = 4, 6


def network():
    layers = [Linear(12, 9), Tanh(), Linear(9, 11), Tanh(), Linear(11, 3)]
    return Sequential(layers, seed=3, dtype=np.float64, input_shape=(12,))


class WithError(Training):
    """A Training whose gradients are sums by PowerSGD."""

    def __init__(self, grid, **options):
        super().__init__(grid, network(), partial(SGD, lr=0.05, momentum=0.5), reduction="powersgd:2", **options)
        self.participants |= states_of(self.net)

    def error(self):
        """{name: what was not passed on yet, as a global array}. Collective."""
        found, grid = {}, self.grid
        for layer, p, where in self.net.reduction.places:
            whole = np.zeros(p.shape)
            put(whole, p.index, to_host(self.net.reduction.error[where]).reshape(p.block_shape))
            found[f"{layer.name}.{p.name}"] = grid.comm.allreduce(whole)
        return found


@mpi(4)
def test_errors_and_factors_are_kept(comm, monkeypatch):
    monkeypatch.setattr(power_sgd, "UNCOMPRESSED_STEPS", 2)
    batches = minibatches(STEPS, (12,))
    for sizes in grids(comm.size):
        with folder(comm) as directory:
            with ProcessGrid(comm, **sizes) as grid:
                whole = WithError(grid).train(batches[:SAVED]).save(directory)
                error = whole.error()
                assert max(np.abs(value).max() for value in error.values()) > 1e-3 or sizes["batch"] == 1
                whole.train(batches)
            for other in grids(comm.size):
                with ProcessGrid(comm, **other) as grid:
                    again = WithError(grid).resume(directory)
                    assert again.net.reduction.sums == SAVED
                    for name, value in again.error().items():
                        assert np.allclose(value, error[name], rtol=1e-12, atol=1e-14), (sizes, other, name)
                    again.train(batches)
                    assert np.isfinite(again.losses).all()
                    if other == sizes:
                        assert again.losses == whole.losses[SAVED:], sizes
                        assert all(np.array_equal(*pair) for pair in zip(again.bits()[0], whole.bits()[0], strict=True)), sizes


@mpi(2)
def test_before_anything_was_compressed_there_is_no_error(comm):
    batches = minibatches(STEPS, (12,))
    with folder(comm) as directory, ProcessGrid(comm, batch=2) as grid:
        whole = WithError(grid).train(batches[:SAVED]).save(directory).train(batches)
        again = WithError(grid).resume(directory).train(batches)
        assert again.losses == whole.losses[SAVED:] and again.net.reduction.sums == STEPS
        assert not any(value.any() for value in again.error().values())
