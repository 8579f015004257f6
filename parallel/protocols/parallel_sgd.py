"""ParallelSGD: each worker trains on its own part of the samples, and the workers are averaged once."""

from functools import lru_cache

import numpy as np

from gridgrad.parallel.placement.partition import Partition
from gridgrad.parallel.protocols.local_sgd import LocalSGD
from gridgrad.parallel.protocols.protocol import Turn
from gridgrad.parallel.training.steps import minibatch_indices, steps_per_epoch


class ParallelSGD(LocalSGD):
    """Workers train apart on stripes of the samples (Zinkevich et al. 2010, Algorithm 3; Hegde and Usmani, Algorithm 1).

    At the end they are replaced by their mean, weighted by the samples of each. each_epoch: also after each epoch. shuffles:
    whether the samples move first, so that each worker has a representative subset. exchanges: whether pairs of workers
    exchange half of their samples between epochs. Who trains lets the samples move: see `hold`. The other arguments are those
    of Protocol.

    together: the most samples that all workers have seen before an exchange.
    """

    own_numbers = ("together",)

    def __init__(self, net, workers, make_optimizer, each_epoch=False, shuffles=False, exchanges=False):
        super().__init__(net, workers, make_optimizer, period=None)
        self.each_epoch, self.shuffles, self.exchanges = each_epoch, shuffles, exchanges
        self._epoch, self.together, self._held = None, 0, None

    def hold(self, held):
        """Note which samples this worker has instead of a stripe, as many as that.

        held: their indices, as `shuffle_sgd.shuffle` returns them; or a function of the epoch that returns those of an epoch,
        such as an `exchange.Exchanged`. It is called when the first turn of an epoch is dealt, on all workers.
        """
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
        self.together = max(self.together, int(self._seen.sum()))
        super().exchange()


class Stripes:
    """Shares of samples that stay with their workers: stands where Shares stands, and has the same arguments.

    held: a function of the epoch: the samples that this worker has then instead of its stripe, as many as that has; or None.

    The stripe of a worker is an even part of the samples in the order in which they are stored. In each epoch it passes
    through its samples in a random order, in as many steps as an epoch of all samples has. The samples of a step are dealt to
    the workers in turn, one at a time, and the next step goes on where the one before has ended. So all workers take equally
    many steps, and all their samples together are as many as a global minibatch should have. Where that has fewer than there
    are workers, some have none. For one worker the minibatches are those of Shares.
    """

    def __init__(self, count, batch_size, seed, workers, held=None):
        self.count, self.batch_size, self.seed, self.held = count, batch_size, seed, held
        self.stripes = Partition.even(count, workers)
        self._order = lru_cache(maxsize=1)(self._order_of)

    def turn(self, step, share):
        """The Turn of a worker, its number `share`, in a step; it may be empty."""
        epoch, place = divmod(step, steps_per_epoch(self.count, self.batch_size))
        where = slice(self._had(place, share), self._had(place + 1, share))
        return Turn(step, share, self._order(share, epoch)[where], self._dealt(place + 1) - self._dealt(place))

    def sizes(self, step):
        """The samples of each worker in a step."""
        place = step % steps_per_epoch(self.count, self.batch_size)
        return np.array([self._had(place + 1, w) - self._had(place, w) for w in range(self.stripes.ranks)])

    def _had(self, steps, worker):
        """How many samples of its stripe a worker has had after so many steps of an epoch.

        The first stripes are the longer ones, if they can not be equal, so that it has had all of it at the end.
        """
        return len(range(worker, self._dealt(steps), self.stripes.ranks))

    def _dealt(self, steps):
        """How many samples all workers together have had after so many steps of an epoch."""
        return min(steps * self.batch_size, self.count)

    def _order_of(self, worker, epoch):
        """The samples of a worker, in their order among all samples in that epoch."""
        whole, _ = minibatch_indices(self.count, self.count, self.seed, epoch)
        if self.held is not None:
            return whole[np.isin(whole, self.held(epoch))]
        stripe = self.stripes.part(worker)
        return whole[(stripe.start <= whole) & (whole < stripe.stop)]
