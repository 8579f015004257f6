"""With every reduction, sharded or not, the parallel network equals the serial one."""

from itertools import product

import numpy as np
import pytest

from gridgrad.experiments.common import byte_formulas
from gridgrad.nn import (
    LOSSES,
    SGD,
    Adam,
    BatchNorm,
    Context,
    Conv2d,
    Dropout,
    Flatten,
    Linear,
    ReLU,
    Residual,
    Sequential,
    Tanh,
)
from gridgrad.nn.kernels import gemm
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.grid.devices import use_device
from gridgrad.parallel.grid.group import Transfer, WallClock
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.placement.placements import Partial, Replicate, Shard
from gridgrad.parallel.sync import overlapped, shared_memory
from gridgrad.parallel.sync.float16_sums import Float16Sum
from gridgrad.parallel.sync.overlapped import seconds_of_union
from gridgrad.parallel.sync.shared_memory import SharedRun, add_up, shared_arrays
from gridgrad.parallel.training.steps import Diverged
from tests.mpi import mpi
from tests.parallel.equality import RANKS, assert_same, block, error, grids, on_cpus, parallel, serial

STEPS = 4
REDUCTIONS = {
    "plain": {},
    "plain, sharded": {"update": "sharded"},
    "overlap": {"reduction": "overlap"},
    "overlap, small buckets": {"reduction": "overlap:1"},
    "overlap, small buckets, sharded": {"reduction": "overlap:1", "update": "sharded"},
    "shared": {"reduction": "shared"},
    "shared, whole": {"reduction": "shared", "update": "whole"},
}


def reductions(comm):
    """Those of REDUCTIONS that are possible on the devices of the ranks. Collective."""
    all_on_cpus = on_cpus(comm)
    return {name: options for name, options in REDUCTIONS.items() if all_on_cpus or options.get("reduction") != "shared"}


def mlp():
    return [Linear(7, 11), ReLU(), Linear(11, 31), Tanh(), Dropout(0.3), Linear(31, 17), ReLU(), Linear(17, 2)]


def images():
    """Every kind of layer with parameters; branches, whose layers write their gradients in another order."""
    branch = [Conv2d(3, 3, 3, padding=1), BatchNorm(3), ReLU()]
    return [Conv2d(1, 3, 3), BatchNorm(3), ReLU(), Residual(branch), Flatten(), Linear(3 * 5 * 5, 5), Tanh(), Linear(5, 2)]


def batches(shape):
    for step in range(STEPS):
        rng, batch_size = np.random.default_rng(step), (13, 5, 1)[step % 3]
        yield rng.standard_normal((batch_size, *shape)), rng.standard_normal((batch_size, 2))


def adam(net):
    return Adam(net, lr=0.01, l2=1e-3)


def sgd(net):
    return SGD(net, lr=0.05, momentum=0.9, l2=1e-3)


def mlp_net(dtype=np.float64):
    return Sequential(mlp(), seed=3, dtype=dtype)


def image_net(dtype=np.float64):
    return Sequential(images(), seed=3, dtype=dtype, input_shape=(7, 7, 1))


def check(comm, net, shape, axes, plans, optimizer, micro_batches=1):
    expected = serial(net(), optimizer, "mse", batches(shape), micro_batches)
    for sizes, plan, (name, options) in product(grids(comm.size, axes), plans, reductions(comm).items()):
        with ProcessGrid(comm, **sizes) as grid:
            found = parallel(net(), grid, plan, optimizer, "mse", batches(shape), micro_batches, **options)
        assert_same(found, expected, 1e-10, f"{name} {sizes} {plan}")


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_every_reduction_equals_serial(comm):
    check(comm, mlp_net, (7,), ("batch", "model"), ("fewest-bytes", "out,replicate,in,replicate"), adam)


@mpi(*RANKS, long=(4, 5, 6, 7, 8))
def test_every_reduction_of_image_networks_equals_serial(comm):
    check(comm, image_net, (7, 7, 1), ("batch", "height", "model"), ("fewest-bytes",), sgd)


