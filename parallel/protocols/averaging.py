"""Protocols whose workers train alone for some steps and then average, all of them or two at a time.

Here x_w are the parameters of worker w, x those agreed on last, and mean that of the x_w, weighted by samples seen since.
"""

from itertools import accumulate
from math import prod

import numpy as np

from gridgrad.nn.device import to_device, xp
from gridgrad.parallel.grid.group import COMPLETE
from gridgrad.parallel.protocols.protocol import Protocol


class LocalSGD(Protocol):
    """Every `period` steps x_w <- mean (McMahan et al. 2017, Algorithm 1; Stich 2019); until step `start` after every step:
    post-local SGD (Lin et al. 2018, section 3). Period 1 with plain SGD equals synchronous training, except statistics of
    BatchNorm; optimizers stay apart."""

    own_numbers: tuple[str, ...] = ("seen",)

    def __init__(self, net, workers, make_optimizer, period, start=0):
        super().__init__(net, workers, make_optimizer)
        self.period = self.interval = period
        self.start = start
        self.seen = [0] * workers.size  # samples of each worker since the last exchange

    def begin(self, turn, shares):
        super().begin(turn, shares)
        self.seen = np.add(self.seen, shares.sizes(turn.step)).tolist()

    def after_step(self):
        if self.is_due(self.turn.step + 1):
            self._exchange()

    def is_due(self, done):
        """Whether there is an exchange after this number of steps."""
        return done <= self.start or (done - self.start) % self.period == 0

    def finish(self):
        if any(self.seen):
            self._exchange()
        super().finish()

    def _exchange(self):
        if self.workers.size > 1:
            self.exchange()
        self.seen = [0] * self.workers.size

    def exchange(self):
        """Let the workers agree. Collective over all workers, of which there are several."""
        self.replace(self.mean(self.counted.pack(self.net.params)))

    def mean(self, packed):
        """The mean over the workers of an array shaped as `counted.pack` returns it, which is overwritten. Collective."""
        packed *= self.portion(self.seen)
        self.workers.all_reduce(packed)
        return packed

    def portion(self, seen):
        """The weight of this worker in a mean. seen: samples of each worker."""
        return seen[self.workers.rank] / sum(seen)


class SlowMo(LocalSGD):
    """u <- beta u + (x - mean) / gamma; x <- x - rate gamma u (Wang et al. 2019, Algorithm 1). gamma: the learning rate of the
    last local step; where it is 0, u stays and x <- mean. With beta 0 and rate 1 it is local SGD."""

    kept = "agreed", "slow_momentum"

    def __init__(self, net, workers, make_optimizer, period, beta, rate=1.0):
        super().__init__(net, workers, make_optimizer, period)
        self.beta, self.rate = beta, rate
        self.agreed = self.counted.pack(net.params)
        self.slow_momentum = xp.zeros_like(self.agreed)

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


def diloco(net, workers, make_optimizer, period, fragments=1, **outer):
    """A DiLoCo, or a StreamingDiLoCo of several fragments. outer: its lr and momentum."""
    if fragments == 1:
        return DiLoCo(net, workers, make_optimizer, period, **outer)
    return StreamingDiLoCo(net, workers, make_optimizer, period, fragments, **outer)


class DiLoCo(LocalSGD):
    """g = x - mean; v <- momentum v + g; x <- x - lr (g + momentum v) (Douillard et al. 2023, Algorithm 1): the mean makes a
    step of SGD with Nesterov momentum. With lr 1 and momentum 0 it is local SGD."""

    kept = "agreed", "velocity"

    def __init__(self, net, workers, make_optimizer, period, lr=0.7, momentum=0.9):
        super().__init__(net, workers, make_optimizer, period)
        self.lr, self.momentum = lr, momentum
        self.agreed = self.counted.pack(net.params)
        self.velocity = xp.zeros_like(self.agreed)

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


