"""Closed forms for bytes: of whole training steps, on grids and batch sizes that nothing divides, and the least for a layer."""

from itertools import pairwise, product

import numpy as np
import pytest

from gridgrad.experiments.common import byte_formulas
from gridgrad.experiments.parts.explain_report import least_sum
from gridgrad.nn import MSE, SGD, Linear, ReLU, Sequential
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.plans.fewest_bytes import fewest_bytes
from tests.mpi import mpi
from tests.parallel.equality import grids

WIDTHS = [7, 11, 31, 2]
PLANS = ["fewest-bytes", "laugier", *(",".join(p) for p in product(("out", "in"), repeat=3))]
PLANS += ["redundant,redundant,in", "in,redundant,out", "out,redundant,redundant", "redundant,out,in"]
WIDE = [[784, 512, 512, 10], [16, 1024, 1024, 1024, 2], [1024, 2048, 1024, 10]]
ODD = [[784, 10, 1000], [1, 2, 50], [7, 11, 31, 2], [5, 100, 3, 200, 7]]


def mlp(widths):
    layers = [layer for a, b in pairwise(widths) for layer in (Linear(a, b), ReLU())]
    return Sequential(layers[:-1])


def step(comm, grid, plan, batch_size):
    """Take a training step; returns the parallel network."""
    net = parallelize(mlp(WIDTHS), grid, plan)
    x, y = np.ones((batch_size, 7), np.float32), np.ones((batch_size, 2), np.float32)
    train_step(net, MSE(), SGD(net, 0.1), x[net.input_block(batch_size)], y[net.output_rows(batch_size)], batch_size)
    return net


@mpi(2, 3)
def test_a_step_moves_what_the_formulas_say(comm):
    for sizes, plan, batch_size in product(grids(comm.size), PLANS, (13, 3)):
        with ProcessGrid(comm, **sizes) as grid:
            net = step(comm, grid, plan, batch_size)
            counted = {"gradients": 0, "model": 0, "loss": 0}
            for (layer, _), record in grid.tally.records.items():
                counted[layer if layer in counted else "model"] += record.bytes
            counted = {name: comm.allreduce(value) for name, value in counted.items()}
            if plan == "laugier":
                expected = byte_formulas.laugier_activations(batch_size, WIDTHS, **sizes)
            else:
                expected = byte_formulas.activations(batch_size, WIDTHS, net.plan, **sizes)
            gradients, loss = (
                byte_formulas.gradients(WIDTHS, plan=net.plan, **sizes),
                24 * byte_formulas.all_reduce(1, comm.size),
            )
            assert counted == {"gradients": gradients, "model": expected, "loss": loss}, (sizes, plan, batch_size)


@mpi(4)
def test_a_step_has_the_fewest_messages(comm):
    """One all-reduce of all gradients, one of the loss, and one collective each way at each boundary that moves."""
    with ProcessGrid(comm, batch=2, model=2) as grid:
        step(comm, grid, "out,out,in", 6)
        calls = {key: record.calls for key, record in grid.tally.records.items()}
        assert calls == {
            ("2", "all-gather"): 1, ("2", "reduce-scatter"): 1, ("output", "reduce-scatter"): 1, ("output", "all-gather"): 1,
            ("gradients", "all-reduce"): 1, ("loss", "all-reduce"): 1,
        }  # fmt: skip


@pytest.mark.parametrize("model", [2, 3, 8])
def test_the_plan_of_fewest_bytes_is_that_and_moves_at_most_two_thirds_of_laugiers(model):
    for widths in WIDE + ODD:
        cost = lambda plan, samples: byte_formulas.activations(samples, widths, plan, 1, model)  # noqa: B023, E731
        plan = fewest_bytes(list(pairwise(widths)), model)
        samples = model  # of which an all-to-all leaves the same share in place as for any large batch
        assert cost(plan, samples) == min(cost(p, samples) for p in product(("out", "in"), repeat=len(widths) - 1))
        if model > 2 or widths[-1] <= 1.5 * widths[-2]:  # on 2 ranks outputs may not be the widest: see fewest_bytes
            samples = 840  # which every number of ranks divides
            assert cost(plan, samples) <= 2 / 3 * byte_formulas.laugier_activations(samples, widths, 1, model)


@pytest.mark.parametrize(
    ("price", "whole", "ranks", "expected"),
    [
        ((1, 1, 1), (100, 100, 100), 8, 3 * 25),  # a cube: each rank has one of eight smaller ones
        ((1, 1, 1), (1000, 1000, 1), 2, 500 + 500 + 1),  # nothing but the smallest array is needed whole
        ((0, 1, 1), (100, 100, 100), 4, 25 + 25),  # one array is everywhere
        ((1, 1, 1), (7, 5, 3), 1, 7 + 5 + 3),
    ],
)
def test_the_least_sum_in_closed_form(price, whole, ranks, expected):
    assert least_sum(price, whole, ranks) == pytest.approx(expected)
