"""Parameter servers: no gradient is lost, staleness is bounded, who serves what, and who hears of deaths."""

from collections import Counter
from unittest import mock

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.nn import SGD
from gridgrad.parallel import ProcessGrid, distribute
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.protocol import Shares
from gridgrad.parallel.protocols.server import OWNERSHIPS, ServerShard, greedy, round_robin, single
from gridgrad.parallel.protocols.simulated_workers import SimulatedWorkers, Simulation
from gridgrad.parallel.protocols.workers import filled
from tests.parallel.protocols.training import dense

MACHINE = {"latency": 0.01, "byte_seconds": 1e-5, "jitter": 7.0, "delayed": (0.1, 3.0), "serve_seconds": 1e-5}
SIZES = 10, 1, 20, 2, 30, 3  # of parameters


def count(workers, text, turns):
    """Push the number of each turn as its gradient; returns the Protocol.

    With a rate of 1 the parameters have then moved by the sum of the numbers 1 to `turns`, exactly, if each came once.
    """
    with ProcessGrid(MPI.COMM_SELF) as grid:
        net = distribute(dense(), grid)
        net.allocate()
        before = net.params.copy()
        protocol = protocol_names.parse(text)(net, workers, lambda updated: SGD(updated, 1.0))
        for turn in protocol.turns(Shares(workers.size, workers.size, 0, workers.size), turns // workers.size):
            net.grads[...] = (turn.step * workers.size + turn.share + 1) / turn.weight
            workers.compute(1.0)
            protocol.step()
        protocol.finish()
        assert abs(before - net.params - turns * (turns + 1) / 2).max() < 1e-6 * turns
    shard = protocol.shard
    if shard.params.size:
        assert shard.version == sum(shard.clocks) == sum(shard.staleness.values())
        assert shard.turns == turns
    return protocol


@pytest.mark.parametrize("text", ["server:ssp:3:single", "server:ssp:0", "server:asp", "server:bsp", "downpour:3:2"])
def test_over_many_updates_none_is_lost_and_the_bound_holds(text):
    """Computations take up to eight times as long, at random, and a tenth of the messages come late."""
    workers, leads = 4, set()  # leads: by how many steps workers that got parameters were ahead of the slowest

    def may_answer(shard, worker, original=ServerShard.may_answer):
        may = original(shard, worker)
        if may:
            leads.add(shard.clocks[worker] - shard.slowest())
        return may

    with mock.patch.object(ServerShard, "may_answer", may_answer):
        protocols = Simulation(workers, **MACHINE).run(lambda own: count(own, text, 1_000))
    staleness = sum((protocol.staleness for protocol in protocols), Counter())
    if text.startswith("server:ssp"):
        bound = int(text.split(":")[2])
        assert max(leads) == bound  # it is reached, and never broken
        assert max(staleness) <= (workers - 1) * (2 * bound + 1)
    elif text == "server:bsp":
        assert set(staleness) == {0}
    else:
        assert max(leads) > 4  # without a bound workers do come apart


def test_all_workers_hear_the_same_of_deaths_also_if_one_dies_while_they_are_told():
    """Else some take the mean of their buffers, and wait for others that know that there is none any more."""

    class First(SimulatedWorkers):
        def send(self, to, kind, numbers=(), array=None):
            if kind == "parameters":
                told[to] = numbers[1]
                self.dead = [2] if to else []  # MPI says so when something is sent

    told, own = {}, First(Simulation(3), 0)
    with ProcessGrid(MPI.COMM_SELF) as alone:
        protocol = protocol_names.parse("server:asp:single")(distribute(dense(), alone), own, lambda updated: SGD(updated, 1.0))
        for kind, numbers in (("final", ()), ("done", (0,))):
            for worker in (0, 2, 1):
                own.handlers[kind](worker, filled(numbers), np.empty(0, np.uint8))
    assert told == {0: 0, 1: 0, 2: 0} and protocol.answered == {0, 1, 2}


def test_who_serves_what():
    assert single(SIZES, 3) == (0, 0, 0, 0, 0, 0)
    assert round_robin(SIZES, 3) == (0, 1, 2, 0, 1, 2)
    assert greedy(SIZES, 2) == (0, 1, 1, 0, 0, 1)  # loads before each: 0 0, 10 0, 10 1, 10 21, 12 21, 42 21
    assert greedy([5, 5, 5, 5], 2) == (0, 1, 0, 1)
    for servers in range(1, 8):  # within one parameter of the mean
        sizes = [(7 * index) % 23 for index in range(40)]
        assert np.bincount(greedy(sizes, servers), sizes).max() <= sum(sizes) / servers + max(sizes)


@pytest.mark.parametrize("method", OWNERSHIPS)
def test_no_parameters_and_more_servers_than_parameters(method):
    choose = OWNERSHIPS[method]
    assert choose([], 3) == () and choose([0, 0], 1) == (0, 0)
    owners = choose([4, 4], 5)
    assert set(owners) <= set(range(5)) and len(set(owners)) == (1 if method == "single" else 2)
