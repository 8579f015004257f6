"""The critical path of a step: in tiny cases as calculated by hand, and as `Cost` says where all ranks do the same."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from gridgrad.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.plans.hypergraph import Owners
from gridgrad.parallel.prediction.cost import AHEAD, RankStep, cost_of_slowest_rank, played, step_time
from gridgrad.parallel.prediction.machine import Machine, names, read
from gridgrad.parallel.prediction.placement_spec import PlacementSpec
from gridgrad.parallel.prediction.workload import Work
from tests.parallel.prediction.test_cost import dense, images

LATENCY, BYTE = 10.0, 0.001  # seconds of any message and collective, and of each byte that is sent


def machine(**core):
    """One second an operation, counted as its flops, and the network above."""
    link = {"alpha": LATENCY, "beta": BYTE}
    core = {"flops": 1.0, "bandwidth": 1e30, "call": 1e-12} | core
    return Machine("simple", "-", core, {"ranks": 1, "bandwidth": 1e30, "memory": 1e9}, {"node": link, "network": link})


def play(*scripts, **core):
    """The StepPrediction of ranks that do what their scripts say, see `Scripted`. core: further constants of the machine."""
    return played([Scripted(rank, script, len(scripts), machine(**core)) for rank, script in enumerate(scripts)])


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


def times(found, kind):
    return [pytest.approx(getattr(rank, kind)) for rank in found.ranks]


def test_ranks_that_compute_one_after_another_wait_for_each_other():
    found = play([3.0, {1: 2000}, {}], [{}, 4.0, {0: 2000}])  # a layer each, and the way back
    assert found.seconds == pytest.approx(3 + (LATENCY + 2) + 4 + (LATENCY + 2))
    assert times(found, "busy") == [3, 4]
    assert times(found, "waiting") == [4, 3]
    assert times(found, "communicating") == [24, 24]
    assert (found.bytes, found.messages) == (4000, 2)


def test_the_latencies_of_messages_overlap_and_their_bytes_do_not():
    found = play([{1: 1000, 2: 2000, 3: 3000}], [{}], [{}], [{}])
    assert found.seconds == pytest.approx(LATENCY + 1 + 2 + 3)
    assert times(found, "communicating") == [LATENCY + 6, LATENCY + 1, LATENCY + 3, LATENCY + 6]
    gathered = play([{}, "sum"], [{0: 1000}, "sum"], [{0: 2000}, "sum"], [{0: 3000}, "sum"])
    assert gathered.seconds == pytest.approx(LATENCY + 6 + 4 * LATENCY)  # with a sum of four rounds behind it


def test_messages_of_all_ranks_to_all_take_as_long_as_an_all_to_all():
    slow = replace(machine(), collectives={"all-to-all": {"3": [[1, LATENCY], [2000, LATENCY + 6]]}})

    def seconds(*sent):
        return played([Scripted(rank, [bytes], len(sent), slow) for rank, bytes in enumerate(sent)]).seconds

    assert seconds({1: 1000, 2: 1000}, {0: 1000, 2: 1000}, {0: 1000, 1: 1000}) == pytest.approx(LATENCY + 6)
    assert seconds({1: 1000, 2: 1000}, {0: 1000, 2: 1000}, {0: 2000}) == pytest.approx(LATENCY + 2 + 1)
    assert seconds({1: 1000}, {0: 1000}) == pytest.approx(LATENCY + 1)


def test_an_exchange_needs_only_those_that_send():
    found = play([{1: 1000}], [{}, 5.0], [100.0, {}])
    assert times(found, "waiting") == [5, 0, 0]  # the first rank waits until its message of the next step is received
    assert found.seconds == pytest.approx(100)


def test_a_long_message_leaves_when_its_receiver_has_arrived_and_a_short_one_before():
    for nbytes, rest in ((AHEAD, 0), (2 * AHEAD, LATENCY + 2 * AHEAD * BYTE)):
        found = play([{1: nbytes}, 1.0, "sum"], [9000.0, {}, "sum"])
        # In both cases the sender waits for the receiver. The sum has two rounds.
        assert found.seconds == pytest.approx(9000 + rest + 1 + 2 * LATENCY), nbytes


def test_a_message_of_a_few_bytes_is_not_waited_for_by_its_sender():
    found = play([{1: 8}, 1000.0], [900.0, {}])
    assert found.seconds == pytest.approx(1000)


def test_a_collective_begins_when_the_last_rank_has_arrived():
    found = play([1.0, "sum", 5.0], [7.0, "sum", 2.0])
    reduced = 2 * LATENCY  # two rounds, without bytes
    assert found.seconds == pytest.approx(7 + reduced + 5 - 3)  # the second rank begins the next step 3 seconds earlier
    assert times(found, "busy") == [6, 9]


def test_ranks_that_share_cores_are_faster_while_others_wait():
    crowded = {"crowd": 2}  # two ranks a core
    both = play([8.0], [8.0], **crowded)
    one = play([8.0, {1: 0}], [{}], **crowded)
    three = play([8.0], [8.0], [8.0], [], **crowded)
    assert [both.seconds, one.seconds, three.seconds] == pytest.approx([8, 4, 6])


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
@pytest.mark.parametrize("sizes", [{}, {"model": 2}, {"model": 4}, {"batch": 2, "model": 2}, {"batch": 3}])
def test_where_all_ranks_do_the_same_the_step_takes_as_long_as_that_of_one(name, sizes):
    described = read(name)
    for make, plans in (
        (even_dense, ("out", "in", "laugier")),
        (even_images, ("out", "fewest-bytes", "conv=height,linear=in")),
    ):
        for plan in (*plans, "replicate"):
            net, asked = make(), PlacementSpec(sizes, plan)
            cost = cost_of_slowest_rank(net, asked, 24, described)
            found = step_time(net, asked, 24, described).seconds
            # Here communication in backward, too, hides the sum of the loss. In a Cost the latencies of two neighbours'
            # messages follow one another.
            loss = sum(cost.seconds_of(work) for work in cost.works if work.layer == "loss" and work.group)
            tolerance = 0.1 if "height" in plan else 1e-9
            assert (cost.seconds - loss) * (1 - tolerance) <= found <= cost.seconds * (1 + tolerance), (plan, make)


def even_dense():
    return Sequential([Linear(64, 480), ReLU(), Linear(480, 480), ReLU(), Linear(480, 12)], input_shape=(64,))


def even_images():
    layers = [Conv2d(3, 12, 3, padding=1), ReLU(), MaxPool2d(2), Conv2d(12, 12, 3, padding=1), ReLU(), Flatten()]
    return Sequential([*layers, Linear(12 * 8 * 8, 12)], input_shape=(16, 16, 3))


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_uneven_ranks_take_no_less_than_any_of_them_computes_and_no_more_than_all_together(ranks):
    described = read("ethernet-1g")
    for make in (dense, images):
        for plan in ("out", "fewest-bytes", "replicate"):
            found = step_time(make(), PlacementSpec({"model": ranks}, plan), 7, described)
            for rank in found.ranks:
                assert rank.busy + rank.waiting + rank.communicating == pytest.approx(found.seconds)
                assert rank.busy <= found.seconds <= sum(r.busy + r.communicating for r in found.ranks)
