"""The cost model counts what happens: memory is that of a step, and times are those calculated by hand in tiny cases.

The bytes of any network on any grid are in `tests/random_networks/predictions.py`.
"""

import tracemalloc
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from gridgrad.nn import (
    SGD,
    Linear,
    ReLU,
    Sequential,
    SoftmaxCrossEntropy,
)
from gridgrad.nn.kernels.workspace import scratch
from gridgrad.nn.layers.pool import space_for
from gridgrad.nn.zoo import network_names
from gridgrad.parallel import ProcessGrid, parallelize
from gridgrad.parallel.grid.process_grid import AXES, GridDescription
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.prediction.cost import AHEAD, Cost, RankStep, cost_of_slowest_rank, played, step_time
from gridgrad.parallel.prediction.machine import Machine, names, read
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.workload import Work
from tests.mpi import mpi
from tests.parallel.equality import block, on_cpus

CORI, RESNET = read("cori-haswell"), network_names.build("resnet20", (32, 32, 3), 10)

# ----- operations and memory


@pytest.mark.parametrize("sizes", [{"height": 2}, {"batch": 2, "height": 3, "model": 2}])
def test_the_operations_of_all_ranks_are_those_of_one(sizes):
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


# ----- seconds of all ranks, which wait for each other

LATENCY, BYTE = 10.0, 0.001  # seconds of any message and collective, and of each byte that is sent


def machine(**core):
    """One second an operation, counted as its flops, and the network above."""
    link = {"alpha": LATENCY, "beta": BYTE}
    core = {"flops": 1.0, "bandwidth": 1e30, "call": 1e-12} | core
    return Machine("simple", "-", core, {"ranks": 1, "bandwidth": 1e30, "memory": 1e9}, {"node": link, "network": link})


def play(scripts, machine):
    """The StepPrediction of ranks that do what their scripts say, see `Scripted`."""
    return played([Scripted(rank, script, len(scripts), machine) for rank, script in enumerate(scripts)])


class Scripted:
    """What the simulation asks of a Cost. script: seconds of operations, {rank: bytes} of exchanges, and the text "sum"."""

    itemsize = 4

    def __init__(self, rank, script, ranks, machine):
        self.machine, self.grid = machine, GridDescription({"model": ranks}, {"model": rank}, 1)
        self.executed = [self.work(item) for item in script]
        self.bytes_sent = sum(sum(item.values()) for item in script if isinstance(item, dict))
        self.parts = {"gradients": 0.0}

    def rank_step(self, **spent):
        return RankStep(**spent, bytes=self.bytes_sent)

    def work(self, item):
        group = self.grid.group("model")
        if isinstance(item, dict):
            return Exchanged("layer", "forward", "exchange", nbytes=sum(item.values()), group=group, move=Sent(item))
        if item == "sum":
            return Work("layer", "forward", "all-reduce", group=group)
        return Work("layer", "forward", "relu", (1,), flops=item)

    def seconds_of(self, work):
        return work.seconds(self.machine, self.grid.size)


@dataclass(frozen=True)
class Sent:
    """Stands for the Step of an exchange. bytes: {rank: bytes}."""

    bytes: dict


class Exchanged(Work):
    """An exchange whose `step` is a Sent."""

    def messages(self, itemsize=4):
        return self.move.bytes


