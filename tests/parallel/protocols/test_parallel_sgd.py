"""Samples that move between workers: each is at exactly one, however they are shuffled or exchanged; bytes are counted."""

import numpy as np
import pytest

from gridgrad.parallel.grid.group import Group, Tally
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.protocols import parallel_sgd
from gridgrad.parallel.protocols.parallel_sgd import exchange_halves, pairs, shuffle
from tests.mpi import mpi

CLASSES, SEED, COUNT = 5, 3, 203
SAMPLE = 6 + 4 + 8  # bytes: the inputs, a target, an index


def samples(count):
    """(inputs, targets), sorted by label, of which some are rarer than others. Inputs tell whose they are."""
    classes = np.random.default_rng(count).choice(CLASSES, count, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    return np.arange(count * 6, dtype=np.uint8).reshape(count, 2, 3), np.sort(classes).astype(np.int32)


def moved(way, group, count, rounds=1, **options):
    """The indices of this worker's samples before and after each round of a way to move them, a list."""
    weights = tuple(range(group.size)) if group.size > 1 else (1,)  # the first one has no samples
    (inputs, targets), mine = samples(count), np.arange(count)[Partition.weighted(count, weights).part(group.rank)]
    held, found = (inputs[mine], targets[mine], mine), [mine]
    for number in range(1, rounds + 1):
        held = way(group, *held, SEED, number, **options)
        x, y, indices = held
        assert x.dtype == inputs.dtype and y.dtype == targets.dtype
        assert np.array_equal(x, inputs[indices]) and np.array_equal(y, targets[indices])  # what belongs together stays so
        if way is exchange_halves or number == 1:
            assert (np.diff(indices) > 0).all()
        found.append(indices)
    return found


def everywhere(comm, way, *arguments, **options):
    """(indices of each worker after each round, the Tally of this rank). Collective."""
    tally = Tally()
    return comm.allgather(moved(way, Group(comm, tally), *arguments, **options)), tally


@mpi(1, 2, 5)
def test_every_sample_is_at_one_worker(comm):
    for way in (exchange_halves, shuffle):
        for count in (1, 7, COUNT):
            found, _ = everywhere(comm, way, count, rounds=2)
            for some in zip(*found, strict=True):
                assert np.array_equal(np.sort(np.concatenate(some)), np.arange(count))
            sizes = [len(rounds[-1]) for rounds in found]
            if way is shuffle and comm.size > 1:
                assert max(sizes) - min(sizes) <= 1
            if way is exchange_halves:
                assert sizes == [len(rounds[0]) for rounds in found]


@mpi(3, 4)
def test_the_bytes_are_those_of_the_samples_that_move_in_however_many_messages(comm, monkeypatch):
    for most in (parallel_sgd.MOST_BYTES, 20):
        monkeypatch.setattr(parallel_sgd, "MOST_BYTES", most)
        found, tally = everywhere(comm, exchange_halves, COUNT)
        partner = next((a + b - comm.rank for a, b in pairs(comm.size, SEED, 1) if comm.rank in (a, b)), None)
        came, theirs = np.setdiff1d(found[comm.rank][1], found[comm.rank][0]), [] if partner is None else found[partner][0]
        assert np.isin(came, theirs).all() and len(came) == min(len(found[comm.rank][0]), len(theirs)) // 2
        assert tally.records["exchange: samples", "exchange"].bytes == len(came) * SAMPLE
        dealt, tally = everywhere(comm, shuffle, COUNT)
        left = np.setdiff1d(dealt[comm.rank][0], dealt[comm.rank][1])
        assert tally.records["shuffle: samples", "all-to-all"].bytes == len(left) * SAMPLE


@mpi(2, 5)
def test_a_shuffle_spreads_classes(comm):
    targets = samples(COUNT)[1]
    for draws, most in ((2, comm.size), (256, 1)):  # if all labels are drawn, each class is a stratum
        found, _ = everywhere(comm, shuffle, COUNT, draws=draws)
        counts = np.array([np.bincount(targets[rounds[1]], minlength=CLASSES) for rounds in found])
        assert (np.ptp(counts, axis=0) <= most).all()


def test_a_stripe_counts_by_its_size():
    """Cuts of labels drawn from a stripe of 90 samples and from one of 10, as many from each, are those of all 100."""

    class Alone:  # the first worker of two, and the gather of what both have drawn
        rank = 0

        def gather(self, block, out, counts, layer):
            out[:] = np.concatenate([drawn.view(np.uint8) for drawn in both])

        def broadcast(self, array, layer):
            pass

    labels = [1, 2], [8, 9]
    both = [np.array([(label, 0, worker) for label in some], parallel_sgd.DRAWN) for worker, some in enumerate(labels)]
    cuts = parallel_sgd.cuts_of(Alone(), both[0], np.array([90, 10]), 2, 4)
    assert cuts == pytest.approx([1, 2])  # a quarter and a half of the samples are below 1 or equal, three quarters below 2
