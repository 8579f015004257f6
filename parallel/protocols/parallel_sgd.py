"""ParallelSGD: each worker trains on its own part of the samples. How samples may move between workers, before and meanwhile.

**Shuffling** (Hegde and Usmani 2016, section 5.1.1, Algorithm 2) gives each of the k workers a representative subset:

1. Each worker draws some of its samples, and sends their labels and whereabouts to the first worker.
2. The first worker merges these sorted lists, which is the distribution of the labels, cuts it into strata of about equal
   numbers of samples, classes or ranges of a real-valued target, and sends the cuts.
3. Each worker counts its samples in each stratum, and all learn all these counts. So everybody knows the place of each sample
   in the order stratum by stratum, within that worker by worker, within that by label.
4. The samples are dealt in this order like cards, with their indices: the one at place i goes to worker i mod k.

The numbers of samples of any two workers differ by at most 1, in each stratum too, and those of a class by at most k, or by 1
if no other class is in its stratum. If all labels are drawn, each class of more than 1/strata of the samples begins a stratum.

**Exchanging halves** (same section): between two epochs the workers meet in pairs, as in a tournament where each meets each
other one once in k - 1 rounds, or in k rounds if k is odd: then one worker in each round has no partner. Both of a pair send
half of the samples of the one with fewer, rounded down. Places in the tournament and samples are drawn by seed and round.
"""

from functools import lru_cache
from math import prod

import numpy as np

from gridgrad.nn.random import permutation
from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.protocols.averaging import LocalSGD
from gridgrad.parallel.protocols.protocol import Turn
from gridgrad.parallel.training.steps import minibatch_indices, steps_per_epoch

DRAWS, STRATA = 256, 64
DRAWN = np.dtype([("label", np.float64), ("index", np.int64), ("worker", np.int64)])  # what is sent of a sample that is drawn
MOST_BYTES = 1 << 30  # that a worker sends in one all-to-all: some MPI libraries fail on 2^31 bytes and more


def shuffle(group, inputs, targets, indices, seed, epoch=0, draws=DRAWS, strata=STRATA):
    """The (inputs, targets, global indices) of a representative subset, in exchange for this worker's samples: host arrays with
    samples first. Collective over the Group of workers. draws: samples drawn by each. strata: most of them."""
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
    """The increasing labels with which all strata except the first begin, as the first worker decides. Collective."""
    numbers = np.minimum(held, draws)
    everything = np.empty(numbers.sum(), DRAWN) if group.rank == 0 else None
    received = everything.view(np.uint8) if group.rank == 0 else None
    group.gather(drawn.view(np.uint8), received, (numbers * DRAWN.itemsize).tolist(), "shuffle: drawn labels")
    cuts = np.zeros(strata - 1)
    if group.rank == 0 and len(everything):
        merged = np.sort(everything, order=["label", "index"], kind="stable")  # a merge sort: the lists are sorted already
        # a drawn label counts as many times as its worker has samples for each that it drew
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
    """The arrays of the samples that come here when each goes to its destination. Collective."""
    chosen = [np.flatnonzero(destinations == worker) for worker in range(group.size)]
    table = gathered(group, [len(some) for some in chosen], "shuffle: messages")
    return tuple(exchanged(group, array, chosen, table) for array in arrays)


