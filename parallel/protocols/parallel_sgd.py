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
from gridgrad.parallel.protocols.protocol import Shares, Turn
from gridgrad.parallel.training.steps import minibatch_indices, steps_per_epoch

DRAWS, STRATA = 256, 64
DRAWN = np.dtype([("label", np.float64), ("index", np.int64), ("worker", np.int64)])  # what is sent of a sample that is drawn
MOST_BYTES = 1 << 30  # that a worker sends at a time: some MPI libraries fail on 2^31 bytes and more


class ParallelSGD(LocalSGD):
    """Workers train apart on stripes of the samples and take their mean at the end, or after each epoch (Zinkevich et al. 2010,
    Algorithm 3; Hegde and Usmani, Algorithm 1). together: the most samples seen by all workers before an exchange."""

    own_numbers = "seen", "together"

    def __init__(self, net, workers, make_optimizer, each_epoch=False, shuffles=False, exchanges=False):
        super().__init__(net, workers, make_optimizer, period=None)
        self.each_epoch, self.shuffles, self.exchanges = each_epoch, shuffles, exchanges
        self.together, self.samples_held, self._round = 0, None, 0

    def hold(self, read, count, seed, moved=lambda *samples: None):
        """Let samples move: this worker begins with its stripe of them. Collective. read(indices): their (inputs, targets).
        moved(inputs, targets, indices): is called with the samples of this worker whenever they are others."""
        mine = np.arange(count)[Partition.even(count, self.workers.size).part(self.workers.rank)]
        self.samples_held, self._seed, self._moved = (*read(mine), mine), seed, moved
        if self.shuffles:
            self.samples_held = shuffle(self.workers.moves, *self.samples_held, seed)
        moved(*self.samples_held)

    def held(self, epoch):
        """The indices of the samples of this worker in an epoch, in order. Halves are exchanged before each one except the
        first. Collective, also over the epochs."""
        while self.exchanges and self._round < epoch:
            self._round += 1
            self.samples_held = exchange_halves(self.workers.moves, *self.samples_held, self._seed, self._round)
            self._moved(*self.samples_held)
        return self.samples_held[-1]

    def shares(self, count, batch_size, seed):
        return Stripes(count, batch_size, seed, self.workers.size, self.held if self.samples_held else None)

    def effective_batch(self, batch_size):
        return self.together

    def begin(self, turn, shares):
        super().begin(turn, shares)
        self.period = steps_per_epoch(shares.count, shares.batch_size)
        self.interval = self.period if self.each_epoch else None

    def is_due(self, done):
        return self.each_epoch and super().is_due(done)

    def exchange(self):
        self.together = max(self.together, sum(self.seen))
        super().exchange()


class Stripes(Shares):
    """Shares of samples that stay with their workers: a worker's stripe, or held(epoch), in random order. Samples are dealt to
    the workers in turn, and the next step goes on where one ended: all take equally many. For one worker they are Shares."""

    def __init__(self, count, batch_size, seed, workers, held=None):
        super().__init__(count, batch_size, seed, workers)
        self.held, self._order = held, lru_cache(maxsize=1)(self._order_of)

    def turn(self, step, share):
        epoch, place = divmod(step, steps_per_epoch(self.count, self.batch_size))
        mine = self._order(share, epoch)[self._had(place, share) : self._had(place + 1, share)]
        return Turn(step, share, mine, self._dealt(place + 1) - self._dealt(place))

    def sizes(self, step):
        place = step % steps_per_epoch(self.count, self.batch_size)
        return np.array([self._had(place + 1, w) - self._had(place, w) for w in range(self.workers)])

    def _had(self, steps, worker):
        """How many samples a worker has had after some steps of an epoch: at the end all, as the first stripes are longest."""
        return len(range(worker, self._dealt(steps), self.workers))

    def _dealt(self, steps):
        """How many samples all workers together have had after some steps of an epoch."""
        return min(steps * self.batch_size, self.count)

    def _order_of(self, worker, epoch):
        """The samples of a worker, in their order among all samples in that epoch."""
        whole, _ = minibatch_indices(self.count, self.count, self.seed, epoch)
        stripe = Partition.even(self.count, self.workers).part(worker)
        return whole[np.isin(whole, np.arange(self.count)[stripe] if self.held is None else self.held(epoch))]


# ----- moving samples, which are host arrays with samples first. All functions with a `group` are collective over it: it is the
# Group of all workers, or in virtual time what takes its place


