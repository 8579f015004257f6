"""Predicted bytes, messages and operations of all update protocols are those that jobs count, but for `extras`.

Workers may share what they send unevenly, and serve different parameters or none.
"""

from collections import Counter

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.experiments.papers.hegde2016_costs import TRAFFIC, case_of, cost
from gridgrad.experiments.papers.hegde2016_count import counted
from gridgrad.nn import Linear, Sequential, Tanh
from gridgrad.parallel import ProcessGrid, distribute
from gridgrad.parallel.grid.collectives import COLLECTIVES, all_reduce_elements
from gridgrad.parallel.placement.partition import size
from gridgrad.parallel.prediction import machine
from gridgrad.parallel.protocols.averaging import DiLoCo, fragments_of
from gridgrad.parallel.protocols.protocol import SentParameters
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
    "diloco:4:fragments=2": [("diloco", STEPS, {"period": PERIOD})],
    "easgd:4:0.1": [("easgd", STEPS, {"period": PERIOD})],
    "admm:4": [("admm", STEPS, {"period": PERIOD})],
    "admm:4:rho=0.1": [("admm", STEPS, {"period": PERIOD})],
    "sgp": [("sgp", STEPS, {})],
    "parallel-sgd": [("parallel-sgd", STEPS, {"period": STEPS})],
    "parallel-sgd:epoch": [("parallel-sgd", STEPS, {"period": EPOCH})],
    **{f"server:bsp{way}": [("server:bsp", STEPS, {})] for way in WAYS},
    **{f"server:asp{way}": [("server:asp", STEPS, {})] for way in WAYS},
    **{f"server:ssp:1{way}": [("server:ssp", STEPS, {})] for way in WAYS},
    **{f"downpour:2:3{way}": [("downpour", STEPS, {"fetch": 2, "push": 3})] for way in WAYS},
}
NOT_PREDICTED = "admm:4:rho=0.1"  # the operations of this, which is another algorithm than `admm`
ELASTIC = 4  # operations on each parameter, where workers and centre attract each other


def build(inputs, width, outputs):
    return Sequential([Linear(inputs, width), Tanh(), Linear(width, outputs)], dtype=np.float64)


NETWORKS = {  # of which not all are tried on each number of ranks
    "even": lambda: build(3, 6, 3),  # three ranks divide its elements evenly
    "uneven": lambda: build(5, 2, 4),
    "deep": lambda: Sequential([Linear(1, 7), Tanh(), Linear(7, 1), Tanh(), Linear(1, 11, bias=False)], dtype=np.float64),
    "single": lambda: Sequential([Linear(4, 1)], dtype=np.float64),
}


def extras(text, case, rank, messages, fragments):
    """What a rank sends and computes that is not predicted. messages: all that it sends. fragments: the elements of both."""
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
    elif text.endswith("fragments=2"):  # two sums instead of one, and the first fragment again at the end
        add_sum_of(fragments[0], STEPS // PERIOD + 1)
        add_sum_of(fragments[1], STEPS // PERIOD)
        add_sum_of(case.elements, -STEPS // PERIOD)
        again, whole = fragments[0], STEPS // PERIOD * case.elements
        found.update(operations=again * DiLoCo.agreement + 2 * (again + whole))  # and each keeps the progress made meanwhile
    elif name in ("server", "downpour"):
        found.update(bytes=HEADER * (messages - rounds))
        found.update(operations=STEPS * case.elements if name == "server" else 0)  # a gradient times the weight of its share
        others, own = case.workers - 1, case.served[rank]
        asked = sum(map(bool, case.served)) - bool(own)
        # at the end: that a worker is done, the requests for the last parameters, and those that it serves
        found.update(bytes=others * own * ITEM, messages=others + asked + others * bool(own))
    return found


def test_all_protocols_are_counted():
    assert {name for parts in PREDICTED.values() for name, *_ in parts} == TRAFFIC.keys()


@mpi(2, 3, 4, 5, long=(2, 4, 5))
def test_predicted_bytes_and_messages_are_those_of_the_tally(comm):
    for number, (name, network) in enumerate(NETWORKS.items()):
        if (number + comm.size) % 3 == 0:
            for text, parts in PREDICTED.items():
                compare(comm, name, network, text, parts)


def compare(comm, network, make, text, parts):
    batch = 2 * comm.size
    case = case_of(make(), comm.size, machine.read("ethernet-1g"), 2, single if text.endswith("single") else greedy)
    costs = [(cost(case, name, **options), steps) for name, steps, options in parts]
    found = counted(comm, make(), text, EPOCH * batch, batch, STEPS)
    found.subtract(extras(text, case, comm.rank, found["messages"], fragments(make())))
    ranks = comm.allgather(found)
    for what in ("bytes", "messages"):
        mean = sum(steps * getattr(cost, what) for cost, steps in costs)
        most = sum(steps * getattr(cost, f"most_{what}") for cost, steps in costs)
        words = text, what, network, comm.size
        assert sum(rank[what] for rank in ranks) == pytest.approx(comm.size * mean, rel=1e-12), words
        assert max(rank[what] for rank in ranks) == pytest.approx(most, rel=1e-12), words
    if text != NOT_PREDICTED and case.elements % comm.size == 0:  # else the sums of the first rank are more than the mean
        operations = sum(steps * cost.operations for cost, steps in costs)
        assert max(rank["operations"] for rank in ranks) == pytest.approx(operations, rel=1e-12), (text, network, comm.size)


def fragments(net):
    """The elements of the two fragments of a network, in which its parameters travel where they do so in two."""
    with ProcessGrid(MPI.COMM_SELF) as alone:
        net = distribute(net, alone)
        net.allocate()
        return [size(part) for part in fragments_of(net, SentParameters(net), 2)]
