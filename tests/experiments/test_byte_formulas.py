"""Closed forms for bytes: of whole training steps, on grids and batch sizes that nothing divides, and the least for a layer."""

from itertools import pairwise, product

import numpy as np
import pytest

from gridgrad.experiments.common import byte_formulas
from gridgrad.experiments.parts.explain_report import least_sum
from gridgrad.nn import MSE, SGD, Linear, ReLU, Sequential
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.plans.plans import fewest_bytes
from tests.mpi import mpi
from tests.parallel.equality import grids

WIDTHS = [7, 11, 31, 2]
PLANS = "fewest-bytes", "laugier", "out,in,out", "in,in,out", "redundant,redundant,in", "in,redundant,out", "redundant,out,in"


def step(comm, grid, plan, batch_size):
    """Take a training step; returns the parallel network."""
    layers = [layer for a, b in pairwise(WIDTHS) for layer in (Linear(a, b), ReLU())]
    net = parallelize(Sequential(layers[:-1]), grid, plan)
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
            expected = {
                "gradients": byte_formulas.gradients(WIDTHS, plan=net.plan, **sizes),
                "model": byte_formulas.laugier_activations(batch_size, WIDTHS, **sizes) if plan == "laugier"
                else byte_formulas.activations(batch_size, WIDTHS, net.plan, **sizes),
                "loss": 24 * byte_formulas.all_reduce(1, comm.size),
            }  # fmt: skip
            assert {name: comm.allreduce(value) for name, value in counted.items()} == expected, (sizes, plan, batch_size)


@pytest.mark.parametrize("widths", [[784, 512, 512, 10], [784, 10, 1000], [1, 2, 50], [7, 11, 31, 2], [5, 100, 3, 200, 7]])
@pytest.mark.parametrize("model", [2, 3, 8])
def test_the_plan_of_fewest_bytes_is_that(model, widths):
    def cost(plan):  # of samples of which an all-to-all leaves the same share in place as for any large batch
        return byte_formulas.activations(model, widths, plan, 1, model)

    least = min(map(cost, product(("out", "in"), repeat=len(widths) - 1)))
    assert cost(fewest_bytes(list(pairwise(widths)), model)) == least


@pytest.mark.parametrize(("price", "whole", "ranks", "expected"), [
    ((1, 1, 1), (100, 100, 100), 8, 3 * 25),  # a cube: each rank has one of eight smaller ones
    ((1, 1, 1), (1000, 1000, 1), 2, 500 + 500 + 1),  # nothing but the smallest array is needed whole
    ((0, 1, 1), (100, 100, 100), 4, 25 + 25),  # one array is everywhere
])  # fmt: skip
def test_the_least_sum_in_closed_form(price, whole, ranks, expected):
    assert least_sum(price, whole, ranks) == pytest.approx(expected)
