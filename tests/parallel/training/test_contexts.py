"""Several micro-batches in progress at once on a grid: redistributions, halos and global statistics keep them apart."""

import numpy as np

from gridgrad.nn import (
    LOSSES,
    BatchNorm,
    Concat,
    Context,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    Sigmoid,
    Tanh,
    TiedAutoencoder,
)
from gridgrad.nn.device import to_device, to_host
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.placement.layer_kinds import GlobalBatchNorm
from gridgrad.parallel.placement.overlapped_layers import GatheredLinear, HaloConv2d
from gridgrad.parallel.placement.redistribute import Redistribute
from tests.mpi import mpi
from tests.parallel.equality import RANKS, block, grids, on_cpus

PARTS = slice(0, 4), slice(4, 5), slice(5, 11)  # of a minibatch of 11
SCHEDULES = [  # F: forward, B: backward, I: the input's gradients alone, W: the parameters' alone; the last B or W is marked
    "F0 F1 F2 B1 B0 b2",
    "F0 F1 I0 F2 W0 I2 I1 W2 w1",
    "F2 F0 I2 F1 B1 W2 I0 w0",
]
IN_TURN = "F0 B0 F1 B1 F2 b2"


def images():
    branch = [Conv2d(4, 4, 3, padding=1), BatchNorm(4), ReLU()]
    return [Conv2d(2, 4, 3, padding=1), BatchNorm(4), ReLU(), MaxPool2d(3, 2, 1), Residual(branch),
            Concat([Conv2d(4, 2, 3, padding=1)], [MaxPool2d(3, 1, 1)]), Flatten(), Linear(6 * 16, 5), Linear(5, 3)]  # fmt: skip


def dense():
    return [Linear(7, 11), BatchNorm(11), ReLU(), Dropout(0.3), Linear(11, 31), Tanh(), Linear(31, 5), ReLU(), Linear(5, 3)]


def autoencoder():
    return [Linear(7, 5), TiedAutoencoder(5, 4), Sigmoid(), TiedAutoencoder(5, 2), Linear(5, 3)]


CASES = [
    (images, (8, 8, 2), ("batch", "height", "model")),
    (dense, (7,), ("batch", "model")),
    (autoencoder, (7,), ("batch", "model")),
]


def gradients(grid, layers, shape, schedule, plan="fewest-bytes", **options):
    """(the summed gradients; of each micro-batch this rank's gradients and loss; the calls of each collective; the kinds of
    layers) of one minibatch."""
    net = parallelize(Sequential(layers(), seed=3, dtype=np.float64, input_shape=shape), grid, plan, **options)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((11, *shape)), rng.integers(0, 3, 11)
    blocks = [block(net, x[part], y[part]) for part in PARTS]
    contexts, loss, outputs, losses, own = [Context() for _ in PARTS], LOSSES["cross-entropy"](), {}, {}, {}
    net.allocate()  # before anything is counted
    grid.tally.clear()

    def loss_of(i):
        losses[i] = loss.forward(outputs[i], to_device(blocks[i][1]), contexts[i])
        return loss.backward(contexts[i])

    for word in schedule.split():
        i = int(word[1])
        if word[0] == "F":
            samples = PARTS[i].stop - PARTS[i].start
            outputs[i] = net.forward(to_device(blocks[i][0]), contexts[i], samples, PARTS[i].start, minibatch_size=11)
        elif word[0] == "I":
            net.input_gradients(loss_of(i), contexts[i])
        else:
            if word[0].islower():
                net.reduction.start()
            if word[0] in "Ww":
                net.parameter_gradients(contexts[i])
            else:
                net.backward(loss_of(i), contexts[i])
            own[i] = to_host(net.grads).copy(), losses[i]
            net.reduction.finish() if word[0].islower() else net.reduction.accumulate()
    for where in net.reduction.owned:
        net.reduction.ready(where)
    net.reduction.end_update()
    calls = {key: record.calls for key, record in grid.tally.records.items()}
    return to_host(net.grads).copy(), own, calls, {type(layer) for layer in net.layers}


def same(found, expected):
    """Whether each micro-batch has, bit by bit, the same gradients and the same loss."""
    return all(np.array_equal(found[i][0], expected[i][0]) and found[i][1] == expected[i][1] for i in range(len(PARTS)))


@mpi(*RANKS, long=(4, 5, 6, 7, 8))
def test_gradients_do_not_depend_on_the_order(comm):
    seen = set()
    for layers, shape, axes in CASES:
        for sizes in grids(comm.size, axes):
            with ProcessGrid(comm, **sizes) as grid:
                expected, own, calls, kinds = gradients(grid, layers, shape, IN_TURN)
                seen |= kinds
                assert comm.allreduce(np.abs(expected).sum()) > 0
                for schedule in SCHEDULES:
                    found, others, again, _ = gradients(grid, layers, shape, schedule)
                    assert same(others, own), (sizes, schedule)
                    assert np.allclose(found, expected, rtol=1e-12, atol=1e-14), (sizes, schedule, "summed in another order")
                    assert again == calls, (sizes, schedule, "each collective once a pass")
    if comm.size > 1:
        assert {Redistribute, HaloConv2d, GlobalBatchNorm} <= seen


@mpi(2, 3, 5, 8, long=(5, 8))
def test_sums_that_overlap_backward_begin_when_the_last_gradients_are_written(comm):
    with ProcessGrid(comm, batch=comm.size) as grid:
        expected, *_ = gradients(grid, dense, (7,), IN_TURN)
        for schedule in (IN_TURN, *SCHEDULES):
            found, *_ = gradients(grid, dense, (7,), schedule, reduction="overlap:1")
            assert np.allclose(found, expected, rtol=1e-12, atol=1e-14), schedule


@mpi(2, 3, 4, 5, 6, 7, 8, long=(5, 6, 7, 8))
def test_gathers_behind_products_are_kept_apart(comm, monkeypatch):
    if not on_cpus(comm):
        return  # there are none
    monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", "1")
    with ProcessGrid(comm, model=comm.size) as grid:
        expected, own, calls, kinds = gradients(grid, dense, (7,), IN_TURN, "out")
        assert GatheredLinear in kinds
        for schedule in SCHEDULES:
            found, others, again, _ = gradients(grid, dense, (7,), schedule, "out")
            assert np.allclose(found, expected, rtol=1e-12, atol=1e-14) and same(others, own) and again == calls, schedule