@mpi(2, 3, 4, 5, 6, 7, 8, long=(4, 5, 6, 7, 8))
def test_two_levels_equal_serial(comm, monkeypatch):
    """Several nodes, the last of which may have fewer ranks."""
    for number in range(1, min(comm.size, 4)) if comm.size < 6 else (3,):
        monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", str(number))
        check(comm, mlp_net, (7,), ("batch", "model"), ("fewest-bytes",), adam)
        if comm.size < 5:
            check(comm, image_net, (7, 7, 1), ("batch", "height", "model"), ("fewest-bytes",), sgd)


@mpi(*RANKS, long=(3, 4, 5, 6, 7, 8))
def test_micro_batches_add_up(comm):
    """Dropout's masks are those of the minibatch; the last micro-batches are smaller, or missing."""
    for micro_batches in (2, 3, 7):
        check(comm, mlp_net, (7,), ("batch", "model"), ("fewest-bytes",), adam, micro_batches=micro_batches)


@mpi(2, 3, 4, 5, 8, long=(4, 5, 8))
def test_every_reduction_repeats_bit_by_bit(comm):
    narrow = {
        "float16, overlap": {"reduction": "overlap:1", "reduce_dtype": "float16"},
        "float16, sharded": {"update": "sharded", "reduce_dtype": "float16"},
        "plain, micro-batches": {"micro_batches": 3},
    }
    more = {"overlap, micro-batches": {"reduction": "overlap:1", "micro_batches": 3}}
    for sizes, (name, options) in product(grids(comm.size), (reductions(comm) | narrow | more).items()):
        runs = []
        for _ in range(2):
            with ProcessGrid(comm, **sizes) as grid:
                net = image_net(np.float32)
                data = ((x.astype(np.float32), y.astype(np.float32)) for x, y in batches((7, 7, 1)))
                runs.append(parallel(net, grid, "fewest-bytes", sgd, "mse", data, **options))
        assert runs[0][0] == runs[1][0], (name, sizes)
        assert all(np.array_equal(value, runs[1][1][key]) for key, value in runs[0][1].items()), (name, sizes)


@mpi(2, 3, 5)
def test_a_sharded_optimizer_holds_its_part_of_the_state(comm):
    with ProcessGrid(comm, batch=comm.size) as grid:
        for way in ("plain", "overlap:1", "shared"):
            net = parallelize(mlp_net(), grid, reduction=way, update="sharded")
            held = sum(array.size for array in adam(net).state_arrays().values())
            assert comm.allreduce(held) == 2 * net.size
            assert abs(held - 2 * net.size / comm.size) <= 2 * len(net.reduction.owned), way


@mpi(2, 3, 4)
def test_a_sharded_step_moves_the_bytes_of_an_all_reduce(comm):
    widths = [7, 11, 31, 17, 2]
    for way in ("plain", "overlap:1"):
        with ProcessGrid(comm, batch=comm.size) as grid:
            net = parallelize(mlp_net(np.float32), grid, reduction=way, update="sharded")
            x, y = np.ones((comm.size, 7), np.float32), np.ones((comm.size, 2), np.float32)
            train_step(net, LOSSES["mse"](), sgd(net), x[net.input_block(len(x))], y[net.output_rows(len(x))], len(x))
            sent = {key: record.bytes for key, record in grid.tally.records.items() if key[0] != "loss"}
        assert comm.allreduce(sum(sent.values())) == byte_formulas.gradients(widths, comm.size, 1), (way, sent)


def sum_in_float16(group, array, target):
    """Sum an array over a group, in place, by the row that sends float16. Collective."""
    Float16Sum(group, Partial(), target, array.shape, None).in_place(array, None, "gradients")


