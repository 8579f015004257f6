"""Local SGD with averages against a serial simulation of it: uneven and empty stripes, replicas that are themselves spread."""

from itertools import product

import numpy as np
import pytest

from nn import LOSSES, SGD, BatchNorm, Linear, Sequential, Tanh
from nn.device import to_device, to_host
from parallel import ProcessGrid, parallelize, train_step
from parallel.placement.partition import Partition
from parallel.sync.shared_memory import SharedMemoryReduction
from parallel.training.local_sgd import Replicas
from tests.mpi import mpi
from tests.parallel.equality import RANKS, block, error, grids, on_cpus

SIZES = 7, 11, 31


def network(norm=False):
    layers = [Linear(3, 5), *([BatchNorm(5)] if norm else []), Tanh(), Linear(5, 4)]
    return Sequential(layers, seed=1, dtype=np.float64, input_shape=(3,))


def samples(count):
    numbers = np.random.default_rng(count)
    return numbers.normal(size=(count, 3)), numbers.integers(0, 4, count)


def simulated(x, y, order, replicas, batch_size, period, momentum=0.0, norm=False):
    """The parameters (as a state) after a pass over `order`, by plain networks one after another."""
    nets = [network(norm=norm) for _ in range(replicas)]
    optimizers = [SGD(net, 0.1, momentum) for net in nets]
    loss, stripes = LOSSES["cross-entropy"](), [order[part] for part in Partition.even(len(order), replicas).parts]
    while any(len(stripe) for stripe in stripes):
        seen = [stripe[: batch_size * period] for stripe in stripes]
        for net, optimizer, indices in zip(nets, optimizers, seen, strict=True):
            for start in range(0, len(indices), batch_size):
                batch = indices[start : start + batch_size]
                net.context.training = True
                loss.forward(net.forward(to_device(x[batch]), net.context), to_device(y[batch]), net.context)
                net.backward(loss.backward(net.context), net.context)
                optimizer.step()
        states = [net.state_dict() for net in nets]
        weights = np.array([len(indices) for indices in seen]) / sum(map(len, seen))
        mean = {name: sum(w * state[name] for w, state in zip(weights, states, strict=True)) for name in states[0]}
        for net in nets:
            net.load_state_dict(mean)
        stripes = [stripe[batch_size * period :] for stripe in stripes]
    return mean


def trained(comm, sizes, count, batch_size, period, momentum=0.0, norm=False, **options):
    x, y = samples(count)
    with ProcessGrid(comm, **sizes) as grid:
        replicas = Replicas(network(norm=norm), grid, **options)
        net = replicas.net
        load = lambda indices: block(net, x[indices], y[indices])  # noqa: E731
        order = np.random.default_rng(0).permutation(count)
        replicas.train(LOSSES["cross-entropy"](), SGD(net, 0.1, momentum), load, order, batch_size, period)
        state = net.state_dict(everywhere=True)
        net.grid.free()
    return state, simulated(x, y, order, sizes.get("batch", 1), batch_size, period, momentum, norm)


@mpi(*RANKS, long=(6, 7))
def test_replicas_are_those_of_a_serial_simulation(comm):
    for count in (*SIZES, 3):  # 3 samples on 5 ranks: two have none
        for batch_size, period, momentum in ((1, 1, 0.0), (1, 3, 0.9), (2, 2, 0.0), (3, 100, 0.5)):
            state, expected = trained(comm, {"batch": comm.size}, count, batch_size, period, momentum)
            assert error(state, expected) < 1e-12


@mpi(2, 3, 4, 5, 6, 7, 8, long=(5, 6, 7))
def test_a_replica_may_itself_be_spread(comm):
    for count, sizes in product(SIZES, grids(comm.size)):
        across = {"batch": sizes["batch"], "height": sizes["model"]}
        assert error(*trained(comm, sizes, count, 2, 2)) < 1e-12, sizes
        assert error(*trained(comm, sizes, count, 4, 2, norm=True)) < 1e-12, sizes
        if on_cpus(comm):
            assert error(*trained(comm, across, count, 3, 2, reduction=SharedMemoryReduction)) < 1e-12, across


@mpi(3)
def test_running_statistics_are_averaged_too(comm):
    assert error(*trained(comm, {"batch": comm.size}, 31, 4, 2, norm=True)) < 1e-12


@mpi(3)
def test_an_average_after_each_step_is_a_step_of_all_together(comm):
    x, y = samples(11)
    with ProcessGrid(comm, batch=comm.size) as grid:
        net = parallelize(network(), grid)
        train_step(net, LOSSES["cross-entropy"](), SGD(net, 0.1), *block(net, x, y), len(x))
        together = net.state_dict(everywhere=True)
    apart, _ = trained(comm, {"batch": comm.size}, 11, 11, 1)
    assert error(apart, together) < 1e-12


@mpi(2)
def test_a_mean_loss_and_a_seed_of_its_own_on_each_replica(comm):
    x, y = samples(2)
    with ProcessGrid(comm, batch=2) as grid:
        replicas = Replicas(network(), grid)
        seeds = comm.allgather(replicas.net.seed)
        load = lambda indices: (x[indices], y[indices])  # noqa: E731
        loss, optimizer = LOSSES["cross-entropy"](), SGD(replicas.net, 0.1)
        first = replicas.train(loss, optimizer, load, np.arange(2), 1, 1)
        nothing = replicas.train(loss, optimizer, load, np.arange(1), 1, 1)
        before = replicas.net.params.copy()
        replicas.average(0)  # nobody has seen anything: they stay as they are
        assert np.array_equal(to_host(replicas.net.params), to_host(before))
        replicas.net.grid.free()
    net, mine = network(), x[comm.rank :][:1]
    loss = LOSSES["cross-entropy"]()
    assert first == pytest.approx(loss.forward(net.forward(to_device(mine)), to_device(y[comm.rank :][:1]), net.context))
    assert seeds == [1, 2] and np.isnan(nothing) == (comm.rank == 1)
