"""All ways to bring samples to the ranks bring the same ones; testing in parallel equals testing alone."""

from itertools import product

import numpy as np
import pytest

from gridgrad.datasets import Part
from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.nn import LOSSES, Context, Conv2d, Flatten, Linear, ReLU, Sequential
from gridgrad.nn.device import to_device, to_host
from gridgrad.parallel import ProcessGrid, evaluate, parallelize, predict
from gridgrad.parallel.grid.process_grid import AXES, STAGE
from gridgrad.parallel.training.steps import minibatch_indices, steps_per_epoch
from tests.mpi import mpi
from tests.parallel.equality import RANKS, grids

PLANS = ["fewest-bytes", "in,out", "replicate,in", "laugier"]


def samples(regression):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((29, 7))
    if not regression:
        return Part(x, rng.integers(0, 3, 29).astype(np.uint8), np.zeros(()), np.ones(()), dtype=np.float64)
    y = rng.standard_normal((29, 3))
    return Part(x, y, x.mean(0), x.std(0), y.mean(0), y.std(0), dtype=np.float64)


def network():
    return Sequential([Linear(7, 11), ReLU(), Linear(11, 3)], seed=4, dtype=np.float64)


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_readers_agree(comm):
    for regression, sizes, plan in product((True, False), grids(comm.size), PLANS):
        part = samples(regression)
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(network(), grid, plan)
            readers = [reader(net, part) for reader in READERS.values()]
            for indices in (np.arange(29), np.array([4, 4, 1]), np.array([28, 0, 7, 9, 2, 2, 13, 5])):
                (x, y), *others = [reader.load(indices) for reader in readers]
                for other_x, other_y in others:
                    assert other_x.dtype == x.dtype and other_y.dtype == y.dtype
                    assert np.array_equal(other_x, x) and np.array_equal(other_y, y), (sizes, plan)


@mpi(*RANKS, long=(3, 4, 5, 6, 7, 8))
def test_readers_of_images_agree(comm):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (29, 7, 5, 3)).astype(np.uint8)
    part = Part(x, rng.integers(0, 3, 29).astype(np.uint8), np.ones(3), np.full(3, 2.0), dtype=np.float64)
    layers = lambda: [Conv2d(3, 4, 3, padding=1), ReLU(), Flatten(), Linear(140, 3)]  # noqa: E731
    plans = "out", "in", "replicate", "conv=height,linear=out", "conv=width,linear=in"
    for sizes, plan, uneven in product(grids(comm.size, AXES), plans, (False, True)):
        if sizes["height"] > 1 and "height" in plan:
            continue  # the images would be split twice
        shares = {axis: tuple(range(n)) for axis, n in sizes.items() if uneven and n > 1 and axis != STAGE}
        with ProcessGrid(comm, **sizes) as grid:
            serial = Sequential(layers(), seed=4, dtype=np.float64, input_shape=(7, 5, 3))
            net = parallelize(serial, grid, plan, shares=shares)
            for indices in (np.arange(29), np.array([4, 4, 1])):
                loaded = [reader(net, part).load(indices) for reader in READERS.values()]
                for block, labels in loaded:
                    assert np.array_equal(block, (x[indices].astype(np.float64)[net.input_block(len(indices))] - 1) / 2)
                    assert np.array_equal(labels, part.y[indices][net.output_rows(len(indices))])
            expected = to_host(serial.forward(to_device(part.inputs(np.arange(29), (slice(0, 7), slice(0, 5), slice(0, 3))))))
            outputs = predict(net, part, READERS["each"](net, part), 10)
            assert comm.rank or np.allclose(outputs, expected, rtol=1e-11, atol=1e-13)
            assert evaluate(net, part, "cross-entropy", READERS["scatter"](net, part), 10)["accuracy"] == pytest.approx(
                100 * np.mean(expected.argmax(1) == part.y)
            )


@mpi(4)
def test_scatters_send_the_bytes_of_the_paper(comm):
    """Model ranks that need the same rows: the scatter sends them n_b n_m blocks, the other way n_b and a broadcast."""
    part, kinds = samples(False), ("scatter", "broadcast")
    block, labels = 4 * 7 * 8, 4 * 8  # bytes of the 4 samples of a batch block
    with ProcessGrid(comm, batch=2, model=2) as grid:
        net = parallelize(network(), grid, "out")
        for name, expected in (
            ("scatter", [3 * block + 1.5 * labels, 0]),
            ("scatter-broadcast", [block + labels, 2 * (block + labels)]),
        ):
            grid.tally.clear()
            READERS[name](net, part).load(np.arange(8))
            records = grid.tally.records
            assert [comm.allreduce(records["minibatch", kind].bytes) for kind in kinds] == expected


@mpi(*RANKS, long=(3, 5, 6, 7, 8))
def test_evaluation_and_prediction_equal_serial(comm):
    for regression, sizes, plan in product((True, False), grids(comm.size), PLANS):
        part, loss = samples(regression), "mse" if regression else "cross-entropy"
        everything = np.arange(29)
        outputs = network().forward(to_device(part.inputs(everything, (slice(0, 7),))))
        targets = part.targets(everything)
        cross_entropy = None if regression else LOSSES[loss]().forward(outputs, to_device(targets), Context(batch_size=29))
        outputs = to_host(outputs)
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(network(), grid, plan)
            for reader, batch_size in (("each", 29), ("scatter", 5), ("scatter-broadcast", 3)):
                reader = READERS[reader](net, part)
                tested = evaluate(net, part, loss, reader, batch_size)
                predicted = predict(net, part, reader, batch_size)
                if regression:
                    squares = np.square(outputs - targets).mean(axis=0)
                    assert np.isclose(tested["mse"], squares.mean(), rtol=1e-12, atol=0)
                    assert np.allclose(tested["rmse"], np.sqrt(squares) * part.y_std, rtol=1e-12, atol=0)
                else:
                    assert np.isclose(tested["accuracy"], 100 * (outputs.argmax(axis=1) == targets).mean())
                    assert np.isclose(tested["loss"], cross_entropy, rtol=1e-12, atol=0)
                assert (predicted is None) == (comm.rank > 0)
                if comm.rank == 0:
                    assert np.allclose(predicted, outputs, rtol=1e-12, atol=1e-14), (sizes, plan)


@pytest.mark.parametrize(("count", "batch_size"), [(29, 7), (28, 7), (5, 5), (5, 1)])
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
