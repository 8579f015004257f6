"""The cost model counts what happens: memory is that of a step, and times are those calculated by hand in tiny cases.

The bytes of any network on any grid are in `tests/random_networks/predictions.py`.
"""

import tracemalloc
from itertools import product

import numpy as np
import pytest

from gridgrad.nn import SGD, Linear, ReLU, Sequential, SoftmaxCrossEntropy
from gridgrad.nn.kernels.workspace import scratch
from gridgrad.nn.layers.pool import space_for
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid.process_grid import AXES, GridDescription
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.prediction.cost import Cost, cost_of_slowest_rank, costs_of_ranks, played
from gridgrad.parallel.prediction.machine import Machine, read
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from tests.mpi import mpi
from tests.parallel.equality import block, on_cpus

CORI, RESNET = read("cori-haswell"), network_names.build("resnet20", (32, 32, 3), 10)

# ----- operations and memory


def test_the_operations_of_all_ranks_are_those_of_one():
    sizes = {"batch": 2, "height": 3, "model": 2}
    places = product(*(range(sizes.get(axis, 1)) for axis in AXES))
    grids = [GridDescription(sizes, dict(zip(AXES, place, strict=True))) for place in places]
    operations = [
        sum(work.flops for work in Cost(RESNET, grid, "fewest-bytes", 12, CORI).works if work.phase != "update")
        for grid in [*grids, GridDescription({})]
    ]
    assert sum(operations[:-1]) == pytest.approx(operations[-1])


@mpi(1, 2)
def test_arrays_take_the_memory_that_is_predicted(comm):
    """NumPy tells tracemalloc what its arrays allocate and free, so that neither time nor the load of the machine counts."""
    for name, shape in (("mlp:512,512,relu", (784,)), ("cifar-cnn", (32, 32, 3)), ("resnet20", (32, 32, 3))):
        serial, rng, samples = network_names.build(name, shape, 10), np.random.default_rng(1), 32
        x, y = rng.random((samples, *serial.input_shape), np.float32), rng.integers(0, 10, samples)
        for axis in ("batch", "model") if on_cpus(comm) else ():  # on a GPU, blocks of scratch memory are larger
            scratch._spaces.clear()  # what tests before this one have left in this process
            space_for.cache_clear()
            with ProcessGrid(comm, **{axis: comm.size}) as grid:
                tracemalloc.start()
                net = parallelize(serial, grid, "fewest-bytes", reduction="plain")
                part = *(array.copy() for array in block(net, x, y)), samples
                net.allocate()
                trainer = net.trainer(SoftmaxCrossEntropy(), SGD(net, lr=0.01, momentum=0.9))
                trainer.complete_step([part], samples)
                tracemalloc.reset_peak()
                trainer.complete_step([part], samples)
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                here = GridDescription(grid.sizes, grid.coordinates, grid.size)
            predicted = Cost(serial, here, "fewest-bytes", samples, CORI).prediction.memory
            assert predicted / 1.2 <= peak <= predicted * 1.2, (name, axis, comm.rank, peak, predicted)


# ----- seconds

LATENCY, BYTE = 10.0, 0.001  # seconds of any message and collective, and of each byte that is sent


def machine(**core):
    """With the network above."""
    link = {"alpha": LATENCY, "beta": BYTE}
    core = {"flops": 1.0, "bandwidth": 1e30, "call": 1e-12} | core
    return Machine("simple", "-", core, {"ranks": 1, "bandwidth": 1e30, "memory": 1e9}, {"node": link, "network": link})


def test_two_layers_of_a_network_at_two_ranks():
    net = Sequential([Linear(50, 30), Linear(30, 10)], input_shape=(50,))
    owners = Owners(2, {"0": np.zeros(30, int), "1": np.ones(10, int)}, loss=1)
    asked = PlacementSpec({"model": 2}, "hypergraph", owners=owners)
    found = played(costs_of_ranks(net, asked, 20, machine(flops=1e3)))
    # forward and gradients of the first layer; of the second one the gradient of its input, too
    first, second = 2 * 20 * 50 * 30 / 1e3, 2 * 20 * 30 * 10 / 1e3
    message = LATENCY + 4 * 20 * 30 * BYTE
    update = [4 * (50 * 30 + 30) / 1e3, 4 * (30 * 10 + 10) / 1e3]
    busy = [2 * first + update[0], 3 * second + update[1]]
    assert [rank.busy for rank in found.ranks] == pytest.approx(busy, rel=1e-6)
    # the loss and its two counts go both ways
    assert [(rank.bytes, rank.messages) for rank in found.ranks] == 2 * [(4 * 20 * 30 + 24, 1)]
    # The second rank still updates while the first one begins the next step.
    assert found.seconds == pytest.approx(2 * first + 3 * second + 2 * message + update[0], rel=1e-6)
    crowded = played(costs_of_ranks(net, asked, 20, machine(flops=1e3, crowd=2)))  # one computes while the other waits
    assert crowded.seconds == pytest.approx(first + 1.5 * second + 2 * message + update[0], rel=0.05)


@pytest.mark.parametrize("sizes", [{}, {"batch": 2, "model": 2}])
def test_where_all_ranks_do_the_same_the_step_takes_as_long_as_that_of_one(sizes):
    even = Sequential([Linear(64, 480), ReLU(), Linear(480, 480), ReLU(), Linear(480, 12)], input_shape=(64,))
    for plan in ("out", "in", "laugier", "replicate"):
        asked = PlacementSpec(sizes, plan)
        cost = cost_of_slowest_rank(even, asked, 24, CORI)
        found = played(costs_of_ranks(even, asked, 24, CORI)).seconds
        # Here communication in backward, too, hides the sum of the loss.
        loss = sum(cost.seconds_of(work) for work in cost.works if work.layer == "loss" and work.group)
        assert (cost.seconds - loss) * (1 - 1e-9) <= found <= cost.seconds * (1 + 1e-9), plan
