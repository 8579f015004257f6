"""Training in virtual time against plain serial networks, and the times that it takes."""

from collections import Counter

import numpy as np
import pytest

from gridgrad.nn import LOSSES, SGD
from gridgrad.nn.zoo.network_names import build
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.protocol import BETWEEN_WORKERS, Shares
from gridgrad.parallel.protocols.simulated_workers import Simulation, Task, train
from gridgrad.parallel.training.steps import Diverged
from tests.mpi import mpi

COUNT, BATCH, STEPS = 31, 8, 10  # the last minibatch of an epoch has 7 samples
LOSS = LOSSES["cross-entropy"]()


def network():
    return build("mlp:7,5,tanh", (3,), 4, 0, "float64")


def samples():
    numbers = np.random.default_rng(0)
    return numbers.normal(size=(COUNT, 3)), numbers.integers(0, 4, COUNT)


def optimizer(net, lr=0.1):
    return SGD(net, lr, 0.9)


def trained(simulation, protocol, steps=STEPS, make_optimizer=optimizer, seconds=lambda count: count / 64):
    """(the states of all workers, the staleness of all gradients, [(time, worker, step, samples, loss) of each turn])."""
    (x, y), history = samples(), []
    task = Task(network(), make_optimizer, LOSS, x, y, BATCH, steps)

    def note(workers, turn, loss, nets):
        assert len(nets) == simulation.size and all(np.isfinite(net.predict(x)).all() for net in nets)
        history.append((workers.now(), workers.rank, turn.step, turn.samples, loss))

    protocols, states = train(simulation, task, protocol_names.parse(protocol), seconds, note)
    return states, sum((protocol.staleness for protocol in protocols), Counter()), history


def trained_serially(workers, period):
    """The parameters after local SGD with plain networks one after another."""
    x, y = samples()
    nets = [network() for _ in range(workers)]
    optimizers, shares, seen = [optimizer(net) for net in nets], Shares(COUNT, BATCH, 0, workers), np.zeros(workers)
    for step in range(STEPS):
        seen += shares.sizes(step)
        for rank, net in enumerate(nets):
            indices = shares.turn(step, rank).indices
            if len(indices):
                net.learn(x[indices], y[indices], LOSS, optimizers[rank])
        if workers > 1 and ((step + 1) % period == 0 or step + 1 == STEPS):
            states = [net.state_dict() for net in nets]
            weighted = list(zip(seen / seen.sum(), states, strict=True))
            mean = {name: sum(weight * state[name] for weight, state in weighted) for name in states[0]}
            for net in nets:
                net.load_state_dict(mean)
            seen[:] = 0
    return nets[0].state_dict()


def error(state, other):
    return max(np.abs(state[name] - other[name]).max() for name in other)


@mpi(1)
def test_local_sgd_equals_plain_networks(comm):
    for workers in (1, 2, 3, 11):
        for period in (1, 4):
            states, *_ = trained(Simulation(workers, latency=0.1), f"local:{period}")
            expected = trained_serially(workers, period)
            for state in states:
                assert error(state, expected) <= (1e-10 if workers > 1 else 0)


@mpi(1)
def test_every_protocol_with_one_worker_is_what_that_worker_would_do_alone(comm):
    for protocol in ("local:3", "server:bsp", "server:asp", "server:ssp:2"):
        (state,), _, history = trained(Simulation(1), protocol)
        assert error(state, trained_serially(1, 1)) == 0
        assert [time for time, *_ in history] == list(np.cumsum([8, 8, 8, 7, 8, 8, 8, 7, 8, 8]) / 64)


@mpi(1)
def test_a_straggler_slows_down_all_workers_that_are_in_step(comm):
    for protocol in ("local:1", "local:5", "server:bsp"):
        for workers in (2, 4):
            alike, unlike = Simulation(workers), Simulation(workers, straggler={workers - 1: 4.0})
            (state, *_), *_ = trained(alike, protocol, seconds=lambda count: 1.0)
            (slow, *_), *_ = trained(unlike, protocol, seconds=lambda count: 1.0)
            assert (alike.time, unlike.time) == (STEPS, 4 * STEPS)
            assert error(slow, state) <= 1e-15  # it is nothing but slower


@mpi(1)
def test_an_asynchronous_server_does_not_wait_for_a_straggler(comm):
    simulation = Simulation(4, straggler={3: 4.0})
    *_, history = trained(simulation, "server:asp", 100, seconds=lambda count: 1.0)
    turns = Counter(worker for _, worker, *_ in history)
    assert sum(turns.values()) == 400 and 3.5 < turns[0] / turns[3] < 4.5
    assert simulation.time < 130


@mpi(1)
def test_times_and_bytes_of_exchanges(comm):
    simulation = Simulation(2, latency=2.0**-10, byte_seconds=2.0**-20)
    (state, _), *_ = trained(simulation, "local:5", seconds=lambda count: 1.0)
    parameters = sum(array.size for array in state.values())
    exchange = 2 * 2.0**-10 + 8 * parameters * 2.0**-20
    buffers = 2 * 2.0**-10 + 8 * 2.0**-20  # the sum of the samples, when training ends
    assert simulation.time == pytest.approx(STEPS + 2 * exchange + buffers, rel=1e-12)
    record = simulation.workers[0].tally.records[BETWEEN_WORKERS, "all-reduce"]
    assert record.bytes == 8 * (2 * parameters + 1) and record.seconds == pytest.approx(2 * exchange + buffers)


@mpi(1)
def test_turns_are_noted_when_they_end(comm):
    _, staleness, history = trained(Simulation(3), "local:2")
    assert sorted((step, worker) for _, worker, step, *_ in history) == [(s, w) for s in range(STEPS) for w in range(3)]
    assert sum(samples for *_, samples, _ in history) == 8 * 8 + 2 * 7
    assert [time for time, *_ in history] == sorted(time for time, *_ in history)
    assert all(0 < loss < 10 for *_, loss in history)
    assert not staleness


@mpi(1)
def test_a_run_with_messages_is_the_same_again(comm):
    def run(seed=0):
        options = dict(latency=1e-3, byte_seconds=1e-6, straggler={0: 4.0}, jitter=1.0, delayed=(0.1, 0.2), serve_seconds=1e-5)
        return trained(Simulation(3, seed=seed, **options), "server:asp")

    ((state, *_), *first), ((again, *_), *second), ((other, *_), *third) = run(), run(), run(seed=1)
    assert first == second and error(state, again) == 0
    assert first[1] != third[1] and error(state, other) > 0


@mpi(1)
def test_divergence_of_a_worker_is_raised(comm):
    with pytest.raises(Diverged) as caught, np.errstate(all="ignore"):
        trained(Simulation(3), "local:4", make_optimizer=lambda net: optimizer(net, 1e308))
    assert "of 3 in a simulation" in caught.value.__notes__[0]
