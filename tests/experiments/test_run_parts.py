"""The parts of a run: times, the best weights, and ranks that are slowed down."""

import numpy as np
import pytest

from gridgrad.datasets.part import Part
from gridgrad.experiments.run_changes import Handicap, Validation
from gridgrad.experiments.run_parts import Run, Times
from gridgrad.nn import MSE, SGD, BatchNorm, Linear, Residual, Sequential, SoftmaxCrossEntropy, Tanh
from gridgrad.nn.layer import Layer
from gridgrad.parallel import READERS, ProcessGrid, parallelize
from gridgrad.parallel.plans.place_network import place
from gridgrad.parallel.training.relocation import relocate
from tests.clock import Clock
from tests.mpi import mpi


def part_of(x, y):
    return Part(x, y, 0.0, 1.0, y_mean=np.zeros(y.shape[1]), y_std=np.ones(y.shape[1]), dtype=np.float64)


def run_of(grid, *parts, steps=9):
    """A Run on a small regression, in float64, with epochs of 4 steps."""
    net = parallelize(Sequential([Linear(3, 2)], dtype=np.float64), grid, reduction="overlap:1")
    part = part_of(np.random.default_rng(0).standard_normal((40, 3)), np.zeros((40, 2)))
    return Run(net, MSE(), SGD(net, lr=0.1), READERS["each"](net, part), steps, 4, parts)


@mpi(1, 2)
def test_steps_behind_the_first_ones_are_measured(comm):
    with ProcessGrid(comm, batch=comm.size) as grid:
        run = run_of(grid, times := Times())
        grid.world.all_reduce(np.ones(3), "before")
        run.begin()
        assert not grid.tally.records
        for step in range(9):
            run.step(np.arange(5), samples=6)
            if step == 3:
                watch = times.watch
        run.after()
        assert len(times.seconds) == 4 and min(times.seconds) > 0 and times.reference == []
        assert times.watch is not watch, "the machine is watched anew"
        assert {key[0] for key in grid.tally.records} == ({"gradients", "loss"} if comm.size > 1 else set())
        found = run.report()
        assert (found["timed_steps"], found["samples_per_step"], found["core"]) == (4, 6, None) if comm.rank == 0 else not found


@mpi(1, 2)
def test_early_stopping_keeps_its_weights_where_shares_change(comm):
    def make():
        return Sequential([Linear(5, 12), BatchNorm(12), Tanh(), Linear(12, 3)], seed=1, dtype=np.float64)

    x, y = np.random.default_rng(0).standard_normal((7, 5)), np.random.default_rng(1).standard_normal((7, 3))
    held_out = part_of(x, y)
    with ProcessGrid(comm, model=comm.size) as grid:
        net = parallelize(make(), grid, "out,in", shares={"model": (1,) * comm.size})
        optimizer, validation = SGD(net, 0.1, momentum=0.9), Validation(held_out, "mse", 4, patience=2)
        run = Run(net, MSE(), optimizer, READERS["each"](net, held_out), 2, 2, [validation])
        run.moves = True
        run.begin()
        net.learn(x, y, MSE(), optimizer)
        validation.see()
        best = net.state_dict(everywhere=True)
        net.learn(x, y, MSE(), optimizer)
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
