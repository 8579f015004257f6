"""The parallel network is the serial network: on every grid, with sizes that nothing divides."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from gridgrad.nn import LOSSES, OPTIMIZERS, SGD, BatchNorm, Dropout, Linear, ReLU, Sequential, Sigmoid, Tanh
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.placement.layout import Layout
from gridgrad.parallel.placement.placements import Invariant, Replicate
from gridgrad.parallel.plans.place_network import Placed
from gridgrad.parallel.training.steps import Diverged
from tests.mpi import mpi
from tests.parallel.equality import RANKS, assert_same, grids, on_cpus, parallel, serial

STEPS = 10


def wide():
    """Widths 7, 11, 31 and an output that most model axes leave empty on some ranks."""
    return [Linear(7, 11), ReLU(), Linear(11, 31), Tanh(), Dropout(0.3), Linear(31, 2)]


def classifier():
    return [Dropout(0.1), Linear(11, 7), Sigmoid(), Linear(7, 31)]


def normalised():
    """Behind a layer whose outputs all ranks hold whole, the gradients of gamma and beta are to be partial sums."""
    return [Linear(7, 11), BatchNorm(11), ReLU(), Linear(11, 2)]


PLANS = {
    wide: [
        "fewest-bytes", "out", "in", "replicate", "redundant", "laugier", "in,out,in", "out,replicate,in", "in,replicate,out",
        "in,redundant,in", "redundant,out,redundant", "redundant,redundant,replicate",
    ],
    classifier: ["fewest-bytes", "laugier", "replicate,out", "out,redundant", "redundant,in"],
    normalised: ["laugier", "out,in", "redundant", "redundant,in"],
}  # fmt: skip
CASES = [  # (layers, loss, dtype, global batch sizes by turns)
    (wide, "mse", np.float64, (13, 5, 1)),
    (classifier, "cross-entropy", np.float64, (9, 17)),
    (normalised, "mse", np.float64, (13, 5)),
]
SINGLE_PRECISION = [(wide, "mse", np.float32, (13, 3)), (classifier, "cross-entropy", np.float32, (9, 17))]


def batches(layers, loss, dtype, batch_sizes):
    """(x, y) of ten global minibatches of these sizes by turns."""
    features, outputs = (11, 31) if layers is classifier else (7, 2)
    for step in range(STEPS):
        rng, batch_size = np.random.default_rng(step), batch_sizes[step % len(batch_sizes)]
        x = rng.standard_normal((batch_size, features)).astype(dtype)
        is_mse = loss == "mse"
        yield x, rng.standard_normal((batch_size, outputs)).astype(dtype) if is_mse else rng.integers(0, outputs, batch_size)


def sgd(net):
    return SGD(net, lr=0.05, momentum=0.9, l2=1e-3)


def on_one_rank(layers, loss, dtype, batch_sizes, optimizer=sgd):
    net = Sequential(layers(), seed=3, dtype=dtype)
    return serial(net, optimizer, loss, batches(layers, loss, dtype, batch_sizes))


def on_grid(grid, plan, layers, loss, dtype, batch_sizes, optimizer=sgd, **options):
    net = Sequential(layers(), seed=3, dtype=dtype)
    return parallel(net, grid, plan, optimizer, loss, batches(layers, loss, dtype, batch_sizes), **options)


def check(comm, cases, tolerance):
    for case in cases:
        layers, expected = case[0], on_one_rank(*case)
        for sizes, plan in product(grids(comm.size), PLANS[layers]):
            with ProcessGrid(comm, **sizes) as grid:
                found = on_grid(grid, plan, *case)
            assert_same(found, expected, tolerance, f"{layers.__name__} {sizes} {plan}")


@mpi(*RANKS, long=(6, 7))
def test_ten_steps_equal_serial(comm):
    check(comm, CASES, 1e-10)


@mpi(*RANKS, long=(4, 5, 6, 7, 8))
def test_ten_steps_in_single_precision_equal_serial(comm):
    """The same code with looser bounds."""
    check(comm, SINGLE_PRECISION, 1e-4)


@mpi(*RANKS, long=(4, 5, 6, 7, 8))
def test_every_optimizer_equals_serial(comm):
    """Also where each rank updates its shard alone."""
    case = wide, "mse", np.float64, (13, 5, 1)
    ways = [{}, {"update": "sharded"}, *([{"reduction": "shared"}] if on_cpus(comm) else [])]
    for name, plan in product(OPTIMIZERS, ("fewest-bytes", "replicate")):
        optimizer = partial(OPTIMIZERS[name], lr=0.05, l2=1e-3)
        expected = on_one_rank(*case, optimizer)
        for sizes, options in product(grids(comm.size), ways):
            with ProcessGrid(comm, **sizes) as grid:
                found = on_grid(grid, plan, *case, optimizer, **options)
            assert_same(found, expected, 1e-10, f"{name} {sizes} {plan} {options}")


@mpi(2, 3, 4, 8, long=(8,))
def test_same_grid_twice_is_bitwise_equal(comm):
    for sizes, plan in product(grids(comm.size), ("fewest-bytes", "laugier", "in")):
        runs = []
        for _ in range(2):
            with ProcessGrid(comm, **sizes) as grid:
                runs.append(on_grid(grid, plan, wide, "mse", np.float32, (13, 5)))
        assert runs[0][0] == runs[1][0]
        for name, value in runs[0][1].items():
            assert np.array_equal(value, runs[1][1][name])


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_weights_move_in_and_out(comm):
    """A parallel network has the weights of the serial one that was used before, and gives back the state to every rank."""
    trained = Sequential(wide(), seed=8, dtype=np.float64)
    trained.params[:] += 1
    for sizes, plan in product(grids(comm.size), PLANS[wide]):
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(trained, grid, plan)
            fresh = parallelize(Sequential(wide(), seed=1, dtype=np.float64), grid, plan)
            fresh.load_state_dict(trained.state_dict())
            states = [one.state_dict(everywhere=True) for one in (net, fresh)]
            for name, value in trained.state_dict().items():
                assert all(np.array_equal(state[name], value) for state in states)
            part = {"0.bias": trained.state_dict()["0.bias"] + 1}
            net.load_state_dict(part if comm.rank == 0 else None, strict=False)
            for name, value in net.state_dict(everywhere=True).items():
                assert np.array_equal(value, part.get(name, trained.state_dict()[name])), name


@mpi(4)
def test_a_rank_holds_only_its_block(comm):
    with ProcessGrid(comm, model=4) as grid:
        net = parallelize(Sequential([Linear(100, 200), ReLU(), Linear(200, 40)]), grid)
        assert abs(net.params.size - (100 * 200 + 200 * 40) / 4) <= 240
        assert "block" in repr(net) and "Redistribute" in repr(net)


@mpi(2, 3)
def test_plans_that_do_not_fit_are_refused(comm):
    with ProcessGrid(comm, model=comm.size) as grid:
        for plan in ("rows", "out,in", "laugier,out,in", ""):
            with pytest.raises(ValueError, match="plan '"):
                parallelize(Sequential(wide()), grid, plan)


@mpi(2)
def test_networks_that_can_not_be_split_are_refused(comm):
    with ProcessGrid(comm, model=2) as grid:
        for layers, words in (
            ([ReLU()], "no Linear or Conv2d layer"),
            ([Linear(3, 4), Linear(5, 2)], "takes 5 features but gets 4"),
        ):
            with pytest.raises(ValueError, match=words):
                parallelize(Sequential(layers), grid)


@mpi(1, 2, 4)
def test_divergence_names_the_step_and_the_layer(comm):
    for sizes in grids(comm.size):
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(Sequential([Linear(7, 4), ReLU(), Linear(4, 2)], dtype=np.float32), grid)
            optimizer = SGD(net, lr=1e30)
            x, y = np.ones((6, 7), np.float32), np.ones((6, 2), np.float32)
            with np.errstate(all="ignore"), pytest.raises(Diverged) as caught:
                for _ in range(20):
                    train_step(net, LOSSES["mse"](), optimizer, x[net.input_block(6)], y[net.output_rows(6)], 6)
            message = str(caught.value)
            assert message.startswith("step ") and ("layer" in message or "parameter" in message), message
            assert comm.bcast(message) == message


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_the_state_is_gathered_to_the_first_rank_unless_all_ask_for_it(comm):
    for sizes, plan in product(grids(comm.size), PLANS[wide]):
        with ProcessGrid(comm, **sizes) as grid:
            net = parallelize(Sequential(wide(), seed=8, dtype=np.float64), grid, plan)
            grid.tally.clear()
            state, sent = net.state_dict(), sum(record.bytes for record in grid.tally.records.values())
            whole = net.state_dict(everywhere=True)
            assert (state is None) == (comm.rank > 0)
            if comm.rank == 0:
                assert all(np.array_equal(state[name], whole[name]) for name in whole) and state.keys() == whole.keys()
            # Every block travels once, from the first of the ranks that have it, but for those that rank 0 has itself.
            held = 8 * sum(p.size for _, p in net.parameters if p.layout.sharded)
            counted = all(grid.coordinates[axis] == 0 for axis in ("batch", "height"))
            assert sent <= held and (sent == 0) == (comm.rank == 0 or not counted or held == 0), (sizes, plan, sent, held)


def test_an_end_at_which_a_loss_gives_other_gradients_can_not_be_placed():
    """Every rank would compute the whole gradient of outputs that are replicated, where a partial sum is expected."""
    ends = Layout((None, 3), {"model": 2}, {"model": Invariant()})
    assert Placed([], {}, ends, ends, [[]], [ends, ends]).layers == []
    wrong = Layout((None, 3), {"model": 2}, {"model": Replicate()})
    with pytest.raises(ValueError, match="must be Partial.*its own adjoint"):
        Placed([], {}, ends, wrong, [[]], [ends, ends])


@mpi(1, 2)
def test_a_network_can_wait_for_its_memory(comm):
    with ProcessGrid(comm, model=comm.size) as grid:
        net = parallelize(Sequential(wide()), grid, allocate=False)
        assert not net.allocated
        with pytest.raises(RuntimeError, match="call allocate"):
            _ = net.params
        net.allocate()
        assert len(net.params) == net.size
