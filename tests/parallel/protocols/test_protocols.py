"""What protocols promise on workers of one rank or several, and what is refused.

Their steps are in `test_history.py`; that no gradient is lost or too old in any order of messages is in `tests/orders`.
"""

from functools import cache

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.nn import LOSSES, SGD
from gridgrad.parallel import ProcessGrid, distribute
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.protocol import Shares
from gridgrad.parallel.protocols.server import OWNERSHIPS, greedy, round_robin, single
from gridgrad.parallel.protocols.simulated_workers import SimulatedWorkers, Simulation
from gridgrad.parallel.protocols.workers import filled
from tests.mpi import mpi
from tests.parallel.equality import error, grids
from tests.parallel.protocols.training import BATCH, dense, samples, simulated, spread, train

TOLERANCE = 1e-10
COUNT, STEPS = 29, 9  # the last of the four minibatches of an epoch has 5 samples
EXAMPLES = {  # a text of each protocol that is not made of its name alone
    "local": "local:2", "post-local": "post-local:1:2", "slowmo": "slowmo:2:0.5", "diloco": "diloco:4:fragments=2",
    "easgd": "easgd:2:0.9", "admm": "admm:2:rho=0.5", "server:ssp": "server:ssp:1", "downpour": "downpour:1:1",
}  # fmt: skip


def falling(step):
    return 0.1 / (1 + step)


@cache
def serial(momentum):
    """The state after training on one rank, without a protocol."""
    net, (x, y), shares = dense(), samples(dense(), COUNT), Shares(COUNT, BATCH, 0, 1)
    optimizer = SGD(net, falling, momentum)
    for step in range(STEPS):
        indices = shares.turn(step, 0).indices
        net.learn(x[indices], y[indices], LOSSES["cross-entropy"](), optimizer)
    return net.state_dict()


@pytest.mark.parametrize("name", protocol_names.FORMS)
def test_one_worker_is_serial_training_to_the_last_bit(name):
    data = samples(dense(), COUNT)
    ((protocol, _),), (state,) = simulated(1, dense, EXAMPLES.get(name, name), data, STEPS, lr=falling, momentum=0.5)
    assert all(np.array_equal(value, state[key]) for key, value in serial(0.5).items())
    assert set(protocol.staleness) <= {0}


@mpi(2, 4)
def test_in_step_they_equal_serial_training_however_many_ranks_a_worker_has(comm):
    for sizes in grids(comm.size):
        for text, momentum in (("server:bsp", 0.5), ("server:ssp:0", 0.0), ("local:1", 0.0)):
            with spread(comm, sizes, dense(), plan="out,replicate") as (net, workers):
                train(net, workers, text, samples(dense(), COUNT), STEPS, lr=falling, momentum=momentum)
                assert error(net.state_dict(everywhere=True), serial(momentum)) < TOLERANCE, (sizes, text)


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
    sizes = [10, 1, 20, 2, 30, 3]
    assert single(sizes, 3) == (0, 0, 0, 0, 0, 0)
    assert round_robin(sizes, 3) == (0, 1, 2, 0, 1, 2)
    assert greedy(sizes, 2) == (0, 1, 1, 0, 0, 1)  # loads before each: 0 0, 10 0, 10 1, 10 21, 12 21, 42 21
    for choose in OWNERSHIPS.values():  # no parameters, and more servers than parameters
        assert choose([], 3) == () and len(set(choose([4, 4], 5))) == (1 if choose is single else 2)
    for servers in range(1, 8):  # within one parameter of the mean
        sizes = [(7 * index) % 23 for index in range(40)]
        assert np.bincount(greedy(sizes, servers), sizes).max() <= sum(sizes) / servers + max(sizes)


@pytest.mark.parametrize(("text", "words"), [("locl:3", "'locl:3'"), ("local:0", "period"), ("slowmo:4:nan", "beta")])
def test_a_wrong_text_is_refused_in_a_line(text, words):
    with pytest.raises(ValueError) as refused:
        protocol_names.parse(text)
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(("text", "words"), [("easgd:2:0.4", "1/workers, here 0.333"), ("diloco:2:fragments=3", "3 steps")])
def test_numbers_that_do_not_fit_the_workers_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        simulated(3, dense, text, samples(dense(), COUNT), STEPS)
