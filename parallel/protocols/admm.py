"""Consensus ADMM: workers minimise their own losses under the constraint that their parameters are equal."""

from gridgrad.nn.device import xp
from gridgrad.nn.flat_parameters import FlatParameters
from gridgrad.parallel.protocols.local_sgd import LocalSGD


def admm(net, workers, make_optimizer, period, rho=None):
    """A ConsensusADMM; without rho what Hegde and Usmani call ADMM (section 5.1.2, Algorithm 3), which is LocalSGD.

    There each worker fetches the parameters, takes a step on its minibatch and pushes the result, and a server takes the mean.
    It has no dual variables.
    """
    if rho is None:
        return LocalSGD(net, workers, make_optimizer, period)
    return ConsensusADMM(net, workers, make_optimizer, period, rho)


class ConsensusADMM(LocalSGD):
    """Global variable consensus with scaled dual variables (Boyd et al. 2011, section 7.1), `period` steps a round:

        x_w <- argmin f_w(x) + rho/2 |x - z + u_w|^2;   z <- mean(x_w + u_w);   u_w <- u_w + x_w - z

    f_w: the mean loss of the samples of worker w. Instead of the minimum, x_w is what `period` steps of its optimizer make of
    the x_w of the round before, with rho (x_w - z + u_w) added to the gradient. The mean is weighted by the samples of the
    round, since the sum of the f_w so weighted is the loss of all samples. A worker that had none in a round keeps u_w. At the
    end every worker takes z.

    rho: the penalty. With several workers the x_w differ during training. The other arguments are those of LocalSGD.
    """

    def __init__(self, net, workers, make_optimizer, period, rho):
        net.allocate()
        self.rho = rho
        self.target = net.params.copy()  # z - u_w, in the order of the flat buffers
        super().__init__(net, workers, make_optimizer, period)
        self.consensus = self.counted.pack(net.params)
        self.dual = xp.zeros_like(self.consensus)

    def updated_here(self):
        return _Penalised(self.net, self.rho, self.target) if self.workers.size > 1 else self.net

    def own_arrays(self):
        return {"consensus": self.consensus, "dual": self.dual, "target": self.target}

    def arrays_between_steps(self):
        return super().arrays_between_steps() | {"target": (self.target, [slice(0, self.net.size)])}

    def exchange(self):
        own = self.counted.pack(self.net.params)
        self.consensus = self.mean(own + self.dual)
        if self._seen[self.workers.rank]:
            self.dual += own - self.consensus
        self.counted.unpack(self.consensus - self.dual, self.target)

    def finish(self):
        super().finish()
        if self.workers.size > 1:
            self.replace(self.consensus)


class _Penalised(FlatParameters):
    """A network as an optimizer sees it, whose gradients include that of rho/2 |params - target|^2."""

    def __init__(self, net, rho, target):
        super().__init__(net.params, net.grads)
        self._net, self._rho, self._target = net, rho, target
        self.flat, self.allocate = self, net.allocate

    @property
    def step(self):
        return self._net.step

    @property
    def owned(self):
        return self._net.flat.owned

    def updated(self, where):
        self._net.flat.updated(where)

    def end_update(self):
        self._net.flat.end_update()

    def ready(self, where):
        """Return when the gradients of a slice are final: that of the loss is, before the other is added."""
        self._net.flat.ready(where)
        self.grads[where] += self._rho * (self.params[where] - self._target[where])
