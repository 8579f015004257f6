"""ShuffleSGD: every sample ends at one worker, as many at each, with equal shares of each class or range of the target."""

from functools import partial

import numpy as np
import pytest

from gridgrad.parallel.grid.group import Group, Tally
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.protocols import parallel_sgd
from gridgrad.parallel.protocols.parallel_sgd import shuffle
from gridgrad.parallel.protocols.simulated_workers import Simulation
from tests.mpi import mpi

CLASSES = 5


def samples(count, kind):
    """(inputs, targets), sorted by label: classes of unequal sizes, or values of two outputs."""
    numbers = np.random.default_rng(count)
    inputs = np.arange(count * 6, dtype=np.uint8 if kind == "classes" else np.float32).reshape(count, 2, 3)
    if kind == "classes":
        return inputs, np.sort(numbers.choice(CLASSES, count, p=[0.4, 0.3, 0.15, 0.1, 0.05])).astype(np.int32)
    return inputs, np.sort(numbers.exponential(size=(count, 2)), axis=0)


def stripe(comm, count, how):
    """The indices of the samples that this worker has at first."""
    if how == "at the last":
        return np.arange(count) if comm.rank == comm.size - 1 else np.arange(0)
    weights = tuple(range(comm.size)) if how == "uneven" and comm.size > 1 else (1,) * comm.size  # the first one has none
    return np.arange(count)[Partition.weighted(count, weights).part(comm.rank)]


def shuffled(comm, count, kind, how="even", seed=3, **options):
    """(indices of all workers' samples after the shuffle, all targets, the tally of this rank)."""
    (inputs, targets), mine, tally = samples(count, kind), stripe(comm, count, how), Tally()
    x, y, indices = shuffle(Group(comm, tally), inputs[mine], targets[mine], mine, seed, **options)
    assert x.dtype == inputs.dtype and y.dtype == targets.dtype
    assert np.array_equal(x, inputs[indices]) and np.array_equal(y, targets[indices])  # what belongs together stays so
    assert (np.diff(indices) > 0).all()
    return comm.allgather(indices), targets, tally


@mpi(1, 2, 3, 4, 5, 6, 7, 8, long=(6, 7, 8))
def test_classes_are_spread(comm):
    for count, how in ((0, "even"), (7, "uneven"), (203, "uneven"), (203, "at the last")):
        for draws in (2, 256):
            found, targets, _ = shuffled(comm, count, "classes", how, draws=draws)
            check_all_are_there(comm, found, count)
            counts = np.array([np.bincount(targets[indices], minlength=CLASSES) for indices in found])
            assert (np.ptp(counts, axis=0) <= comm.size).all()  # whatever was drawn
            if draws == 256 and comm.size > 1:  # all labels were drawn, so each class is a stratum
                assert (np.ptp(counts, axis=0) <= 1).all()


def simulated_shuffle(inputs, targets, workers):
    mine = np.arange(len(inputs))[Partition.even(len(inputs), workers.size).part(workers.rank)]
    return shuffle(workers, inputs[mine], targets[mine], mine, seed=3)


@mpi(1, 2, 3, 4)
def test_simulated_workers_deal_the_same_samples(comm):
    for count, kind in ((0, "classes"), (3, "values"), (61, "classes")):
        (inputs, targets), (found, *_) = samples(count, kind), shuffled(comm, count, kind)
        deal = partial(simulated_shuffle, inputs, targets)
        for machine in ({}, {"latency": 1e-3, "byte_seconds": 1e-6, "serve_seconds": 1e-5, "delayed": (0.3, 0.1)}):
            simulation = Simulation(comm.size, **machine)
            for (x, y, indices), expected in zip(simulation.run(deal), found, strict=True):
                assert np.array_equal(indices, expected)
                assert np.array_equal(x, inputs[indices]) and np.array_equal(y, targets[indices])
            assert simulation.time > 0 or comm.size == 1 or not machine


def check_all_are_there(comm, found, count):
    sizes = [len(indices) for indices in found]
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(count))
    assert max(sizes) - min(sizes) <= 1 or comm.size == 1


@mpi(1, 2, 3, 5, 8, long=(8,))
def test_values_are_spread(comm):
    for how in ("even", "uneven"):
        found, targets, _ = shuffled(comm, 150, "values", how, draws=20, strata=8)
        check_all_are_there(comm, found, 150)
        below = np.array([np.searchsorted(targets[indices, 0], targets[:, 0]) for indices in found])
        assert np.ptp(below, axis=0).max() <= comm.size + 1  # below any value: whole strata, and a part of one


@mpi(2, 3)
def test_the_seed_and_the_epoch_decide(comm):
    first, _, _ = shuffled(comm, 203, "classes")
    for options, same in (({}, True), ({"seed": 4}, False), ({"epoch": 1}, False)):
        again, _, _ = shuffled(comm, 203, "classes", **options)
        assert all(map(np.array_equal, first, again)) == same


@mpi(2, 5)
def test_once_more_after_a_shuffle(comm):
    (inputs, targets), mine, group = samples(203, "classes"), stripe(comm, 203, "even"), Group(comm, Tally())
    held = inputs[mine], targets[mine], mine
    for epoch in range(2):
        held = shuffle(group, *held, 3, epoch)
        assert np.array_equal(held[0], inputs[held[2]]) and np.array_equal(held[1], targets[held[2]])
        check_all_are_there(comm, comm.allgather(held[2]), 203)


@mpi(3)
def test_in_several_messages_and_what_is_counted(comm, monkeypatch):
    whole, _, tally = shuffled(comm, 203, "classes")
    moved = np.setdiff1d(stripe(comm, 203, "even"), whole[comm.rank]).size
    assert tally.records["shuffle: samples", "all-to-all"].bytes == moved * (6 + 4 + 8)  # inputs, a target, an index
    drawn = len(stripe(comm, 203, "even"))
    assert tally.records["shuffle: drawn labels", "gather"].bytes == (24 * drawn if comm.rank else 0)
    monkeypatch.setattr(parallel_sgd, "MOST_BYTES", 100)
    pieces, _, tally = shuffled(comm, 203, "classes")
    assert all(map(np.array_equal, whole, pieces))
    assert tally.records["shuffle: samples", "all-to-all"].calls > 3
    assert tally.records["shuffle: samples", "all-to-all"].bytes == moved * (6 + 4 + 8)


def test_a_stripe_counts_by_its_size():
    """Cuts of labels drawn from a stripe of 90 samples and from one of 10, as many from each, are those of all 100."""

    class Alone:  # the first worker of two, and the gather of what both have drawn
        rank = 0

        def gather(self, block, out, counts, layer):
            out[:] = np.concatenate([drawn.view(np.uint8) for drawn in both])

        def broadcast(self, array, layer):
            pass

    both = [
        np.array([(label, 0, worker) for label in labels], parallel_sgd.DRAWN) for worker, labels in ((0, [1, 2]), (1, [8, 9]))
    ]
    cuts = parallel_sgd.cuts_of(Alone(), both[0], np.array([90, 10]), 2, 4)
    assert cuts == pytest.approx([1, 2])  # a quarter and a half of the samples are below 1 or equal, three quarters below 2
