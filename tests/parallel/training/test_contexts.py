"""Several micro-batches in progress at once on a grid: redistributions, halos and global statistics keep them apart."""

import numpy as np

from gridgrad.nn import (
    BatchNorm,
    Context,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    SoftmaxCrossEntropy,
    TiedAutoencoder,
)
from gridgrad.nn.device import to_device, to_host
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.placement.layer_kinds import GlobalBatchNorm
from gridgrad.parallel.placement.overlapped_layers import GatheredLinear, HaloConv2d
from gridgrad.parallel.placement.redistribute import Redistribute
from tests.mpi import mpi
from tests.parallel.equality import block, on_cpus

PARTS = slice(0, 4), slice(4, 5), slice(5, 11)  # of a minibatch of 11
SCHEDULES = [  # F: forward, B: backward, I: the input's gradients alone, W: the parameters' alone; the last B or W is marked
    "F0 F1 F2 B1 B0 b2",
    "F0 F1 I0 F2 W0 I2 I1 W2 w1",
    "F2 F0 I2 F1 B1 W2 I0 w0",
]
IN_TURN = "F0 B0 F1 B1 F2 b2"


def images():
    branch = [Conv2d(4, 4, 3, padding=1), BatchNorm(4), ReLU()]
    return [Conv2d(2, 4, 3, padding=1), BatchNorm(4), ReLU(), MaxPool2d(3, 2, 1), Residual(branch), Flatten(),
            Linear(4 * 16, 5), Dropout(0.3), Linear(5, 3)]  # fmt: skip


def dense():
    return [Linear(7, 11), BatchNorm(11), ReLU(), Linear(11, 31), TiedAutoencoder(31, 4), ReLU(), Linear(31, 3)]


def gradients(grid, layers, shape, schedule, plan="fewest-bytes", **options):
    """(the summed gradients; of each micro-batch this rank's gradients and loss; the calls of each collective; the kinds of
    layers) of one minibatch."""
    net = parallelize(Sequential(layers(), seed=3, dtype=np.float64, input_shape=shape), grid, plan, **options)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((11, *shape)), rng.integers(0, 3, 11)
    blocks = [block(net, x[part], y[part]) for part in PARTS]
    contexts, loss, outputs, losses, own = [Context() for _ in PARTS], SoftmaxCrossEntropy(), {}, {}, {}
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


@mpi(2, 4)
def test_gradients_do_not_depend_on_the_order(comm, monkeypatch):
    """To the last bit, but for the order in which those of the micro-batches are added. Each collective is called once a pass,
    also where sums begin during backward and gathers hide behind products."""
    seen = set()
    on_nodes = [(dense, (7,), "model", "out,out,hidden,out", {})] * on_cpus(comm)  # of one rank each
    ways = [
        (images, (8, 8, 2), "height", "fewest-bytes", {}),
        (dense, (7,), "model", "fewest-bytes", {}),
        (dense, (7,), "model", "fewest-bytes", {"reduction": "overlap:1"}),
    ]
    for layers, shape, axis, plan, options in (*ways, *on_nodes):
        monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", "1" if plan.startswith("out") else "99")
        with ProcessGrid(comm, **{"batch": comm.size // 2, axis: 2}) as grid:
            expected, own, calls, kinds = gradients(grid, layers, shape, IN_TURN, plan, **options)
            seen |= kinds
            assert comm.allreduce(np.abs(expected).sum()) > 0
            for schedule in SCHEDULES:
                found, others, again, _ = gradients(grid, layers, shape, schedule, plan, **options)
                if not options:  # whose sums may be complete before gradients are copied
                    for i in range(len(PARTS)):
                        assert np.array_equal(others[i][0], own[i][0]) and others[i][1] == own[i][1], (plan, schedule)
                assert np.allclose(found, expected, rtol=1e-12, atol=1e-14), (plan, schedule)
                assert again == calls, (plan, schedule)
    assert {Redistribute, HaloConv2d, GlobalBatchNorm, *[GatheredLinear] * len(on_nodes)} <= seen
