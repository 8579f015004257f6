"""Exchange of halves between rounds of ParallelSGD (Hegde and Usmani 2016, section 5.1.1).

"Systematic shuffling can be done by having two machines exchange part of the data in a single round of communication (say half
of the data in each machine)." So between two rounds, each of which is an epoch, the workers meet in pairs, and those of a pair
exchange half of their samples. Together they send half of all samples, each of them half of its own.

The pairs are those of a tournament in which each worker meets each other one once in k - 1 rounds, if there are k workers, or
in k rounds if k is odd: then one worker, another in each round, has no partner. Which worker plays in which place, and which
samples move, is drawn: both are functions of the seed, the round and the samples.

Both workers of a pair send as many samples, half of those of the worker that has fewer, rounded down. So each worker has as
many samples afterwards as before.
"""

from math import prod

import numpy as np

from gridgrad.nn.random import permutation
from gridgrad.parallel.protocols.shuffle_sgd import MOST_BYTES, bytes_of, gathered

STREAM = "exchange"  # of random numbers
ARRAYS = 3  # that travel: inputs, targets and indices


def pairs(workers, seed, round):
    """The workers that exchange samples in a round: a list of pairs, which hold each worker once, or one of them not."""
    places = workers + workers % 2  # the last one of an odd number is nobody's: whoever meets it has no partner
    worker, last = permutation(seed, 0, places, STREAM).tolist(), places - 1
    found = [(round % last, last)] + [((round + i) % last, (round - i) % last) for i in range(1, places // 2)]
    return [(worker[a], worker[b]) for a, b in found if max(worker[a], worker[b]) < workers]


def exchange_halves(group, inputs, targets, indices, seed, round):
    """Exchange half of the samples with the partner of this round. Collective.

    group: the Group of the workers. inputs, targets: of the samples that this worker has, host arrays with the samples along
    the first dimension; types and other dimensions are the same on all workers. indices: (n,) the global indices of these
    samples, so that each of 0, 1, .. up to the number of all samples is on one worker. seed, round: who meets whom, and which
    samples move, is a function of them.

    Returns (inputs, targets, indices) of the samples that this worker has afterwards, as many, with indices that increase.
    """
    arrays = inputs, targets, np.asarray(indices, np.int64)
    sizes = gathered(group, [len(indices)], "exchange: sizes")[:, 0]
    moved = {pair: int(min(sizes[list(pair)])) // 2 for pair in pairs(group.size, seed, round)}
    partner, count = None, 0
    for (a, b), number in moved.items():
        if group.rank in (a, b):
            partner, count = a + b - group.rank, number
    order = permutation(seed, round, int(sizes.sum()), STREAM)[arrays[-1]]
    chosen = np.argsort(order)[:count]
    most = max(moved.values(), default=0)
    arrays = [swapped(group, array, chosen, partner, most) for array in arrays]
    increasing = np.argsort(arrays[-1])
    return tuple(array[increasing] for array in arrays)


def swapped(group, array, chosen, partner, most):
    """A copy of an array of samples in which those chosen are replaced by as many of the partner. Collective.

    most: samples that any worker sends. So all of them take equally many turns, in which messages have MOST_BYTES at most.
    """
    out, row = array.copy(), array.itemsize * prod(array.shape[1:])
    rows = max(1, MOST_BYTES // max(1, row))
    for first in range(0, most, rows):
        some = chosen[first : first + rows]
        going, counts = np.ascontiguousarray(array[some]), [0] * group.size
        coming = np.empty_like(going)
        if len(some):
            counts[partner] = going.nbytes
        group.start_exchange(bytes_of(going), counts, bytes_of(coming), counts, "exchange: samples").wait()
        out[some] = coming
    return out


class Exchanged:
    """The samples of a worker that exchanges half of them before each epoch but the first; see `ParallelSGD.hold`.

    samples: (inputs, targets, indices) of those that it has now. The other arguments are those of `exchange_halves`.
    """

    def __init__(self, group, samples, seed):
        self.group, self.samples, self.seed, self.round = group, tuple(samples), seed, 0

    def __call__(self, epoch):
        """The indices of the samples in an epoch, which is not before the one of the last call. Collective.

        An epoch that is not the next one, as after a restart, takes all rounds up to it.
        """
        while self.round < epoch:
            self.round += 1
            self.samples = exchange_halves(self.group, *self.samples, self.seed, self.round)
        return self.samples[-1]
