"""Exchange of halves between pairs of workers: every sample stays at exactly one worker, and bytes are those of the paper."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from gridgrad.nn import LOSSES, SGD, Linear, Sequential
from gridgrad.parallel.grid.group import Group, Tally
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.protocols import parallel_sgd, protocol_names
from gridgrad.parallel.protocols.parallel_sgd import ParallelSGD, exchange_halves, pairs
from gridgrad.parallel.protocols.simulated_workers import Simulation, Task, train
from tests.mpi import mpi
from tests.parallel.protocols.training import dense, spread
from tests.parallel.protocols.training import samples as training_samples

SAMPLE = 6 + 4 + 8  # bytes: the inputs, a target, an index


def samples(count):
    """(inputs, targets) whose values tell which sample they are of."""
    return np.arange(count * 6, dtype=np.uint8).reshape(count, 2, 3), np.arange(count, dtype=np.int32)


def stripe(size, rank, count, how):
    """The indices of the samples that a worker has at first."""
    if how == "at the last":
        return np.arange(count) if rank == size - 1 else np.arange(0)
    weights = tuple(range(size)) if how == "uneven" and size > 1 else (1,) * size  # the first one has none
    return np.arange(count)[Partition.weighted(count, weights).part(rank)]


def exchanged(group, count, how="even", rounds=1, seed=3):
    """The indices of this worker's samples after each round, a list, the first of those before any."""
    (inputs, targets), mine = samples(count), stripe(group.size, group.rank, count, how)
    held, found = (inputs[mine], targets[mine], mine), [mine]
    for number in range(1, rounds + 1):
        held = exchange_halves(group, *held, seed, number)
        x, y, indices = held
        assert x.dtype == inputs.dtype and y.dtype == targets.dtype
        assert np.array_equal(x, inputs[indices]) and np.array_equal(y, targets[indices])  # what belongs together stays so
        assert (np.diff(indices) > 0).all()
        found.append(indices)
    return found


@pytest.mark.parametrize("workers", range(1, 10))
def test_pairs_are_those_of_a_tournament(workers):
    for seed in (0, 5):
        rounds = workers - 1 if workers % 2 == 0 else workers
        found = [pairs(workers, seed, number) for number in range(rounds)]
        for some in found:
            in_pairs = [worker for pair in some for worker in pair]
            assert len(set(in_pairs)) == len(in_pairs) == workers - workers % 2  # one of an odd number has no partner
        everyone = {frozenset(pair) for some in found for pair in some}
        assert len(everyone) == workers * (workers - 1) // 2  # each meets each other one
        assert pairs(workers, seed, rounds) == found[0]
    drawn = {tuple(map(frozenset, pairs(workers, seed, 0))) for seed in range(20)}
    assert len(drawn) > 1 or workers < 3


@mpi(1, 2, 3, 4, 5, 6, 7, 8, long=(6, 7, 8))
def test_every_sample_is_at_one_worker(comm):
    for count, how in ((0, "even"), (1, "even"), (7, "even"), (7, "uneven"), (203, "uneven"), (203, "at the last")):
        rounds = comm.allgather(exchanged(Group(comm, Tally()), count, how, rounds=3))
        for before, after in pairwise(rounds[0]):
            assert len(before) == len(after)
        for some in zip(*rounds, strict=True):
            assert np.array_equal(np.sort(np.concatenate(some)), np.arange(count))


@mpi(2, 3, 4, 5)
def test_half_of_the_smaller_share_moves_to_the_partner(comm):
    found = comm.allgather(exchanged(Group(comm, Tally()), 203, "uneven", rounds=2))
    for number in (1, 2):
        partners = {a: b for pair in pairs(comm.size, 3, number) for a, b in (pair, pair[::-1])}
        for worker, rounds in enumerate(found):
            before, after = rounds[number - 1], rounds[number]
            came = np.setdiff1d(after, before)
            if worker not in partners:
                assert not len(came)
            else:
                theirs = found[partners[worker]][number - 1]
                assert np.isin(came, theirs).all() and len(came) == min(len(before), len(theirs)) // 2


