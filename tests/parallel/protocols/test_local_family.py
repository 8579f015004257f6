"""The protocols whose workers stay in step, against a plain simulation of W serial networks (`plain.py`)."""

from itertools import cycle

import numpy as np
import pytest
from mpi4py import MPI

from gridgrad.nn import LOSSES, SGD, Dropout, Linear, Sequential
from gridgrad.nn.device import to_host
from gridgrad.parallel import ProcessGrid, distribute, train_step
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.averaging import fragments_of
from gridgrad.parallel.protocols.parallel_sgd import Stripes
from gridgrad.parallel.protocols.protocol import SentParameters, Shares
from gridgrad.parallel.protocols.simulated_workers import Simulation
from gridgrad.parallel.protocols.workers import one_worker
from gridgrad.parallel.sync.overlapped import OverlappedReduction
from gridgrad.parallel.sync.shared_memory import SharedMemoryReduction
from tests.mpi import mpi
from tests.parallel.equality import block, error, grids, on_cpus
from tests.parallel.protocols import plain
from tests.parallel.protocols.training import BATCH, LR, dense, images, samples, simulated, spread, train

TOLERANCE = 1e-10
COUNT, STEPS = 29, 9  # the last of the four minibatches of an epoch has 5 samples: on 7 workers some shares are empty
AXES = "batch", "model", "height", "stage"
CASES = {  # text: the plain simulation, a function of a Run and of where its fragments begin
    "local:3": lambda run, cuts: plain.local(run, 3),
    "post-local:4:2": lambda run, cuts: plain.local(run, 2, start=4),
    "slowmo:3:0.5": lambda run, cuts: plain.slowmo(run, 3, 0.5),
    "slowmo:2:0.6:rate=0.7": lambda run, cuts: plain.slowmo(run, 2, 0.6, 0.7),
    "diloco:4": lambda run, cuts: plain.diloco(run, 4),
    "diloco:2:lr=0.5:momentum=0.3": lambda run, cuts: plain.diloco(run, 2, 0.5, 0.3),
    "diloco:3:fragments=2": lambda run, cuts: plain.streaming(run, 3, cuts),
    "easgd:2:0.1": lambda run, cuts: plain.easgd(run, 2, 0.1),
    "admm:2": lambda run, cuts: plain.local(run, 2),
    "admm:2:rho=0.3": lambda run, cuts: plain.admm(run, 2, 0.3),
    "sgp": lambda run, cuts: plain.sgp(run),
    "parallel-sgd": lambda run, cuts: plain.parallel_sgd(run),
    "parallel-sgd:epoch": lambda run, cuts: plain.parallel_sgd(run, -(-COUNT // BATCH)),
}
CUTS = {dense: [0, 20], images: [0, 200]}  # where the two fragments begin
EXAMPLES = {  # a text of each protocol that is not made of its name alone
    "local": "local:2", "post-local": "post-local:1:2", "slowmo": "slowmo:2:0.5", "diloco": "diloco:4:fragments=2",
    "easgd": "easgd:2:0.9", "admm": "admm:2:rho=0.5", "server:ssp": "server:ssp:1", "downpour": "downpour:1:1",
}  # fmt: skip


def run(build, workers, data, text, momentum=0.5, lr=LR, batch_size=BATCH, steps=STEPS):
    """A Run with the samples that the protocol gives to its workers."""
    divided = plain.in_stripes if text.startswith("parallel-sgd") else plain.in_shares
    indices = divided(len(data[0]), batch_size, workers, steps)
    return plain.Run(build, indices, data, lr if callable(lr) else lambda step: lr, momentum)


def expected(build, workers, data, text, **options):
    """(parameters of all workers after each step but the last, the state at the end) by the plain simulation."""
    found = run(build, workers, data, text, **options)
    history = [found.x.copy() for _ in CASES[text](found, CUTS[build])]
    return history[:-1], found.state()


@pytest.mark.parametrize("text", CASES)
def test_every_step_is_that_of_a_plain_simulation(text):
    for workers in (1, 2, 3, 5, 7, 8):
        data = samples(dense(), COUNT)
        followed, states = simulated(workers, dense, text, data, STEPS, momentum=0.5)
        if workers == 1:
            steps, state = expected(dense, 1, data, "local:3")  # nobody to agree with
        else:
            steps, state = expected(dense, workers, data, text)
        for w, (protocol, history) in enumerate(followed):
            for step, params in history.items():
                if step < STEPS - 1:
                    assert abs(params - steps[step][w]).max() < TOLERANCE, (workers, step, w)
            assert error(states[w], state) < TOLERANCE, (workers, w)
            assert not protocol.staleness and len(protocol.taken) == len(history)


@pytest.mark.parametrize("text", ["local:3", "diloco:3:fragments=2", "easgd:2:0.1", "admm:2:rho=0.3", "sgp", "parallel-sgd"])
def test_fewer_samples_in_a_minibatch_than_workers(text):
    data, options = samples(dense(), 11), {"batch_size": 3}
    for workers in (5, 8):
        _, states = simulated(workers, dense, text, data, STEPS, momentum=0.5, **options)
        _, state = expected(dense, workers, data, text, **options)
        assert all(error(found, state) < TOLERANCE for found in states), workers


@pytest.mark.parametrize("text", ["local:3", "easgd:2:0.1", "sgp", "parallel-sgd:epoch"])
def test_running_statistics_are_averaged_by_samples(text):
    build = lambda: dense(norm=True)  # noqa: E731
    data = samples(dense(), COUNT)
    _, states = simulated(3, build, text, data, STEPS, momentum=0.5)
    alone = run(build, 3, data, text)
    list(CASES[text](alone, None))
    assert all(error(state, alone.state()) < TOLERANCE for state in states)


def spread_cases(grids, start):
    """(text, grid, options) for each grid, with protocols and reductions in turn; all protocols on three ranks."""
    texts = list(CASES)
    turns = cycle(texts[start % len(texts) :] + texts[: start % len(texts)])
    reductions = cycle([{}, {"reduction": lambda net: OverlappedReduction(net, "sharded", "same", 1)},
                        {"reduction": SharedMemoryReduction}])  # fmt: skip
    for sizes in grids:
        if sizes["batch"] == 3 and sum(sizes.values()) == 6:
            yield from ((text, sizes, {}) for text in texts)
        elif sizes["batch"] == 1:
            yield next(turns), sizes, {}
        else:
            yield from ((next(turns), sizes, options) for options in (next(reductions), next(reductions)))


@mpi(1, 2, 3, 4, 5, 6, 7, 8, long=(4, 5, 6, 7, 8))
def test_workers_are_spread_over_all_grids(comm):
    data, known = samples(images(), COUNT), {}
    for text, sizes, options in spread_cases(grids(comm.size, AXES), comm.size):
        if sizes["stage"] > 1 or not on_cpus(comm):
            options = {}
        with spread(comm, sizes, images(), **options) as (net, workers):
            train(net, workers, text, data, STEPS, momentum=0.5)
            state = net.state_dict(everywhere=True)
        key = text if workers.size > 1 else "local:3", workers.size
        if key not in known:
            known[key] = expected(images, key[1], data, key[0])[1]
        assert error(state, known[key]) < TOLERANCE, (text, sizes, options)


@mpi(3, 4)
def test_the_penalty_of_admm_is_added_to_the_sum_of_gradients(comm):
    """Also where the optimizer itself has them summed, and by each rank of a worker for all parameters that it updates."""
    data = samples(images(), COUNT)
    sizes = {"batch": 2, "model": 2} if comm.size == 4 else {"batch": 3}
    _, state = expected(images, sizes["batch"], data, "admm:2:rho=0.3")
    reductions = [
        lambda net: OverlappedReduction(net, "whole", "same", 1),
        lambda net: OverlappedReduction(net, "sharded", "same", 1),
    ]
    for reduction in reductions + [SharedMemoryReduction] * on_cpus(comm):
        with spread(comm, sizes, images(), reduction=reduction) as (net, workers):
            train(net, workers, "admm:2:rho=0.3", data, STEPS, momentum=0.5)
            assert error(net.state_dict(everywhere=True), state) < TOLERANCE, reduction


@mpi(3)
def test_a_mean_after_each_step_is_synchronous_training(comm):
    for count, momentum in ((24, 0.9), (11, 0.0)):  # velocities add up where all shares are equal, not in 4, 4, 3
        x, y = samples(dense(), count)
        with ProcessGrid(comm, batch=comm.size) as grid:
            net = distribute(dense(), grid)
            protocol = protocol_names.parse("sync")(net, one_worker(grid)[1], lambda net: SGD(net, LR, momentum))  # noqa: B023
            for turn in protocol.turns(protocol.shares(count, 6 if momentum else count, 0), 4):
                mine = block(net, x[turn.indices], y[turn.indices])
                train_step(net, LOSSES["cross-entropy"](), protocol, *mine, turn.samples)
            protocol.finish()
            together = net.state_dict(everywhere=True)
        with spread(comm, {"batch": comm.size}, dense()) as (net, workers):
            train(net, workers, "local:1", (x, y), 4, momentum=momentum, batch_size=6 if momentum else count)
            assert error(net.state_dict(everywhere=True), together) < TOLERANCE


@pytest.mark.parametrize("name", protocol_names.FORMS)
def test_one_worker_is_serial_training_to_the_last_bit(name):
    x, y = samples(dense(), COUNT)
    (_,), (state,) = simulated(1, dense, EXAMPLES.get(name, name), (x, y), STEPS, momentum=0.5)
    net, shares = dense(), Shares(COUNT, BATCH, 0, 1)
    optimizer = SGD(net, LR, 0.5)
    for step in range(STEPS):
        indices = shares.turn(step, 0).indices
        net.learn(x[indices], y[indices], LOSSES["cross-entropy"](), optimizer)
    assert all(np.array_equal(value, state[key]) for key, value in net.state_dict().items())


@pytest.mark.parametrize(
    "text", ["slowmo:3:0", "diloco:3:lr=1:momentum=0", "diloco:3:lr=1:momentum=0:fragments=1", "admm:3", "post-local:0:3"]
)
def test_some_are_local_sgd_by_another_name(text):
    data = samples(dense(), COUNT)
    found, same = (simulated(3, dense, one, data, STEPS, momentum=0.5) for one in (text, "local:3"))
    for (_, history), (_, expected_history) in zip(found[0], same[0], strict=True):
        assert all(abs(history[step] - params).max() < TOLERANCE for step, params in expected_history.items())
    assert all(error(*pair) < TOLERANCE for pair in zip(found[1], same[1], strict=True))


def test_slow_momentum_without_a_learning_rate():
    data, lr = samples(dense(), COUNT), lambda step: 0.1 * (step % 4 > 0)  # 0 in the last steps of some rounds
    _, states = simulated(3, dense, "slowmo:3:0.5", data, STEPS, lr=lr)
    alone = run(dense, 3, data, "slowmo:3:0.5", 0.0, lr)
    list(plain.slowmo(alone, 3, 0.5))
    assert all(error(state, alone.state()) < TOLERANCE for state in states)


def test_fragments_are_sent_again_if_training_goes_on_after_its_end():
    """With the rate 1 and no momentum the workers take their mean, weighted by the samples seen since that end."""
    own, ends, (x, y) = [None] * 3, [None] * 3, samples(dense(), COUNT)

    def work(workers):
        net = nets[workers.rank]
        protocol = protocol_names.parse("diloco:4:fragments=2:lr=1:momentum=0")(net, workers, lambda net: SGD(net, LR))
        trainer = net.trainer(LOSSES["cross-entropy"](), protocol)
        for steps in (8, 9):  # in the last one nothing is sent, but at the end
            for turn in protocol.turns(protocol.shares(COUNT, BATCH, 0), steps):
                trainer.step([net.blocks(x[turn.indices], y[turn.indices])], turn.samples)
            own[workers.rank] = to_host(net.params).copy()
            protocol.finish()
        ends[workers.rank] = to_host(net.params)

    with ProcessGrid(MPI.COMM_SELF) as alone:
        nets = [distribute(dense(), alone) for _ in range(3)]
        Simulation(3).run(work)
    assert abs(ends - np.average(own, axis=0, weights=[3, 3, 2])).max() < TOLERANCE


def test_fragments_are_whole_parameters():
    with ProcessGrid(MPI.COMM_SELF) as grid:  # parameters of 15, 5, 20 and 4 elements
        net = distribute(dense(), grid)
        net.allocate()
        cuts = {number: [where.stop for where in fragments_of(net, SentParameters(net), number)] for number in (1, 2, 3, 9)}
    assert cuts == {1: [44], 2: [20, 44], 3: [15, 20, 44], 9: [0, 15, 0, 20, 0, 0, 40, 0, 44]}


def test_a_message_of_a_later_step_may_come_early():
    """Some workers of a gossip are ahead of others, and messages are late, but what they compute is the same."""
    data = samples(dense(), COUNT)
    machine = {"latency": 0.3, "jitter": 0.5, "straggler": {1: 4.0}, "delayed": (0.2, 3.0)}
    for workers in (2, 3, 5, 8):
        found, same = (simulated(workers, dense, "sgp", data, STEPS, options, seconds=1.0) for options in (machine, {}))
        assert all(error(*pair) == 0 for pair in zip(found[1], same[1], strict=True))


def test_stripes_hold_each_sample_once_an_epoch():
    for count, batch_size, workers in ((29, 8, 3), (10, 2, 5), (3, 1, 5), (31, 31, 4), (12, 5, 1)):
        stripes, per_epoch = Stripes(count, batch_size, 0, workers), -(-count // batch_size)
        for epoch in range(2):
            turns = [[stripes.turn(epoch * per_epoch + step, w) for step in range(per_epoch)] for w in range(workers)]
            for mine, stripe in zip(turns, np.array_split(np.arange(count), workers), strict=True):
                assert sorted(np.concatenate([turn.indices for turn in mine])) == stripe.tolist()
            for step in range(per_epoch):
                sizes = [mine[step].samples for mine in turns]
                assert stripes.sizes(step).tolist() == sizes and all(mine[step].whole == sum(sizes) for mine in turns)
                assert sum(sizes) == min(batch_size, count - step * batch_size) and max(sizes) - min(sizes) <= 1
    for step in range(6):  # one worker has the minibatches of serial training
        assert np.array_equal(stripes.turn(step, 0).indices, Shares(12, 5, 0, 1).turn(step, 0).indices)


def test_workers_start_equal_and_drop_different_activations():
    build = lambda: Sequential([Linear(3, 8), Dropout(0.5), Linear(8, 4)], 1, np.float64, (3,))  # noqa: E731
    x, y = samples(build(), 4)
    found, _ = simulated(2, build, "parallel-sgd", (x[[0, 0]], y[[0, 0]]), 1)  # both train on the same sample
    (first, one), (second, other) = found
    assert (first.net.seed, second.net.seed) == (1, 2) and abs(one[0] - other[0]).max() > 1e-3


def test_nothing_was_trained():
    build = lambda: dense(norm=True)  # noqa: E731
    for text in CASES:
        _, states = simulated(3, build, text, samples(dense(), COUNT), 0)
        assert all(error(state, build().state_dict()) < TOLERANCE for state in states), text


def test_what_a_report_says():
    for text, interval, batch in (("local:3", 3, 24), ("easgd:2:0.1", 2, 16), ("sgp", 1, 8), ("parallel-sgd", None, 37),
                                  ("parallel-sgd:epoch", 4, 29)):  # fmt: skip
        ((protocol, _), *_), _ = simulated(3, dense, text, samples(dense(), COUNT), 5)
        assert (protocol.interval, protocol.effective_batch(BATCH)) == (interval, batch), text
        assert all(array.size == protocol.counted.size for array in protocol.own_arrays().values())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("locl:3", "no protocol 'locl:3': use sync, local, "),
        ("local", "protocol local: write local:K"),
        ("local:0", "period must be a whole number of at least 1, not '0'"),
        (f"local:{10**30}", "period must be at most 2147483647"),
        ("local:2:3", "write local:K"),
        ("post-local:-1:2", "start must be a whole number of at least 0, not '-1'"),
        ("slowmo:4", "write slowmo:K:BETA"),
        ("slowmo:4:1", "beta must be a number of at least 0 and below 1, not '1'"),
        ("slowmo:4:nan", "beta must be a number of at least 0 and below 1, not 'nan'"),
        ("slowmo:4:0.5:rate=-1", "rate must be a number of at least 0, not '-1'"),
        ("slowmo:4:0.5:0.7", "'0.7' is not one of rate=.."),
        ("diloco:4:lr=inf", "lr must be a number of at least 0, not 'inf'"),
        ("diloco:4:fragments=0", "fragments must be a whole number of at least 1, not '0'"),
        ("diloco:4:pieces=2", "'pieces=2' is not one of lr=.., momentum=.., fragments=.."),
        ("easgd:4", "write easgd:K:ALPHA"),
        ("admm:2:rho=x", "rho must be a number of at least 0, not 'x'"),
        ("sgp:3", "write sgp"),
        ("parallel-sgd:epochs", "'epochs' is not one of epoch"),
    ],
)
def test_a_wrong_text_is_refused(text, words):
    with pytest.raises(ValueError) as refused:
        protocol_names.parse(text)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_numbers_that_do_not_fit_the_workers_are_refused():
    data = samples(dense(), COUNT)
    for text, words in (("easgd:2:0.4", "at most 1/workers, here 0.333"), ("diloco:2:fragments=3", "at least 3 steps, not 2")):
        with pytest.raises(ValueError, match=words):
            simulated(3, dense, text, data, STEPS)
    simulated(2, dense, "easgd:2:0.5", data, STEPS)  # exactly 1/workers
    with pytest.raises(ValueError, match="at most 1/workers, here 1,"):
        simulated(1, dense, "easgd:2:1.5", data, STEPS)