def shuffle(group, inputs, targets, indices, seed, epoch=0, draws=DRAWS, strata=STRATA):
    """The (inputs, targets, global indices) of a representative subset, in exchange for this worker's samples.
    draws: samples drawn by each. strata: most of them."""
    if group.size == 1:
        return inputs, targets, indices
    held = gathered(group, [len(indices)], "shuffle: sizes")[:, 0]
    labels = np.asarray(targets[(slice(None), *[0] * (targets.ndim - 1))], np.float64)
    order = permutation(seed, epoch, int(held.sum()), "shuffle")[indices]
    drawn = draw(labels, indices, order, group.rank, draws)
    cuts = cuts_of(group, drawn, held, draws, strata)
    places = places_of(group, labels, order, cuts)
    destinations = places % group.size
    chosen = [np.flatnonzero(destinations == worker) for worker in range(group.size)]
    table = gathered(group, [len(some) for some in chosen], "shuffle: messages")
    arrays, most_bytes = (inputs, targets, np.asarray(indices, np.int64)), MOST_BYTES // group.size
    return tuple(exchanged(group, "shuffle: samples", array, chosen, table, most_bytes) for array in arrays)


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
    """The increasing labels with which all strata except the first begin, as the first worker decides."""
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
    """The place of each sample of this worker among all: by stratum, worker, label, and then by `order`."""
    stratum = np.searchsorted(cuts, labels, side="right")
    counts = gathered(group, np.bincount(stratum, minlength=len(cuts) + 1), "shuffle: counts").T  # (strata, workers)
    before, own = np.cumsum(counts).reshape(counts.shape) - counts, counts[:, group.rank]
    shift = before[:, group.rank] - (np.cumsum(own) - own)  # from a place among this worker's samples to one among all
    places = np.empty(len(labels), np.int64)
    places[np.lexsort((order, labels))] = np.arange(len(labels)) + np.repeat(shift, own)  # strata increase with the labels
    return places


def pairs(workers, seed, round):
    """The workers that exchange samples in a round: a list of pairs, which hold each worker once, or one of them not."""
    places = workers + workers % 2  # the last one of an odd number is nobody's: whoever meets it has no partner
    worker, last = permutation(seed, 0, places, "exchange").tolist(), places - 1
    found = [(round % last, last)] + [((round + i) % last, (round - i) % last) for i in range(1, places // 2)]
    return [(worker[a], worker[b]) for a, b in found if max(worker[a], worker[b]) < workers]


def exchange_halves(group, inputs, targets, indices, seed, round):
    """The (inputs, targets, indices) of a worker after it has exchanged half of its samples with the partner of this round: as
    many as before; the indices increase."""
    arrays = inputs, targets, np.asarray(indices, np.int64)
    sizes = gathered(group, [len(indices)], "exchange: sizes")[:, 0]
    table = np.zeros((group.size, group.size), np.int64)
    for a, b in pairs(group.size, seed, round):
        table[a, b] = table[b, a] = min(sizes[a], sizes[b]) // 2
    order = permutation(seed, round, int(sizes.sum()), "exchange")[arrays[-1]]
    going = np.argsort(order)[: table[group.rank].sum()]
    chosen = [going[:number] for number in table[group.rank]]  # all to the partner, none to the others
    found = [array.copy() for array in arrays]
    for array, after in zip(arrays, found):
        after[going] = exchanged(group, "exchange: samples", array, chosen, table, MOST_BYTES, in_pairs=True)
    increasing = np.argsort(found[-1])
    return tuple(array[increasing] for array in found)


def exchanged(group, layer, array, chosen, table, most_bytes, in_pairs=False):
    """The rows of an array that come here, worker by worker. chosen: the indices of the rows that go to each. table: how many
    go from each to each. most_bytes: to one at a time. in_pairs: by messages between pairs, else by an all-to-all."""
    sent, received, row = table[group.rank], table[:, group.rank], array.itemsize * prod(array.shape[1:])
    out = np.empty((received.sum(), *array.shape[1:]), array.dtype)
    starts, rows = np.cumsum(received) - received, max(1, most_bytes // max(1, row))
    for first in range(0, table.max(), rows):
        going, coming = (np.clip(counts - first, 0, rows) for counts in (sent, received))
        block = np.ascontiguousarray(array[np.concatenate([some[first : first + rows] for some in chosen])])
        arrived = np.empty((coming.sum(), *array.shape[1:]), array.dtype)
        outgoing = block.reshape(-1).view(np.uint8), (going * row).tolist()
        incoming = arrived.reshape(-1).view(np.uint8), (coming * row).tolist()
        if in_pairs:
            group.start_exchange(*outgoing, *incoming, layer).wait()
        else:
            group.all_to_all(*outgoing, *incoming, layer)
        for start, some in zip(starts + first, np.split(arrived, np.cumsum(coming)[:-1]), strict=True):
            out[start : start + len(some)] = some
    return out