def exchanged(group, array, chosen, table):
    """The rows that come here, worker by worker. Collective. chosen: their indices for each. table: rows from each to each."""
    sent, received = table[group.rank], table[:, group.rank]
    out = np.empty((received.sum(), *array.shape[1:]), array.dtype)
    starts, row = np.cumsum(received) - received, array.itemsize * prod(array.shape[1:])
    rows = max(1, MOST_BYTES // max(1, row * group.size))
    for first in range(0, table.max(), rows):
        going, coming = (np.clip(counts - first, 0, rows) for counts in (sent, received))
        block = array[np.concatenate([some[first : first + rows] for some in chosen])]
        arrived = np.empty((coming.sum(), *array.shape[1:]), array.dtype)
        counts = (going * row).tolist(), (coming * row).tolist()
        group.all_to_all(bytes_of(np.ascontiguousarray(block)), counts[0], bytes_of(arrived), counts[1], "shuffle: samples")
        for start, some in zip(starts + first, np.split(arrived, np.cumsum(coming)[:-1]), strict=True):
            out[start : start + len(some)] = some
    return out


def bytes_of(array):
    """The bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8)


STREAM = "exchange"  # of random numbers
ARRAYS = 3  # that travel: inputs, targets and indices


def pairs(workers, seed, round):
    """The workers that exchange samples in a round: a list of pairs, which hold each worker once, or one of them not."""
    places = workers + workers % 2  # the last one of an odd number is nobody's: whoever meets it has no partner
    worker, last = permutation(seed, 0, places, STREAM).tolist(), places - 1
    found = [(round % last, last)] + [((round + i) % last, (round - i) % last) for i in range(1, places // 2)]
    return [(worker[a], worker[b]) for a, b in found if max(worker[a], worker[b]) < workers]


def exchange_halves(group, inputs, targets, indices, seed, round):
    """The (inputs, targets, indices) of a worker after it has exchanged half of its samples with the partner of this round: as
    many as before; the indices increase. Collective over the Group of workers."""
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
    """A copy of an array in which the chosen samples are replaced by as many of the partner. Collective. most: samples that any
    worker sends, so that all take equally many turns of at most MOST_BYTES."""
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
    """The samples (inputs, targets, indices) of a worker that exchanges half of them before each epoch except the first."""

    def __init__(self, group, samples, seed):
        self.group, self.samples, self.seed, self.round = group, tuple(samples), seed, 0

    def __call__(self, epoch):
        """The indices of the samples in an epoch, after all rounds up to it: a later one than the last. Collective."""
        while self.round < epoch:
            self.round += 1
            self.samples = exchange_halves(self.group, *self.samples, self.seed, self.round)
        return self.samples[-1]


class ParallelSGD(LocalSGD):
    """Workers train apart on stripes of the samples and take their mean at the end, or after each epoch (Zinkevich et al. 2010,
    Algorithm 3; Hegde and Usmani, Algorithm 1). together: the most samples seen by all workers before an exchange."""

    own_numbers = ("seen", "together")

    def __init__(self, net, workers, make_optimizer, each_epoch=False, shuffles=False, exchanges=False):
        super().__init__(net, workers, make_optimizer, period=None)
        self.each_epoch, self.shuffles, self.exchanges = each_epoch, shuffles, exchanges
        self._epoch, self.together, self._held = None, 0, None

    def hold(self, held):
        """Note the samples that this worker has instead of its stripe: their indices, or a collective function of the epoch."""
        self._held = held if callable(held) or held is None else lambda epoch: held

    def shares(self, count, batch_size, seed):
        return Stripes(count, batch_size, seed, self.workers.size, self._held)

    def effective_batch(self, batch_size):
        return self.together

    def begin(self, turn, shares):
        super().begin(turn, shares)
        self._epoch = steps_per_epoch(shares.count, shares.batch_size)
        self.interval = self._epoch if self.each_epoch else None

    def is_due(self, done):
        return self.each_epoch and done % self._epoch == 0

    def exchange(self):
        self.together = max(self.together, sum(self.seen))
        super().exchange()


class Stripes:
    """Shares of samples that stay with their workers: a worker's stripe, or held(epoch), in random order. Samples are dealt to
    the workers in turn, and the next step goes on where one ended: all take equally many. For one worker they are Shares."""

    def __init__(self, count, batch_size, seed, workers, held=None):
        self.count, self.batch_size, self.seed, self.held = count, batch_size, seed, held
        self.stripes = Partition.even(count, workers)
        self._order = lru_cache(maxsize=1)(self._order_of)

    def turn(self, step, share):
        """The Turn of a worker, its number `share`, in a step; it may be empty."""
        epoch, place = divmod(step, steps_per_epoch(self.count, self.batch_size))
        mine = self._order(share, epoch)[self._had(place, share) : self._had(place + 1, share)]
        return Turn(step, share, mine, len(mine) / (self._dealt(place + 1) - self._dealt(place)))

    def sizes(self, step):
        """The samples of each worker in a step."""
        place = step % steps_per_epoch(self.count, self.batch_size)
        return np.array([self._had(place + 1, w) - self._had(place, w) for w in range(self.stripes.ranks)])

    def _had(self, steps, worker):
        """How many samples a worker has had after some steps of an epoch: at the end all, as the first stripes are longest."""
        return len(range(worker, self._dealt(steps), self.stripes.ranks))

    def _dealt(self, steps):
        """How many samples all workers together have had after some steps of an epoch."""
        return min(steps * self.batch_size, self.count)

    def _order_of(self, worker, epoch):
        """The samples of a worker, in their order among all samples in that epoch."""
        whole, _ = minibatch_indices(self.count, self.count, self.seed, epoch)
        if self.held is not None:
            return whole[np.isin(whole, self.held(epoch))]
        stripe = self.stripes.part(worker)
        return whole[(stripe.start <= whole) & (whole < stripe.stop)]
