"""All ways to bring samples to the ranks bring the same ones, with the bytes of the paper; an epoch visits each sample once.

What is evaluated and predicted with them is that of the serial network.
"""

import numpy as np
import pytest

from gridgrad.datasets import Part
from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.nn import Conv2d, Flatten, Linear, ReLU, Sequential
from gridgrad.parallel import ProcessGrid, evaluate, parallelize, predict
from gridgrad.parallel.training.steps import minibatch_indices, steps_per_epoch
from tests.mpi import mpi


@mpi(2, 4)
def test_readers_agree_and_so_do_evaluations_and_predictions(comm):
    """Where inputs and targets are divided in different ways, or some ranks have nothing. Errors have the units of the data."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (29, 7, 5, 3)).astype(np.uint8), rng.integers(0, 3, 29).astype(np.uint8)
    targets, mean, scale = rng.standard_normal((29, 3)), np.arange(3.0), np.array([2.0, 3.0, 5.0])
    part = Part(x, y, np.ones(3), np.full(3, 2.0), dtype=np.float64)
    values = Part(x, targets, np.ones(3), np.full(3, 2.0), mean, scale, dtype=np.float64)
    serial = Sequential([Conv2d(3, 4, 3, padding=1), ReLU(), Flatten(), Linear(140, 3)], 4, np.float64, (7, 5, 3))
    outputs = serial.predict((x - 1.0) / 2)
    right = 100 * np.mean(outputs.argmax(axis=1) == y)
    errors = np.sqrt(np.square(outputs * scale + mean - targets).mean(axis=0))
    indices = np.array([28, 0, 7, 9, 2, 2, 13, 5])
    for sizes, plan, shares in (
        ({"height": 2}, "fewest-bytes", None),
        ({"model": 2}, "in", None),
        ({"model": 2}, "out,redundant", None),
        ({"model": 2}, "conv=width,linear=in", {"model": (0, 2)}),
        ({"stage": 2}, None, None),
    ):
        with ProcessGrid(comm, batch=comm.size // 2, **sizes) as grid:
            net = parallelize(serial, grid, plan, shares=shares)
            for name, reader in READERS.items():
                block, labels = reader(net, part).load(indices)
                assert np.array_equal(block, (x[indices][net.input_block(8)] - 1.0) / 2), (name, sizes, plan)
                assert np.array_equal(labels, y[indices][net.output_rows(8)]), (name, sizes, plan)
                found = evaluate(net, part, "cross-entropy", reader(net, part), batch_size=7)
                assert found["accuracy"] == pytest.approx(right) and comm.bcast(found) == found, (name, sizes, plan)
            assert evaluate(net, values, "mse", reader(net, values), batch_size=7)["rmse"] == pytest.approx(errors, rel=1e-10)
            predicted = predict(net, values, reader(net, values), batch_size=7)
            assert (predicted is None) == (comm.rank > 0) and (comm.rank or np.allclose(predicted, outputs, rtol=1e-10))


@mpi(4)
def test_scatters_send_the_bytes_of_the_paper(comm):
    """Model ranks that need the same rows: the scatter sends them n_b n_m blocks, the other way n_b and a broadcast."""
    part = Part(np.ones((29, 7)), np.zeros(29, np.uint8), np.zeros(()), np.ones(()), dtype=np.float64)
    block, labels = 4 * 7 * 8, 4 * 8  # bytes of the 4 samples of a batch block
    with ProcessGrid(comm, batch=2, model=2) as grid:
        net = parallelize(Sequential([Linear(7, 11), ReLU(), Linear(11, 3)], dtype=np.float64), grid, "out")
        for name, expected in (
            ("scatter", [3 * block + 1.5 * labels, 0]),
            ("scatter-broadcast", [block + labels, 2 * (block + labels)]),
        ):
            grid.tally.clear()
            READERS[name](net, part).load(np.arange(8))
            records = grid.tally.records
            assert [comm.allreduce(records["minibatch", kind].bytes) for kind in ("scatter", "broadcast")] == expected


@pytest.mark.parametrize(("count", "batch_size"), [(29, 7), (28, 7), (5, 1)])
def test_an_epoch_visits_every_sample_once(count, batch_size):
    per_epoch = steps_per_epoch(count, batch_size)
    orders = []
    for epoch in range(2):
        batches = [minibatch_indices(count, batch_size, 0, epoch * per_epoch + step) for step in range(per_epoch)]
        assert {e for _, e in batches} == {epoch}
        assert all(len(b) == batch_size for b, _ in batches[:-1])
        orders.append(np.concatenate([b for b, _ in batches]).tolist())
        assert sorted(orders[-1]) == list(range(count))
    assert orders[0] != orders[1]