@mpi(*RANKS, long=(6, 7, 8))
def test_float16_sums_are_as_exact_as_they_say(comm):
    rng = np.random.default_rng(comm.rank)
    for n, scale in product((0, 1, 2, 7, 1000), (1.0, 1e-12, 1e12)):
        own = (rng.standard_normal(n) * scale * 10.0 ** rng.uniform(-3, 0, n)).astype(np.float32)
        everyone = comm.allgather(own)
        exact, size_of_all = sum(a.astype(np.float64) for a in everyone), sum(np.abs(a) for a in everyone)
        lost = comm.size * 2**-39 * max((np.abs(a).max() for a in everyone if n), default=0.0)
        with ProcessGrid(comm, batch=comm.size) as grid:
            reduced, scattered = own.copy(), own.copy()
            sum_in_float16(grid.world, reduced, Replicate())
            sum_in_float16(grid.world, scattered, Shard(0, Partition.even(n, comm.size)))
        rounding = 2**-22 * size_of_all  # of float32
        assert (np.abs(reduced - exact) <= 2**-11 * (size_of_all + np.abs(exact)) * 1.001 + lost + rounding).all()
        part = Partition.even(n, comm.size).part(comm.rank)
        assert (np.abs(scattered - exact) <= 2**-11 * size_of_all * 1.001 + lost + rounding)[part].all()
        assert all(np.array_equal(reduced, other) for other in comm.allgather(reduced)), "ranks must hold the same numbers"


@mpi(3)
def test_float16_sums_pass_on_what_is_not_finite(comm):
    array = np.ones(7, np.float32)
    array[0], array[6] = np.inf if comm.rank == 1 else 1, np.nan if comm.rank == 2 else 1
    with np.errstate(invalid="ignore", over="ignore"), ProcessGrid(comm, batch=comm.size) as grid:
        sum_in_float16(grid.world, array, Replicate())
    assert not np.isfinite(array[0]) and np.isnan(array[6])


@mpi(2, 3, 4, 5, 6, 7, 8, long=(5, 6, 7, 8))
def test_float16_gradients_train_as_well(comm):
    """The difference from the serial network is that of rounding to float16: no larger, and not that of float64."""
    losses, expected = serial(mlp_net(), sgd, "mse", batches((7,)))
    for sizes, way, update in product(grids(comm.size), ("plain", "overlap:1"), ("whole", "sharded")):
        if sizes["batch"] == 1:
            continue  # no gradient is sent
        with ProcessGrid(comm, **sizes) as grid:
            options = {"reduction": way, "update": update, "reduce_dtype": "float16"}
            found, state = parallel(mlp_net(), grid, "fewest-bytes", sgd, "mse", batches((7,)), **options)
        assert 1e-6 < error(state, expected) < 2**-10, (sizes, way, update, error(state, expected))
        assert np.allclose(found, losses, rtol=1e-2, atol=0)


@mpi(2)
def test_float16_gradients_are_half_the_bytes(comm):
    sent = []
    for dtype in ("same", "float16"):
        with ProcessGrid(comm, batch=2) as grid:
            net = parallelize(mlp_net(np.float32), grid, reduction="plain", reduce_dtype=dtype)
            net.reduction.finish()
            sent.append(grid.tally.records["gradients", "all-reduce"].bytes)
    assert sent[0] == 2 * sent[1]


@mpi(1, 2, 3, 5, 8)
def test_shared_memory_sums(comm):
    for n in (0, 1, 7, kernels().chunk + 5):
        arrays = shared_arrays(comm, n, np.float32)
        arrays[comm.rank][:] = np.arange(n) + comm.rank
        run = SharedRun(arrays, comm.rank)
        comm.Barrier()
        run.add_up_part(run.others)
        comm.Barrier()
        assert np.array_equal(arrays[comm.rank], sum(np.arange(n, dtype=np.float32) + rank for rank in range(comm.size)))
        comm.Barrier()


@pytest.mark.parametrize(("count", "out"), [(count, out) for count in range(1, 6) for out in range(count)])
def test_a_sum_may_lie_in_one_of_its_terms(count, out):
    pieces = [np.full(3, 2.0**-k) for k in range(count)]
    expected = sum(piece.copy() for piece in pieces)
    add_up(pieces, pieces[out], np.empty(3))
    assert np.array_equal(pieces[out], expected)


