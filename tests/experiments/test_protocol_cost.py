"""What update protocols cost: by hand on a machine of round numbers, beside the cost of batch parallelism, and its limits."""

from math import ceil

import pytest

from gridgrad.experiments.papers.hegde2016_costs import TRAFFIC, Case, case_of, cost, tau, useful_workers
from gridgrad.nn import Linear, ReLU, Sequential
from gridgrad.parallel.grid.process_grid import GridDescription
from gridgrad.parallel.prediction.cost import Cost
from gridgrad.parallel.prediction.machine import Machine
from gridgrad.parallel.protocols.server import greedy

SHAPES = (3, 5), (5,), (5, 2), (2,)
ELEMENTS = 32
SPREAD = 0, 1, 1, 2  # 15, 15, 2 elements
ALPHA, BETA, RATE = 10.0, 0.5, 1e-9  # seconds of a message, of a byte, and of an operation


def machine():
    """A rank a node, whose memory and calls take no time."""
    core = {"flops": 1 / RATE, "bandwidth": 1e30, "call": 1e-30}
    link = {"alpha": ALPHA, "beta": BETA}
    return Machine("round", "", core, {"ranks": 1, "bandwidth": 1e30, "memory": 1.0}, {"node": link, "network": link})


def case(workers, owners=(), compute=1000.0):
    return Case(SHAPES, workers, machine(), compute, owners)


@pytest.mark.parametrize("name", TRAFFIC)
def test_one_worker_sends_nothing(name):
    found = cost(case(1), name)
    assert found.bytes == found.most_bytes == found.messages == found.most_messages == 0
    assert found.operations == 4 * ELEMENTS and found.seconds == pytest.approx(1000)


@pytest.mark.parametrize("workers", [2, 3, 4, 5])
def test_synchronous_training_costs_what_batch_parallelism_does(workers):
    net = Sequential([Linear(3, 5), ReLU(), Linear(5, 2)], input_shape=(3,))
    whole = Cost(net, GridDescription({"batch": workers}, None, 1), "replicate", 4 * workers, machine())
    ours = cost(case_of(net, workers, machine(), 4), "sync")
    assert ours.seconds == pytest.approx(whole.parts["compute"] + whole.parts["update"] + whole.parts["gradients"])
    assert ours.most_bytes == sum(work.nbytes for work in whole.works if work.group and work.layer == "gradients")
    assert case_of(net, 3, machine(), 4, greedy).owners == (0, 1, 2, 1)


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_all_synchronous_steps_send_the_same_but_from_other_ranks(workers):
    whole = cost(case(workers), "sync").bytes
    for owners in ((), SPREAD if workers > 2 else (0, 1, 1, 0)):
        for name in ("server:bsp", "server:asp"):
            assert cost(case(workers, owners), name).bytes == pytest.approx(whole)
    single, spread = (cost(case(3, owners), "server:bsp") for owners in ((), SPREAD))
    assert single.most_bytes == 2 * 4 * ELEMENTS  # the parameters, to two
    assert spread.most_bytes == 4 * (17 + 2 * 15) and spread.most_messages == 2 + 2
    assert single.messages == pytest.approx(4 / 3) and spread.messages == pytest.approx(4)


def test_periods():
    whole = cost(case(4), "local")
    alone = 1000 + 4 * ELEMENTS * RATE
    for name in ("local", "parallel-sgd", "diloco", "easgd", "admm"):
        rare, often = cost(case(4), name, period=50), cost(case(4), name)
        assert rare.bytes == pytest.approx(whole.bytes / 50) and rare.messages == pytest.approx(4 / 50)
        assert rare.seconds - alone == pytest.approx((often.seconds - alone) / 50)
    pushes = cost(case(4), "downpour", fetch=5, push=2)
    assert pushes.most_bytes == pytest.approx(4 * ELEMENTS * 3 / 5) and pushes.bytes == pytest.approx(
        3 / 4 * 4 * ELEMENTS * (1 / 5 + 1 / 2)
    )


def test_seconds_by_hand():
    way, update = 4 * BETA, 4 * RATE  # of an element
    waits = cost(case(3), "server:bsp").seconds
    assert waits == pytest.approx(1000 + 2 * (2 * ALPHA + 2 * ELEMENTS * way) + ELEMENTS * (2 * RATE + update))
    spread = cost(case(3, SPREAD), "server:bsp").seconds  # both that serve 15 receive from two and send to two
    assert spread == pytest.approx(1000 + 2 * (2 * ALPHA + 2 * 15 * way) + 15 * (2 * RATE + update))
    assert tau(case(3)) == pytest.approx(2 * (ALPHA + ELEMENTS * way) + ELEMENTS * update)
    assert tau(case(3, SPREAD)) == pytest.approx(2 * (ALPHA + 15 * way) + 15 * update)
    rate = 2 / (1000 + tau(case(3))) + 1 / 1000  # of two workers that wait for the server, and of its own
    assert cost(case(3), "server:asp").seconds == pytest.approx(3 / rate)
    busy = cost(case(3, compute=1.0), "server:asp").seconds
    assert busy == pytest.approx(2 * tau(case(3)))
    assert cost(case(3), "sgp").seconds == pytest.approx(1000 + ALPHA + ELEMENTS * way)


@pytest.mark.parametrize("compute", [1.0, 300.0, 1000.0, 3000.0])
@pytest.mark.parametrize("owners", [(), SPREAD])
def test_no_gain_beyond_the_limit(compute, owners):
    """Updates in a second grow up to T / tau workers, but never beyond as many others as one meets in T and its wait."""
    rates = {workers: workers / cost(case(workers, owners, compute), "server:asp").seconds for workers in range(3, 60)}
    limit = useful_workers(case(3, owners, compute))
    largest = tau(case(3, owners, compute))
    wait = 2 * (3 * ALPHA + ELEMENTS * 4 * BETA) if owners else largest  # three servers send one after another
    assert max(rates, key=rates.get) <= ceil((compute + wait) / largest) + 1
    assert rates[59] == pytest.approx(1 / largest, rel=0.05)
    grows = [rates[workers] for workers in range(3, ceil(limit) + 1)]
    assert grows == sorted(grows)
