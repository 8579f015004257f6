"""How gradients are summed: each reduction equals serial training, with the bytes of its formula, and ends well on errors.

Other networks, grids, plans and optimizers with all reductions, and that the same bits come twice, are in random_networks.
"""

from itertools import product
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from gridgrad.experiments.common import byte_formulas
from gridgrad.nn import LOSSES, SGD, Adam, Dropout, Linear, ReLU, Sequential, Tanh
from gridgrad.nn.kernels.kernel_table import kernels
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.grid.group import Transfer
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.placement.placements import Partial, Replicate, Shard
from gridgrad.parallel.sync import power_sgd, shared_memory
from gridgrad.parallel.sync.float16_sums import Float16Sum
from gridgrad.parallel.sync.overlapped import seconds_of_union
from gridgrad.parallel.sync.shared_memory import SharedRun, shared_arrays
from gridgrad.parallel.training.steps import Diverged
from tests.clock import Clock
from tests.mpi import mpi
from tests.parallel.equality import assert_same, block, on_cpus, parallel, serial

X, Y = np.ones((6, 7)), np.ones((6, 2))


def ways(comm):
    """The options of all reductions that are possible on the devices of the ranks. Collective."""
    names = "plain", "overlap:1", *["shared"] * on_cpus(comm)
    return [{"reduction": name, "update": update} for name in names for update in ("whole", "sharded")]


def network(dtype=np.float64):
    layers = [Linear(7, 11), ReLU(), Linear(11, 31), Tanh(), Dropout(0.3), Linear(31, 17), ReLU(), Linear(17, 2)]
    return Sequential(layers, seed=3, dtype=dtype)


def batches():
    """The last minibatch leaves ranks without samples."""
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((samples, 7)), rng.standard_normal((samples, 2))) for samples in (13, 5, 1)]


def adam(net):
    return Adam(net, lr=0.01, l2=1e-3)


def sgd(net):
    return SGD(net, lr=0.05, momentum=0.9, l2=1e-3)


@mpi(1, 2, 3)
def test_every_reduction_equals_serial(comm, monkeypatch):
    """Also with micro-batches, some of them missing, and on several nodes, the last of which has fewer ranks."""
    for micro_batches, node in ((1, comm.size), (3, comm.size), *[(3, comm.size - 1)] * (comm.size > 1)):
        expected = serial(network(), adam, "mse", batches(), micro_batches)
        monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", str(node))
        for options in ways(comm):
            with ProcessGrid(comm, batch=comm.size) as grid:
                found = parallel(network(), grid, "replicate", adam, "mse", batches(), micro_batches, **options)
            assert_same(found, expected, 1e-10, f"{options} {node} {micro_batches}")


@mpi(2, 3)
def test_a_step_moves_the_bytes_of_the_formula_and_a_sharded_optimizer_holds_its_part(comm):
    x, y = X.astype(np.float32), Y.astype(np.float32)
    for options in ways(comm):
        if options["reduction"] == "shared":
            continue
        sent = {}
        for dtype in "same", "float16":
            with ProcessGrid(comm, batch=comm.size) as grid:
                net = parallelize(network(np.float32), grid, reduce_dtype=dtype, **options)
                optimizer = adam(net)
                train_step(net, LOSSES["mse"](), optimizer, *block(net, x, y), len(x))
                counted = {key[0]: record.bytes for key, record in grid.tally.records.items()}
            sent[dtype] = comm.allreduce(counted["gradients"])
            if dtype == "same":
                total = comm.allreduce(counted["gradients"] + counted.get("parameters", 0))
                assert total == byte_formulas.gradients([7, 11, 31, 17, 2], comm.size, 1), options
        header = 4 * len(net.reduction.buckets) * 2 * comm.size**2  # of each block at most
        assert sent["same"] <= 2 * sent["float16"] <= sent["same"] + 2 * header, (options, sent)
        held = sum(array.size for array in optimizer.state_arrays().values())
        if options["update"] == "sharded":
            assert comm.allreduce(held) == 2 * net.size
            assert abs(held - 2 * net.size / comm.size) <= 2 * len(net.reduction.owned), options


def sum_in_float16(group, array, target):
    """Sum an array over a group, in place, by the row that sends float16. Collective."""
    Float16Sum(group, Partial(), target, array.shape, None).in_place(array, None, "gradients")


