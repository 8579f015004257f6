"""Elastic averaging SGD: workers train apart, tied to a common centre by springs."""

from gridgrad.parallel.protocols.local_sgd import agreed
from gridgrad.parallel.protocols.protocol import Protocol


class EASGD(Protocol):
    """In every `period`-th step workers and centre attract each other (Zhang, Choromanska, LeCun 2015, equations 5 and 6):

        x_w <- x_w - lr g_w - alpha (x_w - c);   c <- c + alpha sum_w (x_w - c)

    On the right all x_w and c are those before the step. c: the centre, which all workers keep; the paper has a master for it.
    Steps between are local, and so is the first one, since workers and centre are equal then. At the end every worker takes
    the centre.

    alpha: the moving rate of a worker. ValueError if alpha times the number of workers, the moving rate of the centre, is more
    than 1, since the centre would overshoot. The other arguments are those of Protocol.
    """

    def __init__(self, net, workers, make_optimizer, period, alpha):
        if alpha * workers.size > 1:
            most = f"{1 / workers.size:.3g}"
            raise ValueError(f"easgd: the moving rate {alpha:g} must be at most 1/workers, here {most}, else it is unstable")
        super().__init__(net, workers, make_optimizer)
        self.period = self.interval = period
        self.alpha = alpha
        self.centre = self.counted.pack(net.params)

    @staticmethod
    def traffic(served, period=1, **values):
        return agreed(served, period, operations=4)

    def effective_batch(self, batch_size):
        return batch_size * self.period

    def own_arrays(self):
        return {"centre": self.centre}

    def begin(self, turn, shares):
        super().begin(turn, shares)
        self._pull = None
        if self.workers.size > 1 and turn.step and turn.step % self.period == 0:  # now no rank of the worker is in its step
            self._pull = self.alpha * (self.counted.pack(self.net.params) - self.centre)

    def after_step(self):
        """Move towards the centre, and the centre towards the workers, by what was found when the turn began."""
        if self._pull is not None:
            self.replace(self.counted.pack(self.net.params) - self._pull)
            self.workers.all_reduce(self._pull)
            self.centre += self._pull

    def finish(self):
        if self.workers.size > 1:
            self.replace(self.centre)
        super().finish()