@mpi(2, 3)
def test_every_element_is_read_from_every_other_rank(comm):
    """On one node a step needs two barriers: one behind the writing of the gradients, one behind the update."""
    with ProcessGrid(comm, batch=comm.size) as grid:
        net = parallelize(mlp_net(), grid, reduction="shared")
        x, y = np.ones((6, 7)), np.ones((6, 2))
        train_step(net, LOSSES["mse"](), sgd(net), *block(net, x, y), len(x))
        read = comm.allreduce(grid.tally.records["gradients", "shared sum"].bytes)
        assert read == net.size * net.dtype.itemsize * (comm.size - 1)
        assert grid.tally.records["gradients", "barrier"].calls == 2


@mpi(2)
def test_parameters_are_held_once_a_node(comm):
    """What one rank writes into its parameters, the other one sees."""
    with ProcessGrid(comm, batch=2) as grid:
        net = parallelize(mlp_net(), grid, reduction="shared")
        with net.exclusive():
            if comm.rank == 0:
                net.params[:] = 5
        assert (net.params == 5).all()


@mpi(2)
def test_no_room_in_memory_is_said_by_all(comm):
    with pytest.raises(ValueError, match="--reduction plain"):
        shared_arrays(comm, 1 << (60 if comm.rank else 3), np.uint8)


@mpi(2)
def test_one_gpu_is_enough_to_refuse_shared_memory(comm):
    """All ranks agree, though only one of them is on a device."""
    use_device(comm, "cpu,stand-in")
    with ProcessGrid(comm, batch=2) as grid:
        assert not grid.on_cpus
        assert str(parallelize(mlp_net(), grid, reduction="auto").reduction) == "plain"
        with pytest.raises(ValueError, match="--reduction shared needs all ranks on CPUs: use plain or overlap"):
            parallelize(mlp_net(), grid, reduction="shared")
        for options in ({"grid": "auto"}, {"grid": grid, "plan": "auto"}):
            with pytest.raises(ValueError, match="the planner can not predict GPUs"):
                parallelize(mlp_net(), **options)


@mpi(2)
def test_unknown_reductions_are_refused(comm):
    with ProcessGrid(comm, batch=2) as grid:
        for options in ({"reduction": "ring"}, {"reduction": "overlap:0"}, {"reduction": "overlap:x"},
                        {"reduction": "shared", "reduce_dtype": "float16"}):  # fmt: skip
            with pytest.raises(ValueError, match="reduction"):
                parallelize(mlp_net(), grid, **options)


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_gathers_hidden_behind_products_equal_serial(comm, monkeypatch):
    """Between nodes a Linear begins before all of its input has arrived; the bytes stay what they were. The first rank of the
    axis model holds nothing where the shares are uneven."""
    expected = serial(mlp_net(), adam, "mse", batches((7,)))
    for sizes, plan, uneven in product(grids(comm.size), ("out", "fewest-bytes"), (False, True)):
        shares = {"model": tuple(range(sizes["model"]))} if uneven and sizes["model"] > 1 else None
        sent = []
        for number in (1, comm.size):
            monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", str(number))
            with ProcessGrid(comm, **sizes) as grid:
                hides = "GatheredLinear" in repr(parallelize(mlp_net(), grid, plan, shares=shares))
                assert hides == (number < comm.size and sizes["model"] > 1), (sizes, plan, number)
                options = {"reduction": "overlap:1", "shares": shares}
                found = parallel(mlp_net(), grid, plan, adam, "mse", batches((7,)), **options)
                sent.append({key: (r.calls, r.bytes) for key, r in grid.tally.records.items()})
            assert_same(found, expected, 1e-10, f"{sizes} {plan} {shares}")
        assert sent[0] == sent[1], (sizes, plan, shares)


@mpi(2, 3)
def test_products_in_pieces_equal_serial(comm, monkeypatch):
    """Every product is cut, and what is under way is tested after each piece and each layer."""
    monkeypatch.setattr(gemm, "LONG_PRODUCT", 1)
    monkeypatch.setattr(overlapped, "TEST_INTERVAL", 0.0)
    tests, test = [], Transfer.test
    monkeypatch.setattr(Transfer, "test", lambda transfer: tests.append(transfer) or test(transfer))
    expected = serial(mlp_net(), adam, "mse", batches((7,)))
    for update in ("whole", "sharded"):
        with ProcessGrid(comm, batch=comm.size) as grid:
            options = {"reduction": "overlap:1", "update": update}
            found = parallel(mlp_net(), grid, "fewest-bytes", adam, "mse", batches((7,)), **options)
        assert_same(found, expected, 1e-10, update)
    assert len(tests) > 20