@pytest.mark.parametrize(
    ("what", "scripts", "seconds", "of_ranks"),
    [
        ("one after another: a layer each, and the way back", [[3.0, {1: 2000}, {}], [{}, 4.0, {0: 2000}]],
         3 + 12 + 4 + 12, {"busy": [3, 4], "waiting": [4, 3], "communicating": [24, 24]}),
        ("latencies of messages overlap, their bytes do not", [[{1: 1000, 2: 2000, 3: 3000}], [{}], [{}], [{}]],
         16, {"communicating": [16, 11, 13, 16]}),
        ("so they do on the way back, with a sum of four rounds behind",
         [[{}, "sum"], [{0: 1000}, "sum"], [{0: 2000}, "sum"], [{0: 3000}, "sum"]], 16 + 40, {}),
        ("only those that send are needed: a message of the next step is waited for", [[{1: 1000}], [{}, 5.0], [100.0, {}]],
         100, {"waiting": [5, 0, 0]}),
        ("a short message leaves before its receiver has arrived", [[{1: AHEAD}, 1.0, "sum"], [9000.0, {}, "sum"]],
         9000 + 1 + 20, {}),
        ("a long one when it has", [[{1: 2 * AHEAD}, 1.0, "sum"], [9000.0, {}, "sum"]],
         9000 + LATENCY + 2 * AHEAD * BYTE + 1 + 20, {}),
        ("one of a few bytes is not waited for by its sender", [[{1: 8}, 1000.0], [900.0, {}]], 1000, {}),
        ("a collective begins with the last rank, and the next step begins earlier on the other one",
         [[1.0, "sum", 5.0], [7.0, "sum", 2.0]], 7 + 20 + 5 - 3, {"busy": [6, 9]}),
    ],
)  # fmt: skip
def test_ranks_wait_for_each_other(what, scripts, seconds, of_ranks):
    found = play(scripts, machine())
    assert found.seconds == pytest.approx(seconds)
    for kind, expected in of_ranks.items():
        assert [getattr(rank, kind) for rank in found.ranks] == pytest.approx(expected), kind


def test_ranks_that_share_cores_are_faster_while_others_wait():
    crowded = machine(crowd=2)  # two ranks a core
    scripts = [[8.0], [8.0]], [[8.0, {1: 0}], [{}]], [[8.0], [8.0], [8.0], []]
    assert [play(each, crowded).seconds for each in scripts] == pytest.approx([8, 4, 6])


def test_two_layers_of_a_network_at_two_ranks():
    net = Sequential([Linear(50, 30), Linear(30, 10)], input_shape=(50,))
    owners = Owners(2, {"0": np.zeros(30, int), "1": np.ones(10, int)}, loss=1)
    found = step_time(net, PlacementSpec({"model": 2}, "hypergraph", owners=owners), 20, machine(flops=1e3))
    # forward and gradients of the first layer; of the second one the gradient of its input, too
    first, second = 2 * 20 * 50 * 30 / 1e3, 2 * 20 * 30 * 10 / 1e3
    message = LATENCY + 4 * 20 * 30 * BYTE
    update = [4 * (50 * 30 + 30) / 1e3, 4 * (30 * 10 + 10) / 1e3]
    busy = [2 * first + update[0], 3 * second + update[1]]
    assert [rank.busy for rank in found.ranks] == pytest.approx(busy, rel=1e-6)
    assert (found.bytes, found.messages) == (2 * 4 * 20 * 30 + 2 * 24, 2)  # the loss and its two counts go both ways
    # The second rank still updates while the first one begins the next step.
    assert found.seconds == pytest.approx(2 * first + 3 * second + 2 * message + update[0], rel=1e-6)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("sizes", [{}, {"model": 4}, {"batch": 2, "model": 2}])
def test_where_all_ranks_do_the_same_the_step_takes_as_long_as_that_of_one(name, sizes):
    even = Sequential([Linear(64, 480), ReLU(), Linear(480, 480), ReLU(), Linear(480, 12)], input_shape=(64,))
    for plan in ("out", "in", "laugier", "replicate"):
        asked = PlacementSpec(sizes, plan)
        cost = cost_of_slowest_rank(even, asked, 24, read(name))
        found = step_time(even, asked, 24, read(name)).seconds
        # Here communication in backward, too, hides the sum of the loss.
        loss = sum(cost.seconds_of(work) for work in cost.works if work.layer == "loss" and work.group)
        assert (cost.seconds - loss) * (1 - 1e-9) <= found <= cost.seconds * (1 + 1e-9), plan
