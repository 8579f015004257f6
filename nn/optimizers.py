"""Stochastic gradient descent on the flat buffers, and what every optimizer shares with it."""

import math
import zlib

from nn.arguments import penalty_weight
from nn.device import is_cpu, to_device, xp
from nn.schedules import constant
from nn.workspace import CHUNK


class Optimizer:
    """Updates the parameters of a network from its gradients, one chunk of the flat buffers after another.

    net: a Sequential. lr: the learning rate, a number or a schedule (a function of the step).
    l2, l1: weights of the penalties l2/2 |p|^2 and l1 |p| on all parameters (they add to the gradient, not to the
    loss that is reported). Raises ValueError for values out of range.

    An optimizer names its arrays in `state_names`, its numbers of a step in `constants` and says in `update` what
    becomes of a chunk. updates: how many there have been. last_lr: the learning rate of the last one.
    Only the slices `net.owned` are updated, and have a state here; the network is told of each chunk before and after.
    """

    name = "optimizer"  # under which an observer reports it
    state_names = ()  # of arrays like the parameters, zero at first

    def __init__(self, net, lr, l2=0.0, l1=0.0):
        self.net, self.l2, self.l1 = net, penalty_weight(l2, "l2"), penalty_weight(l1, "l1")
        self.lr = lr if callable(lr) else constant(lr)
        self.updates, self.last_lr = 0, self.rate()
        net.allocate()
        params, grads = net.params, net.grads
        owned = sum(part.stop - part.start for part in net.owned)
        self.owned = zlib.crc32(repr([(part.start, part.stop) for part in net.owned]).encode())  # tells layouts apart
        self._state = {name: xp.zeros(owned, params.dtype) for name in self.state_names}
        size = CHUNK if is_cpu() else max(owned, 1)
        self.scratch = xp.empty(min(size, owned), params.dtype)
        self.chunks, position = [], 0  # (slice of the flat buffers, parameters, gradients, state)
        for part in net.owned:
            for start in range(part.start, part.stop, size):
                where = slice(start, min(start + size, part.stop))
                kept = slice(position, position + where.stop - where.start)
                state = [array[kept] for array in self._state.values()]
                self.chunks.append((where, params[where], grads[where], state))
                position = kept.stop

    def step(self):
        """Update the parameters from the gradients, which are overwritten; `net.step` tells the schedule the step."""
        lr = self.rate()
        self.updates += 1
        constants = [self.net.params.dtype.type(value) for value in self.constants(lr)]
        self.last_lr = lr
        for where, p, g, state in reversed(self.chunks):  # the gradients of the last layers are complete first
            self.net.complete(where)
            if self.l1 or self.l2:
                self._add_penalties(p, g)
            self.update(p, g, state, constants)
            self.net.changed(where)
        self.net.updated()

    def rate(self):
        """The learning rate of the next step; ValueError if the schedule gives no finite number of at least 0."""
        lr = self.lr(self.net.step)
        if not 0 <= lr < math.inf:
            raise ValueError(f"the schedule gives the learning rate {lr} at step {self.net.step}: it must be at least 0")
        return lr

    def constants(self, lr):
        """The numbers that all chunks of a step share, as Python floats; `update` gets them in the parameters' type."""
        raise NotImplementedError

    def update(self, p, g, state, constants):
        """Update a chunk p of the parameters, and its state (the arrays of `state_names`); g may be overwritten."""
        raise NotImplementedError

    def state_arrays(self):
        """{name: flat array on the device}, each in the order of `net.params`, of what is owned: the arrays themselves."""
        return dict(self._state)

    def state_numbers(self):
        """{name: number}: with `state_arrays` and `net.step`, all that the next update depends on."""
        return {"updates": self.updates, "last_lr": self.last_lr, "owned": self.owned}

    def load_state(self, arrays, numbers):
        """Take over what `state_arrays` (or copies, on the host or the device) and `state_numbers` gave.

        ValueError, changing nothing, if it does not fit.
        """
        fits = arrays.keys() == self._state.keys() and numbers.keys() == self.state_numbers().keys()
        if fits and numbers["owned"] != self.owned:
            raise ValueError(f"state of {type(self).__name__}: it is of other slices of the parameters")
        if not fits or any(arrays[name].shape != own.shape for name, own in self._state.items()):
            shapes = {name: array.shape for name, array in arrays.items()}
            expected = {name: array.shape for name, array in self._state.items()}
            raise ValueError(f"state of {type(self).__name__}: got {shapes} and {sorted(numbers)}, expected {expected}")
        for name, own in self._state.items():
            own[...] = to_device(arrays[name])
        self.updates, self.last_lr = int(numbers["updates"]), float(numbers["last_lr"])

    def _add_penalties(self, p, g):
        scratch = self.scratch[: len(p)]
        if self.l1:
            xp.sign(p, out=scratch)
            xp.multiply(scratch, p.dtype.type(self.l1), out=scratch)
            xp.add(g, scratch, out=g)
        if self.l2:
            xp.multiply(p, p.dtype.type(self.l2), out=scratch)
            xp.add(g, scratch, out=g)


class SGD(Optimizer):
    """SGD with momentum; the update is PyTorch's.

    g <- grad + l2 p + l1 sign(p);  v <- momentum v + g;  p <- p - lr v, or with Nesterov p <- p - lr (g + momentum v).

    net, lr, l2, l1: as of Optimizer. momentum: in [0, 1). Raises ValueError for values out of range.

    `scaled_velocity` is lr v: kept so, an update needs no array besides p, the gradient and v, and moves a third
    fewer bytes. Where lr changes, the old v is rescaled by the ratio. A step at a rate of 0 moves no parameter but goes into
    v, which keeps the scale it has: `velocity_lr`, the last rate above 0 (1 before there was one).
    """

    state_names = ("scaled_velocity",)

    def __init__(self, net, lr, momentum=0.0, nesterov=False, l2=0.0, l1=0.0):
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), not {momentum}")
        if nesterov and momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        self.momentum, self.nesterov = momentum, nesterov
        if not momentum:
            self.state_names = ()
        super().__init__(net, lr, l2, l1)
        self.velocity_lr = self.last_lr or 1.0

    def constants(self, lr):
        scale, before = lr, self.velocity_lr
        if self.momentum:
            scale = lr or before
            self.velocity_lr = scale
        return scale, self.momentum, self.momentum * scale / before, lr

    def state_numbers(self):
        return super().state_numbers() | ({"velocity_lr": self.velocity_lr} if self.momentum else {})

    def load_state(self, arrays, numbers):
        super().load_state(arrays, numbers)
        self.velocity_lr = float(numbers.get("velocity_lr", 1.0))

    def update(self, p, g, state, constants):
        scale, momentum, kept, lr = constants
        xp.multiply(g, scale, out=g)
        if self.momentum:
            (v,) = state
            xp.multiply(v, kept, out=v)
            xp.add(v, g, out=v)
            if not lr:
                return
            if self.nesterov:
                ahead = xp.multiply(v, momentum, out=self.scratch[: len(v)])
                xp.add(g, ahead, out=g)
            else:
                g = v
        xp.subtract(p, g, out=p)
