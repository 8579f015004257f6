"""Runs in virtual time: a step takes what the cost model predicts, and stragglers and overlap change it as they should."""

import numpy as np
import pytest

from gridgrad.nn import SGD, Context, Linear, ReLU, Sequential, SoftmaxCrossEntropy
from gridgrad.parallel import ProcessGrid, Trace, parallelize, train_step
from gridgrad.parallel.grid.grid_description import GridDescription
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import read
from gridgrad.parallel.prediction.simulation import SimulatedClock
from tests.mpi import mpi
from tests.parallel.equality import block, error, grids
from tests.parallel.prediction.test_cost import dense, images

MACHINE = read("cori-haswell")


def wide():
    return Sequential([Linear(64, 480), ReLU(), Linear(480, 480), ReLU(), Linear(480, 12)], input_shape=(64,))


def step_seconds(serial, grid, batch_size, slow=1.0, plan="fewest-bytes", **options):
    """(virtual seconds of a step on this rank, the network) after two steps, the first of which is not counted."""
    net = parallelize(serial, grid, plan, **options)
    virtual = SimulatedClock(net, MACHINE, slow)
    optimizer, loss = SGD(net, lr=0.01, momentum=0.9), SoftmaxCrossEntropy()
    x = np.random.default_rng(0).normal(size=(batch_size, *serial.input_shape)).astype(np.float32)
    mine = block(net, x, np.arange(batch_size) % 3)
    train_step(net, loss, optimizer, *mine, batch_size)
    start = virtual.time
    train_step(net, loss, optimizer, *mine, batch_size)
    return virtual.time - start, net


@mpi(1, 2, 3, 4, 6, long=(6,))
def test_a_step_without_stragglers_takes_what_the_model_says(comm):
    for sizes in grids(comm.size):
        for plan in ("out", "in", "fewest-bytes", "replicate", "laugier"):
            with ProcessGrid(comm, **sizes) as grid:
                seconds, _ = step_seconds(wide(), grid, 24, plan=plan)
                expected = Cost(wide(), GridDescription(sizes), plan, 24, MACHINE).seconds
                assert abs(seconds / expected - 1) < 1e-9, (sizes, plan, seconds, expected)


@mpi(1, 2, 3, 5, long=(5,))
def test_awkward_sizes_take_no_less_than_any_rank_alone(comm):
    for make, axes in ((dense, ("batch", "model")), (images, ("batch", "height", "model"))):
        for sizes in grids(comm.size, axes):
            with ProcessGrid(comm, **sizes) as grid:
                seconds, _ = step_seconds(make(), grid, 7)
                alone = Cost(make(), GridDescription(sizes, grid.coordinates), "fewest-bytes", 7, MACHINE)
                compute = sum(alone.seconds_of(work) for work in alone.works if work.group is None)
                assert compute * (1 - 1e-9) <= seconds <= 3 * alone.seconds, (sizes, seconds, compute)


@mpi(2, 4)
def test_all_wait_for_a_straggler(comm):
    with ProcessGrid(comm, batch=comm.size) as grid:
        even, _ = step_seconds(wide(), grid, 24)
        slow, _ = step_seconds(wide(), grid, 24, slow=3.0 if comm.rank == 1 else 1.0)
    cost = Cost(wide(), GridDescription({"batch": comm.size}), "out", 24, MACHINE)
    compute = cost.parts["compute"] + cost.parts["update"]
    assert abs((slow - even) - 2 * compute) < 0.35 * compute  # they wait where they meet, and the update is behind that
    assert comm.allgather(slow) == pytest.approx([slow] * comm.size, rel=1e-9)  # from one meeting to the next


@mpi(2, 4)
def test_overlap_hides_sums_of_gradients_and_changes_no_number(comm):
    with ProcessGrid(comm, batch=comm.size) as grid:
        plain, one = step_seconds(wide(), grid, 2048)
        hidden, two = step_seconds(wide(), grid, 2048, reduction="overlap:64")
        cost = Cost(wide(), GridDescription({"batch": comm.size}), "out", 2048, MACHINE)
        assert cost.overlapped_seconds * (1 - 1e-9) <= hidden < plain
        assert error(two.state_dict(everywhere=True), one.state_dict(everywhere=True)) < 1e-6


@mpi(1, 2)
def test_the_halves_of_backward_take_as_long_as_both_at_once(comm):
    for make in (wide, images):
        with ProcessGrid(comm, batch=comm.size) as grid:
            serial = make()
            net, context, seconds = parallelize(serial, grid), Context(), []
            virtual = SimulatedClock(net, MACHINE)
            x, _ = block(net, np.ones((6, *serial.input_shape), net.dtype), np.zeros(6))
            for halves in (False, True):
                dy = np.ones_like(net.forward(x, context, 6))
                start = virtual.time
                if halves:
                    net.input_gradients(dy, context)
                    assert virtual.time > start
                    net.parameter_gradients(context)
                else:
                    net.backward(dy, context)
                seconds.append(virtual.time - start)
        assert seconds[0] > 0 and abs(seconds[1] / seconds[0] - 1) < 1e-9, seconds


@mpi(2)
def test_a_trace_is_in_virtual_time(comm):
    with ProcessGrid(comm, batch=2) as grid:
        net = parallelize(wide(), grid)
        SimulatedClock(net, MACHINE)
        optimizer, loss = SGD(net, lr=0.01, momentum=0.9), SoftmaxCrossEntropy()
        x = np.ones((24, 64), np.float32)
        with Trace(net, 2) as trace:
            train_step(net, loss, optimizer, *block(net, x, np.arange(24) % 3), 24)
        timeline = trace.timeline()
        if comm.rank == 0:
            last = max(event["ts"] + event["dur"] for event in timeline["traceEvents"] if "dur" in event)
            expected = 1e6 * Cost(wide(), GridDescription({"batch": 2}), "out", 24, MACHINE).seconds
            assert abs(last / expected - 1) < 0.05, (last, expected)


@mpi(2)
def test_what_can_not_be_simulated_is_refused(comm):
    with ProcessGrid(comm, batch=2) as grid:
        for options in ({"reduction": "shared"}, {"reduce_dtype": "float16"}):
            with pytest.raises(ValueError, match="can not be simulated"):
                SimulatedClock(parallelize(wide(), grid, **options), MACHINE)