@mpi(1, 2, 4)
def test_divergence_ends_every_reduction_in_the_same_words(comm):
    """Also in the first micro-batch, when nothing is under way yet; and what was kept of it is forgotten."""
    x, y = np.full((6, 7), np.nan), np.ones((6, 2))
    for options in reductions(comm).values():
        with ProcessGrid(comm, batch=comm.size) as grid, np.errstate(all="ignore"):
            net = parallelize(mlp_net(), grid, **options)
            optimizer = sgd(net)
            micro_batches = [(*block(net, x[part], y[part]), 3) for part in (slice(0, 3), slice(3, 6))]
            with pytest.raises(Diverged, match="the input"):
                net.trainer(LOSSES["mse"](), optimizer).complete_step(micro_batches, 6)
            assert net.reduction.accumulated is None or not net.reduction.accumulated.any()


@mpi(2)
def test_a_layer_that_fails_leaves_no_progress_points_behind(comm, monkeypatch):
    """And the next step is as if the failed one had not been."""
    with ProcessGrid(comm, batch=2) as grid:
        net = parallelize(mlp_net(), grid, reduction="overlap:1")
        context, loss, optimizer = Context(), LOSSES["mse"](), sgd(net)
        x, y = next(batches((7,)))
        part = *block(net, x, y), len(x)
        with monkeypatch.context() as broken, pytest.raises(ValueError):
            broken.setattr(loss, "backward", lambda context: np.ones((3, 5)))
            train_step(net, loss, optimizer, *part, context)
        assert context.progress is not None and net.observer.progress is None and net.step == 0
        net.trainer(loss, optimizer, context)._sums.pop(0).wait()  # begun on both ranks
        assert np.isfinite(train_step(net, loss, optimizer, *part, context))


def full(*arguments):
    raise OSError(28, "full")


@mpi(2, 4)
def test_one_node_without_room_is_heard_of_on_all(comm, monkeypatch):
    monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", "1")
    with ProcessGrid(comm, batch=comm.size) as grid:
        if comm.rank:
            monkeypatch.setattr(shared_memory.os, "posix_fallocate", full, raising=False)
        with pytest.raises(ValueError, match="full.*--reduction plain"):
            parallelize(mlp_net(), grid, reduction="shared")


@mpi(2)
def test_a_state_of_other_slices_is_refused(comm):
    with ProcessGrid(comm, batch=2) as grid:
        of = {name: adam(parallelize(mlp_net(), grid, reduction=name, update="sharded")) for name in ("plain", "overlap:1")}
        with pytest.raises(ValueError, match="Adam"):
            of["plain"].load_state(of["overlap:1"].state_arrays(), of["overlap:1"].state_numbers())


class Ticking(WallClock):
    """Goes on by a second whenever somebody looks."""

    def __init__(self, start):
        self.time = start

    def now(self):
        self.time += 1
        return self.time


@mpi(2)
def test_exposed_communication_is_the_time_in_waits(comm, monkeypatch):
    monkeypatch.setattr(Transfer, "test", lambda transfer: transfer.done)  # complete only when it is waited for
    with ProcessGrid(comm, batch=2) as grid:
        net = parallelize(mlp_net(), grid, reduction="overlap:1")
        optimizer = sgd(net)
        grid.tally.clock = Ticking(1000)
        x, y = np.ones((6, 7)), np.ones((6, 2))
        steps = [train_step(net, LOSSES["mse"](), optimizer, *block(net, x, y), len(x)) for _ in range(3)]
        in_flight, exposed = net.reduction.seconds_of_step()
        assert 0 < exposed < in_flight < (grid.tally.clock.time - 1000) / len(steps)


def test_intervals_are_joined():
    assert seconds_of_union([]) == 0
    assert seconds_of_union([(5, 6), (0, 2), (1, 3), (1, 2)]) == 4
