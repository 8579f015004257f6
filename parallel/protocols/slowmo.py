"""SlowMo: momentum on top of local SGD, for the steps from one mean of the workers to the next."""

from gridgrad.nn.device import xp
from gridgrad.parallel.protocols.local_sgd import LocalSGD


class SlowMo(LocalSGD):
    """Every `period` steps the mean of the workers is a gradient for all of them (Wang et al. 2019, Algorithm 1):

        u <- beta u + (x - mean) / gamma;   x <- x - rate gamma u

    x: the parameters that all workers started from, and start from next. gamma: the learning rate of the last local step.
    If that is 0, u, which is measured in units of it, stays as it is and the workers take their mean.
    The states of the workers' optimizers stay as they are, one of the choices that the paper gives.

    beta: the slow momentum, in [0, 1). rate: the slow learning rate. With beta 0 and rate 1 it is local SGD. The other
    arguments are those of LocalSGD.
    """

    agreement = 7

    def __init__(self, net, workers, make_optimizer, period, beta, rate=1.0):
        super().__init__(net, workers, make_optimizer, period)
        self.beta, self.rate = beta, rate
        self.agreed = self.counted.pack(net.params)
        self.slow_momentum = xp.zeros_like(self.agreed)

    def own_arrays(self):
        return {"agreed": self.agreed, "slow_momentum": self.slow_momentum}

    def exchange(self):
        mean = self.mean(self.counted.pack(self.net.params))
        gamma = self.optimizer.lr(self.turn.step)  # also where this worker had no samples in that step
        if gamma:
            self.slow_momentum *= self.beta
            self.slow_momentum += (self.agreed - mean) / gamma
            self.agreed -= self.rate * gamma * self.slow_momentum
        else:
            self.agreed[...] = mean
        self.replace(self.agreed)
