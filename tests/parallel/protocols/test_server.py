"""Parameter servers: equal to serial training where they should be, bounded staleness, no lost gradient; who serves what."""

import time
from collections import Counter
from unittest import mock

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.nn import LOSSES, OPTIMIZERS, SGD
from gridgrad.parallel import ProcessGrid, distribute
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.protocol import Shares
from gridgrad.parallel.protocols.server import OWNERSHIPS, ServerShard, greedy, round_robin, single
from gridgrad.parallel.protocols.simulated_workers import SimulatedWorkers, Simulation
from gridgrad.parallel.protocols.workers import Workers, divide, filled
from gridgrad.parallel.sync.overlapped import OverlappedReduction
from gridgrad.parallel.sync.reduction import BlockingReduction
from gridgrad.parallel.sync.shared_memory import SharedMemoryReduction
from gridgrad.parallel.training import minibatch_indices
from tests.mpi import mpi
from tests.parallel.equality import RANKS, error, grids
from tests.parallel.protocols.training import BATCH, dense, images, samples, simulated, spread, train

COUNT, STEPS = 29, 9  # the last of the four minibatches of an epoch has 5 samples: on 7 workers some shares are empty
MACHINE = {"latency": 0.01, "byte_seconds": 1e-5, "jitter": 7.0, "delayed": (0.1, 3.0), "serve_seconds": 1e-5}
TEXTS = "server:bsp", "server:asp", "server:ssp:0", "server:ssp:2", "downpour:1:1", "downpour:2:3"
WAYS = "", ":single", ":round-robin"
SIZES = 10, 1, 20, 2, 30, 3  # of parameters


def falling(step):
    """A learning rate that differs from step to step."""
    return 0.1 / (1 + step)


def serial(build, momentum=0.5):
    """The state after training on one rank."""
    net, (x, y) = build(), samples(build(), COUNT)
    loss, optimizer = LOSSES["cross-entropy"](), SGD(net, falling, momentum)
    for step in range(STEPS):
        indices, _ = minibatch_indices(COUNT, BATCH, 0, step)
        net.learn(x[indices], y[indices], loss, optimizer)
    return net.state_dict()


def on_grid(comm, sizes, build, text, momentum=0.5, **options):
    """(the state after training with a protocol on a grid, the Protocol)."""
    with spread(comm, sizes, build(), **options) as (net, workers):
        protocol, _ = train(net, workers, text, samples(build(), COUNT), STEPS, lr=falling, momentum=momentum)
        return net.state_dict(everywhere=True), protocol


@mpi(*RANKS, long=(4, 5, 6, 7, 8))
def test_in_step_they_equal_serial_training_on_every_grid(comm):
    expected, plain = {build: serial(build) for build in (dense, images)}, serial(dense, 0.0)
    for sizes in grids(comm.size, ("batch", "model", "stage")):
        if sizes["stage"] <= 3:  # it has three layers
            assert error(on_grid(comm, sizes, dense, "server:bsp")[0], expected[dense]) < 1e-10, sizes
            assert error(on_grid(comm, sizes, dense, "server:ssp:0", 0.0)[0], plain) < 1e-10, sizes
    for sizes in grids(comm.size, ("batch", "height")):
        for way in WAYS:
            assert error(on_grid(comm, sizes, images, f"server:bsp{way}")[0], expected[images]) < 1e-10, (sizes, way)


@mpi(4)
def test_sums_within_a_worker_may_overlap_but_not_be_shared(comm):
    sizes = {"batch": 2, "height": 2}
    overlapped = {"reduction": lambda net: OverlappedReduction(net, "whole", "same", 1)}
    assert error(on_grid(comm, sizes, images, "server:bsp", **overlapped)[0], serial(images)) < 1e-10
    for refused in (SharedMemoryReduction, lambda net: BlockingReduction(net, update="sharded")):
        with pytest.raises(ValueError, match="needs its whole gradient"):
            on_grid(comm, sizes, images, "server:asp", reduction=refused)


