"""Every Case trains as the serial network does, and ranks that hold copies of an array hold the same bits.

Each check takes a Case and the communicator of its ranks; it is collective.
"""

import os
import random
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from unittest import mock

import numpy as np

from gridgrad.nn import BatchNorm
from gridgrad.nn.device import to_device
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.faults.checks import ReplicaCheck
from gridgrad.parallel.grid.devices import ranks_on_cpus
from gridgrad.parallel.observe.span_observer import Profile
from gridgrad.parallel.observe.trace import Trace
from gridgrad.parallel.sync import power_sgd
from tests.parallel import equality
from tests.parallel.equality import error, on_first
from tests.random_networks import feeding
from tests.random_networks.case import random_case, random_shares

TOLERANCE = {"float64": 1e-10, "float32": 1e-4}
NUDGE = {"float64": 1e-13, "float32": 1e-7}  # by which weights are changed, relatively, to see how much rounding matters
KINK = 100  # a difference is no mistake where serial training changes by a hundredth of it after a nudge
EXCUSED = []  # the cases whose differences were taken for rounding; `check_seeds` limits how many there may be


@contextmanager
def grid_of(case, comm):
    """The ProcessGrid of a Case, with as many ranks a node as it says. Collective."""
    before = os.environ.get("GRIDGRAD_RANKS_PER_NODE")
    os.environ["GRIDGRAD_RANKS_PER_NODE"] = str(case.ranks_per_node)
    try:
        with ProcessGrid(comm, **case.grid) as grid:
            yield grid
    finally:
        os.environ.pop("GRIDGRAD_RANKS_PER_NODE")
        if before is not None:
            os.environ["GRIDGRAD_RANKS_PER_NODE"] = before


def serial(case, nudge=0.0):
    """(losses, state, outputs for the first minibatch then) of training the plain Sequential, without any parallel code.

    nudge: by how much, relatively, its parameters are changed before.
    """
    net = case.network()
    if case.start == "loaded":
        net.load_state_dict(case.state())
    net.params[...] *= 1 + nudge * to_device(case.rng.choice((-1, 1), net.params.size))
    batches = case.batches()
    parts = case.micro_batches if any(isinstance(layer, BatchNorm) for layer in net.leaves()) else 1  # it sees them
    return *equality.serial(net, case.make_optimizer, case.make_loss(), batches, parts), net.predict(batches[0][0])


def parallel(case, grid, watch=nullcontext):
    """The same on a grid, at the end of which all copies are equal. Collective.

    watch: called with the network, it returns a context in which that trains.
    """
    net = placed(case, grid)
    optimizer = case.make_optimizer(net)
    with watch(net):
        losses = feeding.train(case, net, optimizer)
    if len(ranks_on_cpus(grid.comm)) in (0, grid.size):  # a GPU and a CPU round differently
        ReplicaCheck(net, optimizer, 1).after_step(net.step)
    return losses, net.state_dict(everywhere=True), feeding.outputs(case, net)


@contextmanager
def watched(net):
    """A `with` block in which the steps of a network are profiled and traced. Collective."""
    with Profile(net), Trace(net, steps=99):
        yield


def placed(case, grid):
    """This rank's part of the network of a Case, with its weights. Collective."""
    net = parallelize(case.network(), grid, case.plan_text(), **case.options())
    if case.start == "loaded":
        net.load_state_dict(case.state() if grid.rank == 0 else None)
    return net


def equals_serial(case, comm):
    """Losses, parameters, buffers and outputs are those of serial training."""
    expected = on_first(comm, serial, case)
    with grid_of(case, comm) as grid:
        found = parallel(case, grid)
    agree(found, expected, case, comm)


def copied_case(seed, ranks):
    """The Case of a seed: many have redundant layers, and sums of gradients that are not those of the serial network."""
    case, rng = random_case(seed, ranks), random.Random(f"copies {seed} {ranks}")
    if rng.random() < 0.7:
        plan = rng.choice((("redundant", "out"), ("in", "redundant"), ("out", "redundant", "redundant"), ("redundant",)))
        batch = rng.choice([number for number in range(1, ranks + 1) if ranks % number == 0][1:-1] or [1])
        grid = {"batch": batch, "model": ranks // batch}
        case = replace(case, layers=2 * case.layers, plan=plan, grid=grid, shares=random_shares(rng, grid), owners="",
                       pipeline=None)  # fmt: skip
    way = rng.choice(("plain", "overlap:1") if case.pipeline else ("plain", "overlap:1", "shared", "powersgd:1"))
    dtype = rng.choice(("same", "float16")) if way in ("plain", "overlap:1") else "same"
    return replace(case, reduction=way, reduce_dtype=dtype, update="whole" if "powersgd" in way else case.update)


def copies_are_equal(case, comm):
    """Ranks that hold copies of an array train them to the same bits, however gradients are summed.

    Training twice on one grid gives the same bits, also where it is watched.
    """
    runs = []
    for watch in nullcontext, watched:
        with grid_of(case, comm) as grid, mock.patch.object(power_sgd, "UNCOMPRESSED_STEPS", 1):
            losses, state, outputs = parallel(case, grid, watch)
            runs.append({"losses": np.array(losses), "outputs": outputs, **state})
    assert all(np.array_equal(value, runs[1][name], equal_nan=True) for name, value in runs[0].items()), case


def agree(found, expected, case, comm):
    """Fail unless two results of training agree, or serial training itself changes as much by rounding. Collective.

    It does where a ReLU gets zero but for rounding, for example. found, expected: what `serial` returns, of which `found` may
    lack the losses of the first steps.
    """
    nudged = lambda: [distance(serial(case, sign * NUDGE[case.dtype]), expected) for sign in (1, -1)]  # noqa: E731
    within_rounding(distance(found, expected), lambda: on_first(comm, nudged), case)


def within_rounding(difference, nudged, case):
    """Fail unless a difference is small, or the same computation changes as much by rounding.

    nudged: a function that computes how much it changes by nudges. It is called only where the difference is not small.
    """
    if not difference < TOLERANCE[case.dtype]:
        assert max(nudged()) * KINK > difference, f"{case!r} differs by {difference}"
        EXCUSED.append(case)


def distance(found, expected):
    """The largest relative difference of two results of training, see `agree`."""
    (losses, state, outputs), (all_losses, expected_state, expected_outputs) = found, expected
    more = {"losses": np.array(losses), "outputs": outputs}
    expected_more = {"losses": np.array(all_losses[len(all_losses) - len(losses) :]), "outputs": expected_outputs}
    return max(error(state, expected_state), error(more, expected_more))
