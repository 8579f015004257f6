"""PowerSGD: what is sent, what is kept, and that nothing is lost. That it trains on any grid is in random_networks."""

import numpy as np
import pytest

from gridgrad.nn import Linear, ReLU, Sequential, Tanh
from gridgrad.nn.device import to_device, to_host, xp
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid.collectives import all_reduce_elements
from gridgrad.parallel.sync import power_sgd
from gridgrad.parallel.sync.power_sgd import CompressedSum, orthonormal
from tests.mpi import mpi


def mlp(dtype=np.float64):
    """Wide and tall matrices, and one that is not worth compressing."""
    layers = [Linear(7, 31), Tanh(), Linear(31, 17), ReLU(), Linear(17, 19), Tanh(), Linear(19, 2)]
    return Sequential(layers, seed=3, dtype=dtype)


def summed(net, array):
    """The sums of an array, laid out as `net.grads`, over the ranks that hold each parameter. Collective."""
    total = array.copy()
    for group, where in net.reduction.runs:
        group.all_reduce(total[where], "test")
    return to_host(total)


def random_gradients(net, rng):
    """Put random numbers into the gradients of a network, other ones on each rank; returns a copy."""
    net.reduction.start()
    net.grads[...] = to_device(rng.standard_normal(net.size).astype(net.dtype))
    return net.grads.copy()


@mpi(2, 3)
def test_steps_are_those_of_the_paper(comm):
    """Algorithms 1 and 2, with means, as the paper has them, and with a library's QR."""
    rng = np.random.default_rng(2)  # the same on all ranks
    with ProcessGrid(comm, batch=comm.size) as grid:
        for shape in ((9, 14), (14, 9), (3, 2, 2, 7)):
            arrays = [xp.zeros(shape, np.float64) for _ in range(2)]
            found = CompressedSum(grid.world, 3, 0, [("weight", *arrays)])
            q, errors = to_host(found.matrices[0].q).copy(), 0.0
            for _ in range(4):
                gradients = rng.standard_normal((comm.size, *shape))
                arrays[0][...] = to_device(gradients[comm.rank])
                found.reduce()
                deltas = gradients.reshape(comm.size, -1, shape[-1])
                deltas = errors + (deltas.transpose(0, 2, 1) if deltas.shape[1] > deltas.shape[2] else deltas)
                p, _ = np.linalg.qr((deltas @ q).mean(axis=0))
                q = (deltas.transpose(0, 2, 1) @ p).mean(axis=0)
                errors, mean = deltas - p @ q.T, p @ q.T
                for array, expected in zip(arrays, (mean * comm.size, errors[comm.rank]), strict=True):
                    array = to_host(array).reshape(-1, shape[-1])
                    assert np.allclose(array if array.shape == mean.shape else array.T, expected, rtol=0, atol=1e-12), shape


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 5), (40, 4)])
def test_columns_become_orthonormal_and_span_the_same(rows, columns):
    full = np.random.default_rng(rows).standard_normal((rows, columns))
    dependent, some_zero = full * [1, *[0] * (columns - 1)] + full[:, :1], full.copy()
    some_zero[: rows // 2], some_zero[:, -1] = 0, 0
    for matrix in (full, full * 1e-30, full.astype(np.float32), dependent, some_zero, np.zeros((rows, columns))):
        found = orthonormal(matrix)
        assert np.allclose(found.T @ found, np.eye(columns), rtol=0, atol=1e-14)
        assert np.allclose(found @ (found.T @ matrix), matrix, rtol=0, atol=1e-14 * np.abs(matrix).max())
    full[0, 0] = np.nan
    assert np.isnan(orthonormal(full)).any()


@mpi(2, 3)
def test_bytes_are_those_of_the_factors(comm, monkeypatch):
    monkeypatch.setattr(power_sgd, "UNCOMPRESSED_STEPS", 0)
    shapes = [(7, 31), (31, 17), (17, 19)]
    whole = 31 + 17 + 19 + 19 * 2 + 2  # the biases and the last matrix
    messages = [2 * sum(map(min, shapes)), 2 * sum(map(max, shapes)) + whole]
    with ProcessGrid(comm, batch=comm.size) as grid:
        net = parallelize(mlp(np.float32), grid, reduction="powersgd:2")
        grid.tally.clear()
        for _ in range(3):
            net.reduction.finish()
        record = grid.tally.records["gradients", "all-reduce"]
        assert record.calls == 3 * len(messages)
        assert record.bytes == 3 * 4 * sum(all_reduce_elements(n, comm.size, comm.rank) for n in messages)


@mpi(4)
def test_what_is_applied_and_what_is_kept_are_all_there_is(comm, monkeypatch):
    """Matrices that several ranks hold are compressed where that saves something, after some steps; copies are equal."""
    monkeypatch.setattr(power_sgd, "UNCOMPRESSED_STEPS", 1)
    rng = np.random.default_rng(comm.rank)
    with ProcessGrid(comm, batch=2, model=2) as grid:
        net = parallelize(mlp(), grid, "out", reduction="powersgd:2")
        kept = np.zeros(net.size)
        for step in range(3):
            there_is = summed(net, random_gradients(net, rng)) + kept
            net.reduction.finish()
            assert (net.reduction.error is None) == (step == 0)
            kept = summed(net, net.reduction.error) if step else kept
            assert np.allclose(to_host(net.grads) + kept, there_is, rtol=0, atol=1e-12), step
        for group, where in net.reduction.runs:
            found = to_host(net.grads[where])
            assert all(np.array_equal(found, other) for other in group.comm.allgather(found))
        for layer, p, where in net.reduction.places:
            rows, columns = p.size // p.block_shape[-1], p.block_shape[-1]
            is_compressed = 2 * (rows + columns) < rows * columns
            assert bool(to_host(net.reduction.error[where]).any()) == is_compressed, f"{layer.name}.{p.name}"
