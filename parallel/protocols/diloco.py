"""DiLoCo: local SGD whose means are gradients of an outer optimizer, SGD with Nesterov momentum; and its streaming variant."""

from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np

from gridgrad.nn.device import to_device, xp
from gridgrad.parallel.grid.transfer import CompletedTransfer
from gridgrad.parallel.protocols.local_sgd import LocalSGD

TRAVELLING = "sent", "mean"  # the arrays of a Fragment that is under way


def diloco(net, workers, make_optimizer, period, fragments=1, **outer):
    """A StreamingDiLoCo, or a DiLoCo where there is one fragment. outer: its lr and momentum."""
    if fragments == 1:
        return DiLoCo(net, workers, make_optimizer, period, **outer)
    return StreamingDiLoCo(net, workers, make_optimizer, period, fragments, **outer)


class DiLoCo(LocalSGD):
    """Every `period` steps all workers take an outer step together (Douillard et al. 2023, Algorithm 1):

        g = x - mean;   v <- momentum v + g;   x <- x - lr (g + momentum v)

    x: the parameters that all workers started from, and start from next. mean: of their parameters now.
    lr, momentum: those of the outer step. With lr 1 and momentum 0 it is local SGD. The other arguments are those of LocalSGD.
    """

    agreement = 8

    def __init__(self, net, workers, make_optimizer, period, lr=0.7, momentum=0.9):
        super().__init__(net, workers, make_optimizer, period)
        self.lr, self.momentum = lr, momentum
        self.agreed = self.counted.pack(net.params)
        self.velocity = xp.zeros_like(self.agreed)

    def own_arrays(self):
        return {"agreed": self.agreed, "velocity": self.velocity}

    def exchange(self):
        self.outer_step(slice(None), self.mean(self.counted.pack(self.net.params)))
        self.replace(self.agreed)

    def outer_step(self, where, mean):
        """Take the outer step for a slice of `agreed`. mean: of the workers' parameters in that slice."""
        agreed, velocity = self.agreed[where], self.velocity[where]
        gradient = agreed - mean
        velocity *= self.momentum
        velocity += gradient
        agreed -= self.lr * (gradient + self.momentum * velocity)


@dataclass(eq=False)
class Fragment:
    """A part of the parameters that travels on its own.

    where: its slice of what `counted.pack` returns. seen: the samples of each worker before it was last sent. sent: the
    parameters of this worker at that time. mean: that of all workers, when `transfer` is complete.
    """

    where: slice
    seen: np.ndarray
    sent: object = None
    mean: object = None
    transfer: object = None


class StreamingDiLoCo(DiLoCo):
    """DiLoCo in fragments that travel while the workers train on (Douillard et al. 2025, section 3).

    Each of F fragments takes one outer step in `period` = H steps. Fragment f = 0, .., F-1 is sent after the steps
    floor((f + 1) H / F), + H, + 2 H, .., and arrives when the next one is sent, about H / F steps later. So one fragment is
    under way at a time, and a worker waits only if it has not arrived by then. Upon arrival

        x_local <- x_local + (x - x_sent)

    x: the fragment after the outer step, the same for all workers. x_sent: what this worker sent. So the worker keeps the
    progress that it has made meanwhile. (The paper mixes x_local and x in a fixed ratio instead.)
    At the end all fragments are sent once more, and all workers take x.

    fragments: how many; see `fragments_of` for where they are cut. The other arguments are those of DiLoCo. ValueError for more
    fragments than steps in a period.
    """

    def __init__(self, net, workers, make_optimizer, period, fragments, lr=0.7, momentum=0.9):
        if fragments > period:
            raise ValueError(f"diloco: {fragments} fragments need a period of at least {fragments} steps, not {period}")
        super().__init__(net, workers, make_optimizer, period, lr, momentum)
        self.fragments = [Fragment(where, self._seen.copy()) for where in fragments_of(net, self.counted, fragments)]
        self._sent_at = {number * period // fragments % period: number - 1 for number in range(1, fragments + 1)}
        self._under_way = None

    def state(self):
        state, fragment = super().state(), self._under_way
        if fragment:
            fragment.transfer.wait()
        for name in TRAVELLING:
            whole = xp.zeros_like(self.agreed)
            if fragment:
                whole[fragment.where] = getattr(fragment, name)
            state.arrays[name] = whole, self.counted.slices
        state.numbers["under_way"] = self.fragments.index(fragment) if fragment else None
        state.numbers["seen_when_sent"] = [fragment.seen.tolist() for fragment in self.fragments]
        return state

    def load(self, state):
        super().load(state)
        for fragment, seen in zip(self.fragments, state.numbers["seen_when_sent"], strict=True):
            fragment.seen[:] = seen
        if state.numbers["under_way"] is not None:
            fragment = self._under_way = self.fragments[state.numbers["under_way"]]
            fragment.sent, fragment.mean = (to_device(state.arrays[name][0][fragment.where].copy()) for name in TRAVELLING)
            fragment.transfer = CompletedTransfer()

    def after_step(self):
        if self.workers.size == 1:
            return
        if self._under_way:
            self._under_way.transfer.test()  # an MPI library may move data only when it is called
        number = self._sent_at.get((self.turn.step + 1) % self.period)
        if number is not None:
            self._receive()
            self._send(self.fragments[number])

    def exchange(self):
        """The exchange at the end."""
        self._receive()
        for fragment in self.fragments:
            if (self._seen > fragment.seen).any():
                self._send(fragment)
                self._receive()
        self.replace(self.agreed)

    def _send(self, fragment):
        """Begin to sum a fragment over the workers."""
        fragment.sent = self.counted.pack(self.net.params)[fragment.where].copy()
        fragment.mean = fragment.sent * self.portion(self._seen - fragment.seen)
        fragment.transfer = self.workers.start_all_reduce(fragment.mean)
        fragment.seen[:] = self._seen
        self._under_way = fragment

    def _receive(self):
        """Wait for the fragment that is under way, if there is one, and apply it."""
        fragment, self._under_way = self._under_way, None
        if fragment:
            fragment.transfer.wait()
            self.outer_step(fragment.where, fragment.mean)
            params = self.counted.pack(self.net.params)
            params[fragment.where] += self.agreed[fragment.where] - fragment.sent
            self.replace(params)
            fragment.sent = fragment.mean = fragment.transfer = None


def fragments_of(net, counted, number):
    """The slices of what `counted.pack` returns that are the fragments of a network: a list of `number` slices.

    Fragments are consecutive whole parameters: a parameter belongs to the fragment in which its middle lies if all parameters
    are cut into equal pieces. They are those of the serial network, so that results do not depend on how a worker is spread.
    A fragment may be empty, as beside a parameter that is larger than the others together.
    """
    sizes = [prod(p.shape) for _, p in net.parameters]
    total, parts = sum(sizes), {}
    for (layer, p), length, stop in zip(net.parameters, sizes, accumulate(sizes)):
        parts[f"{layer.name}.{p.name}"] = (2 * stop - length) * number // (2 * total)
    fragments = [slice(0, 0)] * number
    for name, packed, _ in counted.parameters():
        before = fragments[parts[name]]
        fragments[parts[name]] = slice(before.start if before.stop else packed.start, packed.stop)
    return fragments