@mpi(2, 3, 4, 6, 8, long=(4, 6, 8))
def test_all_workers_end_with_the_same_parameters(comm):
    for sizes in grids(comm.size, ("batch", "model")):
        turns = sum(min(sizes["batch"], len(minibatch_indices(COUNT, BATCH, 0, step)[0])) for step in range(STEPS))
        for text in ("server:asp", "server:ssp:2:single", "downpour:2:3:round-robin"):
            state, protocol = on_grid(comm, sizes, dense, text)
            assert all(error(state, other) == 0 for other in comm.allgather(state)), (sizes, text)
            assert sum(comm.allgather(len(protocol.taken))) == sizes["model"] * turns, (sizes, text)


@pytest.mark.parametrize("text", [text + way for text in TEXTS for way in WAYS])
def test_one_worker_trains_as_without_a_server(text):
    ((protocol, _),), (state,) = simulated(1, dense, text, samples(dense(), COUNT), STEPS, lr=falling, momentum=0.5)
    expected = serial(dense)
    assert all(np.array_equal(state[name], expected[name]) for name in expected)
    assert set(protocol.staleness) == {0}


def test_the_optimizer_of_a_server_may_be_any():
    data, expected = samples(dense(), COUNT), dense()
    loss, adagrad = LOSSES["cross-entropy"](), OPTIMIZERS["adagrad"](expected, 0.05)
    for step in range(STEPS):
        indices, _ = minibatch_indices(COUNT, BATCH, 0, step)
        expected.learn(data[0][indices], data[1][indices], loss, adagrad)

    def work(workers):
        with ProcessGrid(MPI.COMM_SELF) as alone:
            net = distribute(dense(), alone)
            protocol = protocol_names.parse("server:bsp")(net, workers, lambda updated: OPTIMIZERS["adagrad"](updated, 0.05))
            trainer = net.trainer(loss, protocol)
            for turn in protocol.turns(protocol.shares(COUNT, BATCH, 0), STEPS):
                trainer.step([net.blocks(data[0][turn.indices], data[1][turn.indices])], turn.samples)
            protocol.finish()
            return net.state_dict()

    for state in Simulation(3).run(work):
        assert error(state, expected.state_dict()) < 1e-10


def test_in_step_they_are_so_however_late_messages_come():
    """A request for parameters that comes late must not find the gradient of a worker's next step in them."""
    (expected,) = simulated(1, dense, "sync", samples(dense(), COUNT), STEPS, lr=falling)[1]
    for text in ("server:bsp", "server:ssp:0"):
        _, states = simulated(3, dense, text, samples(dense(), COUNT), STEPS, machine=MACHINE, lr=falling, seconds=1.0)
        assert all(error(state, expected) < 1e-10 for state in states), text


# ----- counting: the gradients are chosen so that the parameters say which of them were applied


def count(net, workers, text, turns):
    """Push the number of each turn as its gradient; returns the Protocol.

    With a rate of 1 the parameters have then moved by the sum of the numbers 1 to `turns`, exactly, if each came once.
    """
    net.allocate()
    before = net.params.copy()
    protocol = protocol_names.parse(text)(net, workers, lambda updated: SGD(updated, 1.0))
    for turn in protocol.turns(Shares(workers.size, workers.size, 0, workers.size), turns // workers.size):
        net.grads[...] = (turn.step * workers.size + turn.share + 1) / turn.weight
        if hasattr(workers, "compute"):
            workers.compute(1.0)
        protocol.step()
    protocol.finish()
    assert abs(before - net.params - turns * (turns + 1) / 2).max() < 1e-6 * turns
    shard = protocol.shard
    if shard.params.size:
        assert shard.version == sum(shard.clocks) == sum(shard.staleness.values())
        assert shard.turns == turns
    return protocol


def alone(text, turns, workers, machine):
    """`count` by workers in virtual time: their protocols."""

    def work(own):
        with ProcessGrid(MPI.COMM_SELF) as grid:
            return count(distribute(dense(), grid), own, text, turns)

    return Simulation(workers, **machine).run(work)


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        pytest.param("server:ssp:3:single", 10_000, marks=pytest.mark.long),
        ("server:ssp:3:single", 1_000),
        *((text, 1_000) for text in ("server:ssp:0", "server:asp", "server:bsp", "downpour:3:2")),
    ],
)
def test_over_many_updates_none_is_lost_and_the_bound_holds(text, turns):
    """Computations take up to eight times as long, at random, and a tenth of the messages come late."""
    workers, leads = 4, set()  # leads: by how many steps workers that got parameters were ahead of the slowest

    def may_answer(shard, worker, original=ServerShard.may_answer):
        may = original(shard, worker)
        if may:
            leads.add(shard.clocks[worker] - shard.slowest())
        return may

    with mock.patch.object(ServerShard, "may_answer", may_answer):
        protocols = alone(text, turns, workers, MACHINE)
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

    told, simulation = {}, Simulation(3)
    own = First(simulation, 0)
    with ProcessGrid(MPI.COMM_SELF) as alone:
        protocol = protocol_names.parse("server:asp:single")(distribute(dense(), alone), own, lambda updated: SGD(updated, 1.0))
        for kind, numbers in (("final", ()), ("done", (0,))):
            for worker in (0, 2, 1):
                own.handlers[kind](worker, filled(numbers), np.empty(0, np.uint8))
    assert told == {0: 0, 1: 0, 2: 0} and protocol.answered == {0, 1, 2}


