"""ShuffleSGD (Hegde and Usmani 2016, section 5.1.1, Algorithm 2): give each worker a representative subset of the samples.

Samples are often stored sorted by label. A worker that trains alone on a stripe of them then sees a few classes only, and the
mean of such workers' parameters is of no use. So before ParallelSGD the samples move, in the six lines of Algorithm 2:

1. Each worker draws some of its samples, and sends their labels and whereabouts to the first worker.
2. The first worker merges these sorted lists (a k-way merge), which is the distribution of the labels, and cuts it into strata
   of about equal numbers of samples: classes, or ranges of a real-valued target.
3. Each worker counts its samples in each stratum, and all learn all these counts. So everybody knows the place of each sample
   in the order stratum by stratum, within that worker by worker, within that by label.
4. The samples are dealt in this order like cards: the one at place i goes to worker i mod k.
5. What has to be communicated of this decision are the cuts and the counts: the places follow from them.
6. The samples themselves, with their indices, go where they belong in an all-to-all.

What this guarantees, with k workers, whatever was drawn: the numbers of samples of any two workers differ by at most 1, and so
do their numbers in each stratum, since consecutive places are dealt. All samples of a class are in one stratum. There they are
consecutive if it has no other class, so their numbers on two workers differ by at most 1; else those of each earlier worker are
consecutive, so they differ by at most k. If all labels are drawn, each class of more than 1/strata of the samples begins a
stratum.
"""

import heapq
from math import prod

import numpy as np

from gridgrad.nn.random import permutation

DRAWS, STRATA = 256, 64
DRAWN = np.dtype([("label", np.float64), ("index", np.int64), ("worker", np.int64)])  # what is sent of a sample that is drawn
MOST_BYTES = 1 << 30  # that a worker sends in one all-to-all: some MPI libraries fail on 2^31 bytes and more


def shuffle(group, inputs, targets, indices, seed, epoch=0, draws=DRAWS, strata=STRATA):
    """Exchange samples, so that each worker has a representative subset. Collective.

    group: the Group of the workers. inputs, targets: of the samples that this worker has, host arrays with the samples along
    the first dimension, which may be empty; types and other dimensions are the same on all workers. A target is the label of
    a class or a real number; of several numbers the first counts. indices: (n,) the global indices of these samples, so that
    each of 0, 1, .. up to the number of all samples is on one worker. seed, epoch: what is drawn and how samples of equal
    labels are ordered is a function of them and of the indices. draws: samples that each worker draws for the distribution of
    labels. strata: into how many it is cut at most.

    Returns (inputs, targets, indices) of the samples that this worker has afterwards. Those from one worker stay in their
    order, and the workers' follow one another: if the indices increased from worker to worker, they increase here.
    """
    if group.size == 1:
        return inputs, targets, indices
    held = gathered(group, [len(indices)], "shuffle: sizes")[:, 0]
    labels = np.asarray(targets[(slice(None), *[0] * (targets.ndim - 1))], np.float64)
    order = permutation(seed, epoch, int(held.sum()), "shuffle")[indices]
    drawn = draw(labels, indices, order, group.rank, draws)
    cuts = cuts_of(group, drawn, held, draws, strata)
    places = places_of(group, labels, order, cuts)
    return deal(group, (inputs, targets, np.asarray(indices, np.int64)), places % group.size)


def gathered(group, numbers, layer):
    """The whole numbers of all workers, as many on each: (workers, numbers)."""
    found = np.empty((group.size, len(numbers)), np.int64)
    group.all_gather(np.array(numbers, np.int64), found.reshape(-1), [len(numbers)] * group.size, layer)
    return found


def draw(labels, indices, order, worker, draws):
    """The samples of a worker that are first in a random order, at most `draws`, sorted by label: an array of DRAWN."""
    first = np.argsort(order)[:draws]
    drawn = np.empty(len(first), DRAWN)
    drawn["label"], drawn["index"], drawn["worker"] = labels[first], np.asarray(indices)[first], worker
    return np.sort(drawn, order=["label", "index"])


def cuts_of(group, drawn, held, draws, strata):
    """The labels, increasing, with which all strata but the first begin; the first worker decides on them. Collective.

    A label counts as many times as its worker has samples for each that it drew, as workers may have different numbers.
    """
    numbers = np.minimum(held, draws)
    everything = np.empty(numbers.sum(), DRAWN) if group.rank == 0 else None
    received = everything.view(np.uint8) if group.rank == 0 else None
    group.gather(drawn.view(np.uint8), received, (numbers * DRAWN.itemsize).tolist(), "shuffle: drawn labels")
    cuts = np.zeros(strata - 1)
    if group.rank == 0 and len(everything):
        blocks = np.split(everything, np.cumsum(numbers)[:-1])
        merged = np.array(list(heapq.merge(*(block.tolist() for block in blocks))), DRAWN)
        below = np.cumsum((held / np.maximum(numbers, 1))[merged["worker"]])
        cuts[:] = merged["label"][np.searchsorted(below, below[-1] * np.arange(1, strata) / strata)]
    group.broadcast(cuts, "shuffle: cuts")
    return np.unique(cuts)


def places_of(group, labels, order, cuts):
    """The place of each sample of this worker among all: by stratum, worker, label, and then by `order`. Collective."""
    stratum = np.searchsorted(cuts, labels, side="right")
    counts = gathered(group, np.bincount(stratum, minlength=len(cuts) + 1), "shuffle: counts").T  # (strata, workers)
    before, own = np.cumsum(counts).reshape(counts.shape) - counts, counts[:, group.rank]
    shift = before[:, group.rank] - (np.cumsum(own) - own)  # from a place among this worker's samples to one among all
    places = np.empty(len(labels), np.int64)
    places[np.lexsort((order, labels))] = np.arange(len(labels)) + np.repeat(shift, own)  # strata increase with the labels
    return places


def deal(group, arrays, destinations):
    """Send each sample to its destination; return the arrays of those that come here. Collective.

    arrays: of this worker's samples, along the first dimension. destinations: the worker of each.
    """
    chosen = [np.flatnonzero(destinations == worker) for worker in range(group.size)]
    table = gathered(group, [len(some) for some in chosen], "shuffle: messages")
    return tuple(exchanged(group, array, chosen, table) for array in arrays)


def exchanged(group, array, chosen, table):
    """The rows that come to this worker, those of the first worker first. Collective.

    chosen: for each worker, the indices of the rows for it. table: how many rows go from each worker to each.
    """
    sent, received = table[group.rank], table[:, group.rank]
    out = np.empty((received.sum(), *array.shape[1:]), array.dtype)
    starts, row = np.cumsum(received) - received, array.itemsize * prod(array.shape[1:])
    rows = max(1, MOST_BYTES // max(1, row * group.size))
    for first in range(0, table.max(), rows):
        going, coming = (np.clip(counts - first, 0, rows) for counts in (sent, received))
        block = array[np.concatenate([some[first : first + rows] for some in chosen])]
        arrived = np.empty((coming.sum(), *array.shape[1:]), array.dtype)
        group.all_to_all(
            bytes_of(np.ascontiguousarray(block)), (going * row).tolist(), bytes_of(arrived), (coming * row).tolist(),
            "shuffle: samples",
        )  # fmt: skip
        for start, some in zip(starts + first, np.split(arrived, np.cumsum(coming)[:-1]), strict=True):
            out[start : start + len(some)] = some
    return out


def bytes_of(array):
    """The bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8)