@mpi(2, 5)
def test_the_seed_and_the_round_decide(comm):
    first = exchanged(Group(comm, Tally()), 203, rounds=2)
    again, other = (exchanged(Group(comm, Tally()), 203, rounds=2, seed=seed) for seed in (3, 4))
    assert all(map(np.array_equal, first, again))
    assert comm.allreduce(not np.array_equal(first[1], other[1])) >= 2
    (x, y), moved = samples(203), []
    with spread(comm, {"batch": comm.size}, dense()) as (net, workers):
        protocol = protocol_names.parse("parallel-sgd:exchange")(net, workers, partial(SGD, lr=0.1))
        protocol.hold(lambda mine: (x[mine], y[mine]), 203, 3, lambda *one: moved.append(one))
        assert np.array_equal(protocol.held(0), first[0])
        assert np.array_equal(protocol.held(2), first[2]) and np.array_equal(protocol.held(2), first[2])  # as after a restart
    assert [one[-1].tolist() for one in moved] == [indices.tolist() for indices in first]
    assert all(np.array_equal(x[indices], found) and np.array_equal(y[indices], targets) for found, targets, indices in moved)


@mpi(3, 4)
def test_in_several_messages_and_what_is_counted(comm, monkeypatch):
    tally = Tally()
    whole = exchanged(Group(comm, tally), 203)[1]
    sizes = Partition.even(203, comm.size).sizes
    partner = next((a + b - comm.rank for a, b in pairs(comm.size, 3, 1) if comm.rank in (a, b)), None)
    moved = 0 if partner is None else min(sizes[comm.rank], sizes[partner]) // 2
    record = tally.records["exchange: samples", "exchange"]
    assert record.bytes == moved * SAMPLE and record.messages == parallel_sgd.ARRAYS * (partner is not None)
    assert tally.records["exchange: sizes", "all-gather"].bytes == 8 * (comm.size - 1)
    assert record.bytes <= -(-203 // comm.size) * SAMPLE / 2  # O(N) of a worker
    assert comm.allreduce(record.bytes) <= 203 * SAMPLE / 2  # O(kN) of all
    monkeypatch.setattr(parallel_sgd, "MOST_BYTES", 20)
    tally = Tally()
    assert np.array_equal(exchanged(Group(comm, tally), 203)[1], whole)
    pieces = tally.records["exchange: samples", "exchange"]
    assert pieces.bytes == record.bytes and (pieces.messages > 3 * record.messages or partner is None)


@mpi(1, 2, 3, 4)
def test_simulated_workers_exchange_the_same_samples(comm):
    for count, how in ((0, "even"), (3, "even"), (61, "uneven")):
        expected = comm.allgather(exchanged(Group(comm, Tally()), count, how, rounds=2))
        work = partial(lambda count, how, workers: exchanged(workers, count, how, 2), count, how)
        for machine in ({}, {"latency": 1e-3, "byte_seconds": 1e-6, "serve_seconds": 1e-5, "delayed": (0.3, 0.1)}):
            simulation = Simulation(comm.size, **machine)
            for found, right in zip(simulation.run(work), expected, strict=True):
                assert all(map(np.array_equal, found, right))


def test_samples_move_between_epochs_of_a_training(monkeypatch):
    """In each epoch of `parallel-sgd:exchange` all samples are trained on; half of a worker's were another's before."""
    workers, count = 3, 18  # six samples of each worker, in one step of an epoch
    held, original = [[] for _ in range(workers)], ParallelSGD.held

    def noted(protocol, epoch):
        held[protocol.workers.rank].append(original(protocol, epoch))
        return held[protocol.workers.rank][-1]

    monkeypatch.setattr(ParallelSGD, "held", noted)
    serial = Sequential([Linear(3, 4)], seed=1, dtype=np.float64, input_shape=(3,))
    x, y = training_samples(serial, count)
    task = Task(serial, partial(SGD, lr=0.1), LOSSES["cross-entropy"](), x, y, count, steps=4)
    make = protocol_names.parse("parallel-sgd:exchange")
    protocols, states = train(Simulation(workers), task, make, lambda samples: 0.0)
    for some in zip(*held, strict=True):
        assert np.array_equal(np.sort(np.concatenate(some)), np.arange(count))
    for epochs in held:
        assert len(epochs) == 4  # no exchange before the first epoch, and none after the last one
        stayed = [len(np.intersect1d(*two)) for two in pairwise(epochs)]
        assert stayed.count(3) == 2 and stayed.count(6) == 1  # each of three workers has no partner in one of three rounds
    for protocol, state in zip(protocols, states, strict=True):
        assert protocol.samples == 4 * count / workers and protocol.interval == 1
        assert all(np.array_equal(state[name], states[0][name]) for name in state)
