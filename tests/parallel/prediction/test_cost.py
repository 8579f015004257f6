"""The cost model counts what happens: the bytes that it predicts are the bytes that are sent."""

from itertools import product

import numpy as np
import pytest

from gridgrad.nn import (
    SGD,
    BatchNorm,
    Concat,
    Conv2d,
    Flatten,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
    Sequential,
    SoftmaxCrossEntropy,
)
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize, train_step
from gridgrad.parallel.grid.process_grid import AXES, GridDescription
from gridgrad.parallel.prediction.cost import Cost, cost_of_slowest_rank
from gridgrad.parallel.prediction.machine import names, read
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.mpi import mpi
from tests.parallel.equality import RANKS, block, grids


def dense():
    return Sequential([Linear(7, 31), ReLU(), Linear(31, 11), ReLU(), Linear(11, 3)], input_shape=(7,))


def images():
    branch = [Conv2d(7, 7, 3, padding=1), BatchNorm(7), ReLU(), Conv2d(7, 7, 1)]
    layers = [
        Conv2d(3, 7, 3),
        ReLU(),
        MaxPool2d(2),
        Residual(branch),
        Concat([Conv2d(7, 5, 1)], [MaxPool2d(3, 1, 1)]),
        Flatten(),
    ]
    return Sequential([*layers, Linear(12 * 4 * 5, 11), ReLU(), Linear(11, 3)], input_shape=(11, 12, 3))


def counted(net, x, y):
    """The bytes that each layer sends from each rank in a step, by kind."""
    net.grid.tally.clear()
    train_step(net, SoftmaxCrossEntropy(), SGD(net, lr=0.01, momentum=0.9), *block(net, x, y), len(x))
    mine = {key: record.bytes for key, record in net.grid.tally.records.items() if record.bytes}
    return net.grid.comm.allgather(mine)


def priced(serial, grid, plan, batch_size, rank):
    return sent_by(Cost(serial, GridDescription(grid.sizes, grid.coordinates_of(rank)), plan, batch_size, read("cori-haswell")))


def sent_by(cost):
    found = {}
    for work in cost.works:
        if work.group is not None and work.nbytes:
            key = work.layer, work.name
            found[key] = found.get(key, 0) + work.nbytes
    return found


def compare(comm, make, axes, plans, batch_sizes):
    rng = np.random.default_rng(0)
    for sizes in grids(comm.size, axes):
        for plan in plans:
            if "height" in plan and sizes.get("height", 1) > 1:
                continue
            with ProcessGrid(comm, **sizes) as grid:
                for batch_size in batch_sizes:
                    x = rng.normal(size=(batch_size, *make().input_shape)).astype(np.float32)
                    everyone = counted(parallelize(make(), grid, plan), x, np.arange(batch_size) % 3)
                    for rank, mine in enumerate(everyone):
                        assert priced(make(), grid, plan, batch_size, rank) == mine, (str(grid), plan, batch_size, rank)


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_bytes_of_dense_networks_are_those_that_are_sent(comm):
    plans = "fewest-bytes", "out", "in", "replicate", "redundant", "laugier", "out,replicate,in", "in,redundant,out"
    compare(comm, dense, ("batch", "model"), plans, (13, 3))


@mpi(2, 3, 4, 5, 6, 7, 8, long=(5, 6, 7, 8))
def test_bytes_are_those_that_are_sent_where_gathers_hide_behind_products(comm, monkeypatch):
    rng, serial = np.random.default_rng(0), dense()
    monkeypatch.setenv("GRIDGRAD_RANKS_PER_NODE", "1")
    for sizes in grids(comm.size):
        with ProcessGrid(comm, **sizes) as grid:
            x = rng.normal(size=(13, 7)).astype(np.float32)
            everyone = counted(parallelize(dense(), grid, "out"), x, np.arange(13) % 3)
            for rank, mine in enumerate(everyone):
                description = GridDescription(grid.sizes, grid.coordinates_of(rank), ranks_per_node=1)
                assert sent_by(Cost(serial, description, "out", 13, read("cori-haswell"))) == mine, (sizes, rank)


@pytest.mark.parametrize("machine", names())
@pytest.mark.parametrize("sizes", [{}, {"batch": 2}, {"height": 2}, {"model": 2}, {"batch": 2, "height": 3, "model": 2}])
def test_the_operations_of_all_ranks_are_those_of_one(machine, sizes):
    machine, net = read(machine), images()
    places = product(*(range(sizes.get(axis, 1)) for axis in AXES))
    costs = [
        Cost(net, GridDescription(sizes, dict(zip(AXES, place, strict=True))), "fewest-bytes", 12, machine) for place in places
    ]
    alone = Cost(net, GridDescription({}), "fewest-bytes", 12, machine)
    operations = lambda cost: sum(work.flops for work in cost.works if work.phase in ("forward", "backward", "gradients"))  # noqa: E731
    assert sum(map(operations, costs)) == pytest.approx(operations(alone))


def test_where_there_are_no_tables_an_operation_takes_its_arithmetic_or_its_traffic():
    machine = read("cori-haswell")
    net = network_names.build("cifar-cnn", (32, 32, 3), 10)
    cost = Cost(net, GridDescription({}), "out", 128, machine)
    for work in cost.works:
        floor = max(work.flops / machine.core["flops"], work.nbytes / machine.bandwidth(1))
        assert cost.seconds_of(work) == pytest.approx(floor + machine.core["call"]), work


@mpi(*RANKS, long=(5, 6, 7, 8))
def test_bytes_of_image_networks_are_those_that_are_sent(comm):
    plans = "fewest-bytes", "out", "conv=height,linear=in", "conv=width,linear=out"
    compare(comm, images, ("batch", "height", "model"), plans, (5,))


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_a_halo_takes_every_rank_as_long_as_the_one_that_sends_most(ranks):
    machine, net, sent, seconds = read("ethernet-1g"), images(), {}, {}
    for rank in range(ranks):
        cost = Cost(net, GridDescription({"height": ranks}, {"height": rank}), "fewest-bytes", 12, machine)
        halos = [work for work in cost.works if work.name == "exchange"]
        for number, work in enumerate(halos):  # the same ones, in the same order, on all ranks
            sent.setdefault(number, []).append(work.nbytes)
            seconds.setdefault(number, []).append(cost.seconds_of(work))
    assert len(sent) >= 4 and any(len(set(nbytes)) > 1 for nbytes in sent.values())
    for number, nbytes in sent.items():
        group = GridDescription({"height": ranks}).group("height")
        assert len(set(seconds[number])) == 1
        assert seconds[number][0] >= machine.collective_seconds("exchange", group, ranks, max(nbytes))


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
@pytest.mark.parametrize(
    ("name", "shape"),
    [("mnist-cnn", (28, 28, 1)), ("cifar-cnn", (32, 32, 3)), ("alexnet", (227, 227, 3)), ("resnet20", (32, 32, 3))],
)
def test_hardly_any_rank_along_height_takes_longer_than_the_one_with_the_most_work(name, shape, ranks):
    """The first ranks have the rows that an even split leaves over, which take longer than the second halo of other ranks."""
    machine, net, sizes = read("cori-haswell"), network_names.build(name, shape, 10), {"height": ranks}
    plan = "fewest-bytes"
    every = [Cost(net, GridDescription(sizes, {"height": rank}), plan, 64, machine).seconds for rank in range(ranks)]
    most = cost_of_slowest_rank(net, PlacementSpec(sizes, plan), 64, machine).seconds
    assert 0.95 * max(every) <= most <= max(every)
