"""What update protocols cost: seconds by hand on a machine of round numbers, and bytes, messages and operations as jobs count.

Jobs count what is predicted, but for `extras`. Workers may serve different parameters or none.
"""

from collections import Counter

import numpy as np
import pytest

from gridgrad.experiments.papers.hegde2016_costs import TRAFFIC, Case, case_of, cost, tau
from gridgrad.experiments.papers.hegde2016_count import counted
from gridgrad.nn import Linear, Sequential, Tanh
from gridgrad.parallel.grid.collectives import COLLECTIVES, all_reduce_elements
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.protocols.protocol_names import FORMS, SYNC
from gridgrad.parallel.protocols.server import greedy, single
from gridgrad.parallel.protocols.workers import NUMBERS
from tests.mpi import mpi

STEPS, PERIOD, EPOCH = 12, 4, 3
ITEM, HEADER = 8, 8 * NUMBERS  # bytes of a number of the network, and of what is in front of a message
WAYS = "", ":single"
PREDICTED = {  # text: (name, its steps, options) of what is predicted
    "sync": [("sync", STEPS, {})],
    "local:4": [("local", STEPS, {"period": PERIOD})],
    "post-local:4:2": [("post-local", 4, {}), ("post-local", STEPS - 4, {"period": 2})],
    "slowmo:4:0.5": [("slowmo", STEPS, {"period": PERIOD})],
    "diloco:4": [("diloco", STEPS, {"period": PERIOD})],
    "easgd:4:0.1": [("easgd", STEPS, {"period": PERIOD})],
    "admm:4": [("admm", STEPS, {"period": PERIOD})],
    "sgp": [("sgp", STEPS, {})],
    "parallel-sgd": [("parallel-sgd", STEPS, {"period": STEPS})],
    "parallel-sgd:epoch": [("parallel-sgd", STEPS, {"period": EPOCH})],
    **{f"server:bsp{way}": [("server:bsp", STEPS, {})] for way in WAYS},
    **{f"server:asp{way}": [("server:asp", STEPS, {})] for way in WAYS},
    **{f"server:ssp:1{way}": [("server:ssp", STEPS, {})] for way in WAYS},
    **{f"downpour:2:3{way}": [("downpour", STEPS, {"fetch": 2, "push": 3})] for way in WAYS},
}
ELASTIC = 4  # operations on each parameter, where workers and centre attract each other


def build(inputs, width, outputs):
    return Sequential([Linear(inputs, width), Tanh(), Linear(width, outputs)], dtype=np.float64)


NETWORKS = {  # by the number of ranks
    2: lambda: build(5, 2, 4),
    3: lambda: build(3, 6, 3),  # three ranks divide its elements evenly
}


def extras(text, case, rank, messages):
    """What a rank sends and computes that is not predicted. messages: all that it sends."""
    name, found, rounds = text.partition(":")[0], Counter(), COLLECTIVES["all-reduce"].rounds(case.workers)

    def add_sum_of(elements, times=1):
        numbers = times * all_reduce_elements(elements, case.workers, rank)
        found.update(bytes=ITEM * numbers, messages=times * rounds, operations=numbers / 2)

    if name != "sync":  # where all ranks are one worker
        add_sum_of(1)  # at the end: the samples of each worker, with which running statistics would be weighted
    if name == "easgd":
        add_sum_of(case.elements, -1)  # workers and centre are equal in the first step
        found.update(operations=-ELASTIC * case.elements)
    elif name == "sgp":
        add_sum_of(case.elements + 1)  # the mean at the end
        found.update(operations=2 * case.elements + 1)  # which is scaled, and divided by its weight
        found.update(bytes=STEPS * (ITEM + HEADER), operations=STEPS * 2)  # the weight
    elif name in ("server", "downpour"):
        found.update(bytes=HEADER * (messages - rounds))
        found.update(operations=STEPS * case.elements if name == "server" else 0)  # a gradient times the weight of its share
        others, own = case.workers - 1, case.served[rank]
        asked = sum(map(bool, case.served)) - bool(own)
        # at the end: that a worker is done, the requests for the last parameters, and those that it serves
        found.update(bytes=others * own * ITEM, messages=others + asked + others * bool(own))
    return found


@mpi(2, 3)
def test_predicted_bytes_messages_and_operations_are_those_of_the_tally(comm):
    assert {name for parts in PREDICTED.values() for name, *_ in parts} == TRAFFIC.keys() == {SYNC, *FORMS}
    make, batch = NETWORKS[comm.size], 2 * comm.size
    for text, parts in PREDICTED.items():
        case = case_of(make(), comm.size, machine.read("ethernet-1g"), 2, single if text.endswith("single") else greedy)
        costs = [(cost(case, name, **options), steps) for name, steps, options in parts]
        found = counted(comm, make(), text, EPOCH * batch, batch, STEPS)
        found.subtract(extras(text, case, comm.rank, found["messages"]))
        ranks = comm.allgather(found)
        for what in ("bytes", "messages"):
            mean = sum(steps * getattr(cost, what) for cost, steps in costs)
            most = sum(steps * getattr(cost, f"most_{what}") for cost, steps in costs)
            assert sum(rank[what] for rank in ranks) == pytest.approx(comm.size * mean, rel=1e-12), (text, what)
            assert max(rank[what] for rank in ranks) == pytest.approx(most, rel=1e-12), (text, what)
        if case.elements % comm.size == 0:  # else the sums of the first rank are more than the mean
            operations = sum(steps * cost.operations for cost, steps in costs)
            assert max(rank["operations"] for rank in ranks) == pytest.approx(operations, rel=1e-12), text


# ----- by hand

ELEMENTS = 32
SPREAD = 0, 1, 1, 2  # 15, 15, 2 elements
ALPHA, BETA, RATE = 10.0, 0.5, 1e-9  # seconds of a message, of a byte, and of an operation


def round_machine():
    """A rank a node, whose memory and calls take no time."""
    core = {"flops": 1 / RATE, "bandwidth": 1e30, "call": 1e-30}
    link = {"alpha": ALPHA, "beta": BETA}
    return machine.Machine("round", "", core, {"ranks": 1, "bandwidth": 1e30, "memory": 1.0}, {"node": link, "network": link})


def by_hand(workers, owners=(), compute=1000.0):
    return Case(((3, 5), (5,), (5, 2), (2,)), workers, round_machine(), compute, owners)


def test_seconds_by_hand():
    way, update = 4 * BETA, 4 * RATE  # of an element
    waits = cost(by_hand(3), "server:bsp").seconds
    assert waits == pytest.approx(1000 + 2 * (2 * ALPHA + 2 * ELEMENTS * way) + ELEMENTS * (2 * RATE + update))
    spread = cost(by_hand(3, SPREAD), "server:bsp").seconds  # both that serve 15 receive from two and send to two
    assert spread == pytest.approx(1000 + 2 * (2 * ALPHA + 2 * 15 * way) + 15 * (2 * RATE + update))
    assert tau(by_hand(3, SPREAD)) == pytest.approx(2 * (ALPHA + 15 * way) + 15 * update)
    assert cost(by_hand(3, compute=1.0), "server:asp").seconds == pytest.approx(2 * tau(by_hand(3)))
    assert cost(by_hand(3), "sgp").seconds == pytest.approx(1000 + ALPHA + ELEMENTS * way)