class LateWorkers(Workers):
    """Workers a tenth of whose messages leave late, and those to the same worker behind them too."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.random, self.held = np.random.default_rng(self.rank), {to: [] for to in range(self.size)}

    @property
    def all_sent(self):
        return super().all_sent and not any(self.held.values())

    def send(self, to, kind, numbers=(), array=None):
        if to == self.rank:
            return super().send(to, kind, numbers, array)
        late = 0.002 if self.random.random() < 0.1 else 0.0
        self.held[to].append((time.perf_counter() + late, kind, numbers, None if array is None else array.copy()))
        self.let_go()

    def let_go(self):
        for to, messages in self.held.items():
            while messages and messages[0][0] <= time.perf_counter():
                super().send(to, *messages.pop(0)[1:])

    def serve(self):
        self.let_go()
        return super().serve()


@mpi(2, 4, long=(4,))
def test_late_messages_between_ranks_are_neither_lost_nor_applied_twice(comm):
    for sizes in grids(comm.size, ("batch", "model")):
        if sizes["batch"] in (2, 4):  # weights that are powers of 2 keep the sums exact
            for text in ("server:asp", "server:ssp:1:single", "server:bsp", "downpour:2:2"):
                with ProcessGrid(comm, **sizes) as grid:
                    own, workers = divide(grid)
                    late = LateWorkers(workers.comm, own.comm, grid.tally)
                    count(distribute(dense(), own), late, text, 100)
                    own.free()
                    workers.comm.Free()


# ----- who serves which parameter


def test_small_cases_of_who_serves_what():
    assert single(SIZES, 3) == (0, 0, 0, 0, 0, 0)
    assert round_robin(SIZES, 3) == (0, 1, 2, 0, 1, 2)
    assert round_robin(SIZES, 2) == (0, 1, 0, 1, 0, 1)  # all weights at the first, all biases at the second
    assert greedy(SIZES, 2) == (0, 1, 1, 0, 0, 1)  # loads before each: 0 0, 10 0, 10 1, 10 21, 12 21, 42 21
    assert greedy([5, 5, 5, 5], 2) == (0, 1, 0, 1)


@pytest.mark.parametrize("method", OWNERSHIPS)
def test_no_parameters_and_more_servers_than_parameters(method):
    choose = OWNERSHIPS[method]
    assert choose([], 3) == ()
    assert choose([0, 0], 1) == (0, 0)
    owners = choose([4, 4], 5)
    assert set(owners) <= set(range(5)) and len(set(owners)) == (1 if method == "single" else 2)


def test_greedy_is_within_one_parameter_of_the_mean():
    for servers in range(1, 8):
        sizes = [(7 * index) % 23 for index in range(40)]
        loads = np.bincount(greedy(sizes, servers), sizes)
        assert loads.max() <= sum(sizes) / servers + max(sizes)
