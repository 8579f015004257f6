"""The parts of a run: times, the best weights, ranks that are slowed down; and how a report is put together of them."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from gridgrad.datasets.part import Part
from gridgrad.experiments.common import report
from gridgrad.experiments.run_changes import Handicap, Validation
from gridgrad.experiments.run_parts import Run, Times
from gridgrad.nn import MSE, SGD, BatchNorm, Linear, Residual, Sequential, SoftmaxCrossEntropy, Tanh
from gridgrad.nn.layer import Layer
from gridgrad.parallel import READERS, ProcessGrid, parallelize
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.training.relocation import relocate
from tests.clock import Clock
from tests.mpi import mpi
from tests.parallel.equality import grids
from tests.random_networks.case import Case
from tests.random_networks.checks import grid_of, placed


def values(samples):
    """A part of a small regression: samples of 3 values, targets of 2."""
    x, y = np.random.default_rng(0).standard_normal((samples, 3)), np.random.default_rng(1).standard_normal((samples, 2))
    return Part(x, y, 0.0, 1.0, y_mean=np.zeros(2), y_std=np.ones(2), dtype=np.float64)


@mpi(1, 2)
def test_steps_behind_the_first_ones_are_measured(comm):
    """On a small regression, with epochs of 4 steps."""
    with ProcessGrid(comm, batch=comm.size) as grid:
        net, times = parallelize(Sequential([Linear(3, 2)], dtype=np.float64), grid, reduction="overlap:1"), Times()
        run = Run(net, MSE(), SGD(net, lr=0.1), READERS["each"](net, values(40)), 9, 4, [times])
        grid.world.all_reduce(np.ones(3), "before")
        run.begin()
        assert not grid.tally.records
        for step in range(9):
            run.step(np.arange(5), samples=6)
            if step == 3:
                watch = times.watch
        run.after()
        assert len(times.seconds) == 4 and min(times.seconds) > 0 and times.watch is not watch
        assert {key[0] for key in grid.tally.records} == ({"gradients", "loss"} if comm.size > 1 else set())
        found = run.report()
        assert (found["timed_steps"], found["samples_per_step"]) == (4, 6) if comm.rank == 0 else not found


@mpi(1, 2)
def test_early_stopping_keeps_its_weights_where_shares_change(comm):
    def make():
        return Sequential([Linear(3, 12), BatchNorm(12), Tanh(), Linear(12, 2)], seed=1, dtype=np.float64)

    part = values(7)
    with ProcessGrid(comm, model=comm.size) as grid:
        net = parallelize(make(), grid, "out,in", shares={"model": (1,) * comm.size})
        optimizer, validation = SGD(net, 0.1, momentum=0.9), Validation(part, "mse", 4, patience=2)
        run = Run(net, MSE(), optimizer, READERS["each"](net, part), 2, 2, [validation])
        run.moves = True
        run.begin()
        net.learn(part.x[:], part.y[:], MSE(), optimizer)
        validation.see()
        best = net.state_dict(everywhere=True)
        net.learn(part.x[:], part.y[:], MSE(), optimizer)
        relocate(net, optimizer, place(make(), grid, "out,in", {"model": (2, *[1] * (comm.size - 1))}))
        validation.exchange()
        after = net.state_dict(everywhere=True)
        assert all(np.array_equal(after[name], value) for name, value in best.items())
        validation.exchange()
        assert not np.array_equal(net.state_dict(everywhere=True)["0.weight"], best["0.weight"])


# ----- ranks that are slowed down


class Work(Layer):
    """A layer that computes for 10 ms in forward and for 20 ms in backward."""

    def __init__(self, clock):
        self.clock = clock

    def forward(self, x, context):
        self.clock.sleep(0.01)
        return x

    def input_gradient(self, dy, context):
        self.clock.sleep(0.02)
        return dy


def test_a_handicap_pauses_in_proportion_to_what_was_computed(monkeypatch):
    """Also within a branch."""
    clock, milliseconds = Clock(tick=1e-6), []
    monkeypatch.setattr(Handicap, "clock", staticmethod(clock.perf_counter))
    net = Sequential([Linear(4, 4), Work(clock), Residual([Linear(4, 4), Work(clock)]), Linear(4, 2)])
    Handicap(3.5, 2).slow_down(net)  # from the third step on
    optimizer, loss = SGD(net, 0.1), SoftmaxCrossEntropy()
    for _ in range(3):
        before = clock.now
        net.learn(np.ones((5, 4), np.float32), np.zeros(5, int), loss, optimizer)
        milliseconds.append(1e3 * (clock.now - before))
    assert sum(clock.naps) == pytest.approx(3 * 0.06)
    assert milliseconds == pytest.approx([60, 60, 210], rel=0.01)


# ----- reports


def test_the_seconds_of_collectives_add_up_to_communicating_where_only_some_ranks_take_part():
    loss, sums, sent = ("loss", "all-reduce"), ("gradients", "all-reduce"), ("1", "send")
    ranks = [  # {(layer, kind): (calls, bytes, seconds)} of each
        {loss: (2, 16, 0.2), sums: (2, 100, 0.6), sent: (2, 50, 0.4)},
        {loss: (2, 16, 0.4), sums: (2, 100, 0.8)},
        {loss: (2, 16, 0.6)},
        {loss: (2, 16, 0.2)},
    ]
    grid = SimpleNamespace(tally=SimpleNamespace(records={}), gather=lambda mine: [(records, *mine[1:]) for records in ranks])
    found = report.time_and_bytes(grid, [2.0, 2.0], 0.0, 0)
    seconds = {(row["layer"], row["kind"]): row["seconds"] for row in found["communication"]}
    assert seconds == pytest.approx({loss: 0.1, sums: 0.3 / 2, sent: 0.2 / 4})  # of a step, mean over 4 ranks
    assert sum(seconds.values()) == pytest.approx(found["time"]["communicate"])
    whole = sum(value[2] for rank in ranks for value in rank.values()) / 4 / 2
    assert found["time"]["wait"] == pytest.approx(whole - found["time"]["communicate"])
    assert found["time"]["compute"] == pytest.approx(2 - whole)


def digest_of(arrays):
    """What `report.digest` should find: of (name, array) pairs, of which those without an array are left out."""
    sha = hashlib.sha256()
    for name, value in arrays:
        if value is not None:
            sha.update(f"{name} {value.shape} {value.dtype}".encode() + value.tobytes())
    return sha.hexdigest()


LAYERS = [("Linear", 11), ("Tanh",), ("Residual", [], [("Linear", 11)]), ("Linear", 3)]


@mpi(1, 3)
def test_a_network_is_hashed_by_rows_as_if_it_were_gathered(comm, monkeypatch):
    monkeypatch.setattr(report, "ROWS", 80)  # bytes, of one row or a few
    images = [("Conv2d", 5, 3), ("BatchNorm",), ("Tanh",), ("Linear", 7)]
    cases = [Case(*one, sizes) for one in ((LAYERS, (6,)), (images, (6, 4, 2))) for sizes in grids(comm.size)]
    cases += [Case(LAYERS, (6,), {"model": comm.size}, "hypergraph", owners="fine")]
    for case in cases:
        with grid_of(case, comm) as grid:
            net = placed(case, grid)
            assert report.digest(net) == digest_of(net.global_parameters())
    serial = cases[0].network()
    assert report.digest(serial) == digest_of(serial.global_parameters())
