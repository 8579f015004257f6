"""The bytes of whole training steps equal the closed forms: on every grid, batch sizes that nothing divides."""

from itertools import pairwise, product

import numpy as np
import pytest

from gridgrad.experiments.common import byte_formulas
from gridgrad.nn import MSE, SGD, Linear, ReLU, Sequential
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.plans.fewest_bytes import fewest_bytes
from tests.mpi import mpi
from tests.parallel.equality import RANKS, grids

WIDTHS = [7, 11, 31, 2]
PLANS = ["fewest-bytes", "laugier", *(",".join(p) for p in product(("out", "in"), repeat=3))]
PLANS += ["redundant,redundant,in", "in,redundant,out", "out,redundant,redundant", "redundant,out,in"]


def mlp(widths):
    layers = [layer for a, b in pairwise(widths) for layer in (Linear(a, b), ReLU())]
    return Sequential(layers[:-1])


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_a_step_moves_what_the_formulas_say(comm):
    for sizes, plan, batch_size in product(grids(comm.size), PLANS, (13, 3)):
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(mlp(WIDTHS), grid, plan)
            x, y = np.ones((batch_size, 7), np.float32), np.ones((batch_size, 2), np.float32)
            train_step(net, MSE(), SGD(net, 0.1), x[net.input_block(batch_size)], y[net.output_rows(batch_size)], batch_size)
            counted = {"gradients": 0, "model": 0, "loss": 0}
            for (layer, _), record in grid.tally.records.items():
                counted[layer if layer in counted else "model"] += record.bytes
            counted = {name: comm.allreduce(value) for name, value in counted.items()}
            if plan == "laugier":
                expected = byte_formulas.laugier_activations(batch_size, WIDTHS, **sizes)
            else:
                expected = byte_formulas.activations(batch_size, WIDTHS, net.plan, **sizes)
            case = f"{sizes} {plan} {batch_size}"
            assert counted["model"] == expected, f"{case}: {counted['model']} {expected}"
            assert counted["gradients"] == byte_formulas.gradients(WIDTHS, plan=net.plan, **sizes), case
            assert counted["loss"] == 24 * byte_formulas.all_reduce(1, comm.size), case


@mpi(4)
def test_a_step_has_the_fewest_messages(comm):
    """One all-reduce of all gradients, one of the loss, and one collective each way at each boundary that moves."""
    with ProcessGrid(comm, batch=2, model=2) as grid:
        net = parallelize(mlp(WIDTHS), grid, "out,out,in")
        x, y = np.ones((6, 7), np.float32), np.ones((6, 2), np.float32)
        train_step(net, MSE(), SGD(net, 0.1), x[net.input_block(6)], y[net.output_rows(6)], 6)
        calls = {key: record.calls for key, record in grid.tally.records.items()}
        assert calls == {
            ("2", "all-gather"): 1, ("2", "reduce-scatter"): 1, ("output", "reduce-scatter"): 1, ("output", "all-gather"): 1,
            ("gradients", "all-reduce"): 1, ("loss", "all-reduce"): 1,
        }  # fmt: skip


@pytest.mark.parametrize("widths", [[7, 3], [784, 512, 512, 10], [16, 32, 32, 32, 2], [5, 100, 3, 200, 7], [9, 8, 7, 6, 5, 4]])
@pytest.mark.parametrize("model", [2, 3, 8])
def test_the_plan_of_fewest_bytes_is_that(widths, model):
    plan = fewest_bytes(list(pairwise(widths)), model)
    samples = model  # of which an all-to-all leaves the same share in place as for any large batch
    cost = lambda plan: byte_formulas.activations(samples, widths, plan, 1, model)  # noqa: E731
    assert cost(plan) == min(cost(p) for p in product(("out", "in"), repeat=len(widths) - 1))


WIDE = [[784, 512, 512, 10], [16, 1024, 1024, 1024, 2], [4, 32, 32, 32, 1], [1024, 2048, 1024, 10]]
ODD = [[784, 10], [784, 10, 1000], [1, 2, 50], [7, 11, 31, 2], [5, 100, 3, 200, 7], [9, 3, 8, 1, 6]]


# At 2 ranks it holds where the outputs are not the widest: see fewest_bytes.
ODD_AT_2 = [widths for widths in ODD if len(widths) > 2 and widths[-1] <= 1.5 * widths[-2]]


@pytest.mark.parametrize(("widths", "model"), [*product(WIDE + ODD, range(3, 9)), *product(WIDE + ODD_AT_2, [2])])
def test_ours_moves_at_most_two_thirds_of_laugiers(widths, model):
    samples = 840  # each number of ranks divides it
    ours = byte_formulas.activations(samples, widths, fewest_bytes(list(pairwise(widths)), model), 1, model)
    assert ours <= 2 / 3 * byte_formulas.laugier_activations(samples, widths, 1, model)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_the_corrected_formulas(ranks):
    """Laugier's cost terms with (P-1)/P for P/(P-1), and no backward all-reduce for the first layer."""
    parameters = sum(a * b + b for a, b in pairwise(WIDTHS))
    assert byte_formulas.gradients(WIDTHS, ranks, 1, itemsize=1) / ranks == pytest.approx(2 * (ranks - 1) / ranks * parameters)
    moved = sum(WIDTHS[1:]) + 2 * sum(WIDTHS[1:-1])
    assert byte_formulas.laugier_activations(13, WIDTHS, 1, ranks, itemsize=1) / ranks == pytest.approx(
        (ranks - 1) / ranks * 13 * moved
    )
    out = byte_formulas.activations(8 * 13, WIDTHS, ["out"] * 3, 1, ranks, itemsize=1) / ranks
    assert out == pytest.approx((ranks - 1) / ranks * 8 * 13 * (2 * sum(WIDTHS[1:-1]) + 2 * WIDTHS[-1] / ranks), rel=0.2)
