"""Downpour SGD: an asynchronous parameter server that workers do not reach for in every step."""

from gridgrad.nn.optimizers.optimizer import SGD
from gridgrad.parallel.protocols import ownership
from gridgrad.parallel.protocols.server import ParameterServer
from gridgrad.parallel.protocols.shard import ASP
from gridgrad.parallel.protocols.traffic import UPDATE


class Downpour(ParameterServer):
    """Workers train on a copy of the parameters, which they fetch now and then (Dean et al. 2012, section 4.1; Hegde and Usmani
    2016, Algorithm 4).

    fetch: turns between two fetches. push: turns between two pushes; what is pushed is the sum of the gradients since the last
    one. In between, a worker takes steps of plain SGD on its copy, with the server's learning rate. The server's optimizer is
    best one that adapts each step to the parameter, such as Adagrad (section 4.1). The other arguments are those of
    ParameterServer. With periods of 1 it equals an asynchronous server.
    """

    def __init__(self, net, workers, make_optimizer, fetch, push, owners=ownership.greedy):
        super().__init__(net, workers, make_optimizer, ASP, owners)
        self.periods = (fetch, push) if workers.size > 1 else (1, 1)  # alone, it is serial training
        self.local, self.interval = SGD(net, self.optimizer.lr), min(self.periods)
        self._sum, self._summed, self._turns = self.counted.pack(net.grads), 0, 0
        self._sum.fill(0)

    @staticmethod
    def traffic(served, fetch=1, push=1, **values):
        return ParameterServer.traffic(served, fetch, push, local=UPDATE, asynchronous=True)

    def effective_batch(self, batch_size):
        return super().effective_batch(batch_size) * self.periods[1]

    def step(self):
        gradient = self.weighted_gradient()
        self.local.step()
        self.exchange(gradient)

    def exchange(self, gradient):
        if not self._summed:
            self._since = dict(self._of_others)  # the oldest gradient of the sum says how stale it is
        self._sum += gradient
        self._summed, self._turns = self._summed + 1, self._turns + 1
        fetches, pushes = (self._turns % period == 0 for period in self.periods)
        if pushes:
            self._push_sum(fetches)
        elif fetches:
            self.ask()
        if fetches:
            self.receive()
        else:
            self.end_turn()

    def finish(self):
        if self._summed:
            self._push_sum()
        super().finish()

    def _push_sum(self, fetch=False):
        self.push(self._sum, self._summed, fetch, self._since)
        self._sum.fill(0)
        self._summed = 0

    def own_arrays(self):
        return super().own_arrays() | {"gradients to push": self._sum}