class StreamingDiLoCo(DiLoCo):
    """DiLoCo in fragments (Douillard et al. 2025, section 3). Fragment f of F is sent after steps floor((f + 1) H / F), + H, ..
    of H = `period`, and arrives when the next one is sent: x_w <- x_w + (x - x_sent) (the paper mixes both in a fixed ratio).
    At the end all are sent again, and all workers take x."""

    own_numbers = "seen", "seen_when_sent"

    def __init__(self, net, workers, make_optimizer, period, fragments, lr=0.7, momentum=0.9):
        if fragments > period:
            raise ValueError(f"diloco: {fragments} fragments need a period of at least {fragments} steps, not {period}")
        super().__init__(net, workers, make_optimizer, period, lr, momentum)
        self.fragments = fragments_of(net, self.counted, fragments)
        self.seen_when_sent = [[0] * workers.size] * fragments  # `seen` when each fragment was sent
        self._sent_at = {number * period // fragments % period: number - 1 for number in range(1, fragments + 1)}
        self._under_way = None  # (number of a fragment, its parameters when it was sent, their mean, the Transfer of the mean)

    def after_step(self):
        if self.workers.size == 1:
            return
        if self._under_way:
            self._under_way[-1].test()  # an MPI library may move data only when it is called
        number = self._sent_at.get((self.turn.step + 1) % self.period)
        if number is not None:
            self._receive()
            self._send(number)

    def exchange(self):
        """The exchange at the end."""
        self._receive()
        for number in range(len(self.fragments)):
            if np.greater(self.seen, self.seen_when_sent[number]).any():
                self._send(number)
                self._receive()
        self.replace(self.agreed)
        self.seen_when_sent = [[0] * self.workers.size] * len(self.fragments)  # `seen` begins anew, too

    def _send(self, number):
        """Begin to sum a fragment over the workers."""
        sent = self.counted.pack(self.net.params)[self.fragments[number]].copy()
        mean = sent * self.portion(np.subtract(self.seen, self.seen_when_sent[number]).tolist())
        self._under_way = number, sent, mean, self.workers.start_all_reduce(mean)
        self.seen_when_sent = [*self.seen_when_sent[:number], self.seen, *self.seen_when_sent[number + 1 :]]

    def _receive(self):
        """Wait for the fragment that is under way, if there is one, and apply it."""
        if self._under_way:
            (number, sent, mean, transfer), self._under_way = self._under_way, None
            transfer.wait()
            where = self.fragments[number]
            self.outer_step(where, mean)
            params = self.counted.pack(self.net.params)
            params[where] += self.agreed[where] - sent
            self.replace(params)

    def state(self):
        state, number = super().state(), None
        sent, mean = (xp.zeros_like(self.agreed) for _ in range(2))
        if self._under_way:
            number, *arrays, transfer = self._under_way
            transfer.wait()
            sent[self.fragments[number]], mean[self.fragments[number]] = arrays
        state.arrays |= {"sent": (sent, self.counted.slices), "mean": (mean, self.counted.slices)}
        state.numbers["under_way"] = number
        return state

    def load(self, state):
        super().load(state)
        number = state.numbers["under_way"]
        if number is not None:
            sent, mean = (to_device(state.arrays[name][0][self.fragments[number]].copy()) for name in ("sent", "mean"))
            self._under_way = number, sent, mean, COMPLETE


def fragments_of(net, counted, number):
    """`number` slices of what `counted.pack` returns: consecutive whole parameters of the serial network, so that results do
    not depend on how a worker is spread. A slice may be empty, as beside a very large parameter."""
    sizes = [prod(p.shape) for _, p in net.parameters]
    total, parts = sum(sizes), {}
    for (layer, p), length, stop in zip(net.parameters, sizes, accumulate(sizes)):
        parts[f"{layer.name}.{p.name}"] = (2 * stop - length) * number // (2 * total)
    fragments = [slice(0, 0)] * number
    for name, packed, _ in counted.parameters():
        before = fragments[parts[name]]
        fragments[parts[name]] = slice(before.start if before.stop else packed.start, packed.stop)
    return fragments


def admm(net, workers, make_optimizer, period, rho=None):
    """A ConsensusADMM; without rho LocalSGD, which Hegde and Usmani call ADMM (section 5.1.2, Algorithm 3, without duals)."""
    if rho is None:
        return LocalSGD(net, workers, make_optimizer, period)
    return ConsensusADMM(net, workers, make_optimizer, period, rho)


class ConsensusADMM(LocalSGD):
    """x_w <- argmin f_w(x) + rho/2 |x - z + u_w|^2; z <- mean(x_w + u_w); u_w <- u_w + x_w - z (Boyd et al. 2011, section 7.1).
    f_w: the mean loss of a worker's samples; without any it keeps u_w. Instead of the argmin, x_w is what `period` steps make
    of it, with rho (x_w - z + u_w) added to the gradient. At the end every worker takes z."""

    kept = "consensus", "dual", "target"

    def __init__(self, net, workers, make_optimizer, period, rho):
        super().__init__(net, workers, make_optimizer, period)
        self.consensus = self.counted.pack(net.params)
        self.dual = xp.zeros_like(self.consensus)
        self.target = net.params.copy()  # z - u_w, in the order of the flat buffers
        if workers.size > 1:
            self.optimizer.flat = _Penalised(net.flat, rho, self.target)

    def arrays_between_steps(self):
        return super().arrays_between_steps() | {"target": (self.target, [slice(0, self.net.size)])}

    def exchange(self):
        own = self.counted.pack(self.net.params)
        self.consensus = self.mean(own + self.dual)
        if self.seen[self.workers.rank]:
            self.dual += own - self.consensus
        self.counted.unpack(self.consensus - self.dual, self.target)

    def finish(self):
        super().finish()
        if self.workers.size > 1:
            self.replace(self.consensus)


class _Penalised:
    """The flat buffers of a network as its optimizer sees them, with the gradient of rho/2 |params - target|^2 added."""

    def __init__(self, flat, rho, target):
        self.flat, self.rho, self.target = flat, rho, target
        self.updated, self.end_update = flat.updated, flat.end_update

    def ready(self, where):
        """Return when the gradients of a slice are final: that of the loss is, before the other is added."""
        self.flat.ready(where)
        self.flat.grads[where] += self.rho * (self.flat.params[where] - self.target[where])


class EASGD(Protocol):
    """x_w <- x_w - lr g_w - alpha (x_w - c); c <- c + alpha sum_w (x_w - c), on the right those before the step, in every
    `period`-th step but the first (Zhang, Choromanska, LeCun 2015, equations 5 and 6). All keep the centre c and take it at the
    end. ValueError if alpha x workers is above 1, since the centre would overshoot."""

    kept = ("centre",)

    def __init__(self, net, workers, make_optimizer, period, alpha):
        if alpha * workers.size > 1:
            most = f"{1 / workers.size:.3g}"
            raise ValueError(f"easgd: the moving rate {alpha:g} must be at most 1/workers, here {most}, else it is unstable")
        super().__init__(net, workers, make_optimizer)
        self.period = self.interval = period
        self.alpha = alpha
        self.centre = self.counted.pack(net.params)

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


class SGP(Protocol):
    """Stochastic gradient push (Assran et al. 2019, Algorithm 1): worker w trains at x_w / a_w. In step t it then sends half of
    (x_w, a_w) to w + 2^(t mod ceil(log2 W)), and adds to its own half that of w - 2^(..). At the end all take sum x_w /
    sum a_w. Shares of any size count alike."""

    own_numbers = ("weight",)
    kept = ("x",)

    def __init__(self, net, workers, make_optimizer):
        super().__init__(net, workers, make_optimizer)
        self.x, self.weight = self.counted.pack(net.params), 1.0
        self._arrived = {}  # {step: what was sent in it}
        workers.handle("half", self._keep)

    def after_step(self):
        """Add what the local step has changed, and exchange halves."""
        workers, step = self.workers, self.turn.step
        if workers.size == 1:
            return
        if self.turn.samples:
            self.x += self.counted.pack(self.net.params) - self.x / self.weight  # which were the parameters before
        hop = 2 ** (step % (workers.size - 1).bit_length())
        half = self._with_weight() / 2
        workers.send((workers.rank + hop) % workers.size, "half", [step], half)
        workers.wait_until(lambda: step in self._arrived)
        workers.meet_inside()
        self._take(half + self._arrived.pop(step))

    def finish(self):
        if self.workers.size > 1:
            self.workers.wait_until(lambda: self.workers.all_sent)
            self.workers.meet_inside()
            total = self._with_weight()
            self.workers.all_reduce(total)
            self._take(total / self.workers.size)
        super().finish()

    def _keep(self, source, numbers, content):
        self._arrived[numbers[0]] = to_device(content.view(self.x.dtype))

    def _with_weight(self):
        return xp.concatenate([self.x, xp.full(1, self.weight, self.x.dtype)])

    def _take(self, both):
        """Go on from an x and its weight."""
        self.x, self.weight = both[:-1], float(both[-1])
        self.replace(self.x / self.weight)
