"""Synchronous SGD as an update protocol of simulated workers, each of which is one rank.

In a job all ranks are one worker instead, whose network sums its gradients itself, with the reduction of --reduction.
"""

from functools import partial

from gridgrad.nn.device import xp
from gridgrad.parallel.protocols import protocol_names
from gridgrad.parallel.protocols.protocol import Protocol
from gridgrad.parallel.sync.power_sgd import UNCOMPRESSED_STEPS, CompressedSum

POWER_SGD = "powersgd:"  # the reduction of this name stands among the protocols


def maker(text):
    """The function (net, workers, make_optimizer) -> Protocol that a text names. ValueError if there is none."""
    if text == protocol_names.SYNC:
        return AllReduced
    if text.startswith(POWER_SGD):
        rank = text.removeprefix(POWER_SGD)
        if not rank.isdecimal() or not int(rank):
            raise ValueError(f"protocol {text}: write powersgd:R with a whole number of at least 1")
        return partial(LowRank, rank=int(rank))
    return protocol_names.parse(text)


class AllReduced(Protocol):
    """The gradients are summed over the workers by an all-reduce, when backward is complete; then all take the same step."""

    def step(self):
        gradient = self.net.grads
        gradient *= gradient.dtype.type(self.turn.weight)
        if self.workers.size > 1:
            self.sum()
        super().step()

    def without_samples(self):
        self.net.grads.fill(0)
        self.step()
        super().without_samples()

    def sum(self):
        """Replace the gradients by their sums. Collective."""
        gradient = self.counted.pack(self.net.grads)
        self.workers.all_reduce(gradient)
        self.counted.unpack(gradient, self.net.grads)


class LowRank(AllReduced):
    """The same with PowerSGD: see `parallel/sync/power_sgd.py`. rank: the columns of its matrices."""

    kept = ("error",)

    def __init__(self, net, workers, make_optimizer, rank):
        super().__init__(net, workers, make_optimizer)
        self.error, shapes = xp.zeros_like(net.grads), {f"{layer.name}.{p.name}": p.block_shape for layer, p in net.parameters}
        gradients = [(name, *(flat[where].reshape(shapes[name]) for flat in (net.grads, self.error)))
                     for name, _, where in self.counted.parameters()]  # fmt: skip
        self.compressed, self._sums = CompressedSum(workers, rank, net.seed - workers.rank, gradients), 0

    def sum(self):
        if self._sums < UNCOMPRESSED_STEPS:
            super().sum()
        else:
            self.compressed.reduce()
        self._sums += 1
