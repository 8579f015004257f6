"""Local SGD: workers train alone for some steps, and are then replaced by their mean.

All protocols whose workers take equally many steps between two exchanges are made of `LocalSGD`; each has an `exchange` of its
own.

Grabaskas 2018 intends to do this every n samples, but what it sums over the nodes is never used
(`experiments/papers/published/grabaskas2018.toml`): each node trains alone on its stripe, which is why the accuracy in its
Appendix C does not depend on n. Here the weights are averaged.
"""

import numpy as np

from gridgrad.parallel.protocols.protocol import Protocol
from gridgrad.parallel.protocols.traffic import UPDATE, Traffic, WorkOfStep


class LocalSGD(Protocol):
    """Every `period` steps all workers are replaced by their mean (McMahan et al. 2017, Algorithm 1; Stich 2019).

    The mean is weighted by the samples that each worker has seen since the last one, so shares may be uneven or empty. With a
    period of 1 and plain SGD this equals synchronous training but for BatchNorm, whose statistics are of each worker alone.
    With a longer period it is another algorithm, which sends 1/period of the bytes. States of the optimizer are not averaged.

    start: until that step there is a mean after every step: post-local SGD (Lin et al. 2018, section 3).
    The other arguments are those of Protocol.
    """

    def __init__(self, net, workers, make_optimizer, period, start=0):
        super().__init__(net, workers, make_optimizer)
        self.period = self.interval = period
        self.start = start
        self._seen = np.zeros(workers.size, np.int64)  # samples of each worker since the last exchange

    agreement = 1  # additions and multiplications on each parameter, where the workers agree: a scaling

    @classmethod
    def traffic(cls, served, period=1, **values):
        return agreed(served, period, cls.agreement)

    def effective_batch(self, batch_size):
        return batch_size * self.period

    def state(self):
        state = super().state()
        state.numbers["seen"] = self._seen.tolist()
        return state

    def load(self, state):
        super().load(state)
        self._seen[:] = state.numbers["seen"]

    def begin(self, turn, shares):
        super().begin(turn, shares)
        self._seen += shares.sizes(turn.step)

    def after_step(self):
        if self.is_due(self.turn.step + 1):
            self._exchange()

    def is_due(self, done):
        """Whether there is an exchange after so many steps."""
        return done <= self.start or (done - self.start) % self.period == 0

    def finish(self):
        if self._seen.any():
            self._exchange()
        super().finish()

    def _exchange(self):
        if self.workers.size > 1:
            self.exchange()
        self._seen[:] = 0

    def exchange(self):
        """Let the workers agree. Collective over all workers, of which there are several."""
        self.replace(self.mean(self.counted.pack(self.net.params)))

    def mean(self, packed):
        """The mean over the workers of an array shaped as `counted.pack` returns it, which is overwritten. Collective."""
        packed *= self.portion(self._seen)
        self.workers.all_reduce(packed)
        return packed

    def portion(self, seen):
        """The weight of this worker in a mean where each of them has seen so many samples."""
        return float(seen[self.workers.rank] / seen.sum())


def agreed(served, period, operations):
    """The Traffic of workers that take steps of their own and agree in every `period`-th one, with a sum of all parameters.

    operations: on each parameter, to agree. served: see `Protocol.traffic`.
    """
    elements = [sum(served)] * len(served)
    return Traffic([WorkOfStep(elements, UPDATE), WorkOfStep(elements, operations, 1 / period)], [(sum(served), 1 / period)])
