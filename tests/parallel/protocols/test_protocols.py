"""What protocols promise on workers of one rank or several, and what is refused.

Their steps are in `test_history.py`; that no gradient is lost or too old in any order of messages is in `tests/orders`.
"""

from functools import cache

import numpy as np
import pytest

from gridgrad.nn import LOSSES, SGD
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.protocol import Shares
from gridgrad.parallel.protocols.server import OWNERSHIPS, greedy, round_robin, single
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


def test_who_serves_what():
    sizes = [10, 1, 20, 2, 30, 3]
    assert single(sizes, 3) == (0, 0, 0, 0, 0, 0)
    assert round_robin(sizes, 3) == (0, 1, 2, 0, 1, 2)
    assert greedy(sizes, 2) == (0, 1, 1, 0, 0, 1)  # loads before each: 0 0, 10 0, 10 1, 10 21, 12 21, 42 21
    for choose in OWNERSHIPS.values():  # no parameters, and more servers than parameters
        assert choose([], 3) == () and len(set(choose([4, 4], 5))) == (1 if choose is single else 2)


@pytest.mark.parametrize(("text", "word"), [
    ("locl:3", "'locl:3'"), ("local:0", "period"), ("slowmo:4:nan", "beta"),
    ("easgd:2:0.4", "1/workers, here 0.333"), ("diloco:2:fragments=3", "3 steps"),
])  # fmt: skip
def test_a_wrong_text_or_one_that_does_not_fit_the_workers_is_refused_in_a_line(text, word):
    with pytest.raises(ValueError) as refused:
        simulated(3, dense, text, samples(dense(), COUNT), STEPS)
    assert word in str(refused.value) and "\n" not in str(refused.value)