@mpi(1, 2, 3)
def test_float16_sums_are_as_exact_as_they_say(comm):
    rng = np.random.default_rng(comm.rank)
    for n, scale in product((0, 1000), (1.0, 1e-12, 1e12)):
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
    array = np.array([1, np.inf, np.nan], np.float32) if comm.rank == 0 else np.ones(3, np.float32)
    with np.errstate(invalid="ignore", over="ignore"), ProcessGrid(comm, batch=comm.size) as grid:
        sum_in_float16(grid.world, array, Replicate())
    assert not np.isfinite(array[1:]).any(), "what is not finite is passed on"


# ----- shared memory


@mpi(1, 3)
def test_sums_in_shared_memory_may_have_several_chunks(comm):
    n = kernels().chunk + 5
    arrays = shared_arrays(comm, n, np.float32)
    arrays[comm.rank][:] = np.arange(n) + comm.rank
    run = SharedRun(arrays, comm.rank)
    comm.Barrier()
    run.add_up_part(run.others)
    comm.Barrier()
    assert np.array_equal(arrays[comm.rank], sum(np.arange(n, dtype=np.float32) + rank for rank in range(comm.size)))


@pytest.mark.parametrize("count", (1, 2, 3))
def test_a_sum_may_lie_in_one_of_its_terms(count):
    for out in range(count):
        pieces = [np.full(3, 2.0**-k) for k in range(count)]
        expected = sum(piece.copy() for piece in pieces)
        SharedRun(pieces, out).add_up(slice(0, 3))
        assert np.array_equal(pieces[out], expected)


@mpi(2, 3)
def test_every_element_is_read_from_every_other_rank_on_a_node(comm):
    """On one node a step needs two barriers: one behind the writing of the gradients, one behind the update."""
    with ProcessGrid(comm, batch=comm.size) as grid:
        net = parallelize(network(), grid, reduction="shared")
        train_step(net, LOSSES["mse"](), sgd(net), *block(net, X, Y), len(X))
        read = comm.allreduce(grid.tally.records["gradients", "shared sum"].bytes)
        assert read == net.size * net.dtype.itemsize * (comm.size - 1)
        assert grid.tally.records["gradients", "barrier"].calls == 2


# ----- errors


@mpi(2)
def test_one_node_without_room_is_heard_of_on_all(comm, monkeypatch):
    monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", "1")
    with ProcessGrid(comm, batch=2) as grid:
        if comm.rank:
            full = mock.Mock(side_effect=OSError(28, "full"))
            monkeypatch.setattr(shared_memory.os, "posix_fallocate", full, raising=False)
        with pytest.raises(ValueError, match="full.*--reduction plain"):
            parallelize(network(), grid, reduction="shared")


@mpi(1, 2)
def test_divergence_ends_every_reduction_in_the_same_words(comm, monkeypatch):
    """Also in the first micro-batch, when nothing is under way yet; and what was kept of it is forgotten."""
    monkeypatch.setattr(power_sgd, "UNCOMPRESSED_STEPS", 0)
    for options in [*ways(comm), {"reduction": "powersgd:2"}]:
        with ProcessGrid(comm, batch=comm.size) as grid, np.errstate(all="ignore"):
            net = parallelize(network(), grid, **options)
            micro_batches = [(*block(net, X[part] * np.nan, Y[part]), 3) for part in (slice(0, 3), slice(3, 6))]
            optimizer, loss = sgd(net), LOSSES["mse"]()
            net.learn(X, Y, loss, optimizer)
            with pytest.raises(Diverged, match="the input"):
                net.trainer(loss, optimizer).complete_step(micro_batches, 6)
            assert net.reduction.accumulated is None or not net.reduction.accumulated.any()
            net.learn(X, Y, loss, optimizer)
            assert np.isfinite(net.learn(X, Y, loss, optimizer)), options


# ----- the time of what is under way


@mpi(2)
def test_exposed_communication_is_the_time_in_waits(comm, monkeypatch):
    monkeypatch.setattr(Transfer, "test", lambda transfer: transfer.done)  # complete only when it is waited for
    with ProcessGrid(comm, batch=2) as grid:
        net = parallelize(network(), grid, reduction="overlap:1")
        optimizer = sgd(net)
        grid.tally.clock = SimpleNamespace(now=Clock(tick=1.0).monotonic)
        train_step(net, LOSSES["mse"](), optimizer, *block(net, X, Y), len(X))
        in_flight, exposed = net.reduction.seconds_of_step()
        assert 0 < exposed < in_flight < grid.tally.clock.now()


def test_intervals_are_joined():
    assert seconds_of_union([(5, 6), (0, 2), (1, 3), (1, 2)]) == 4
