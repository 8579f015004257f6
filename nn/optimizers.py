"""Stochastic gradient descent on the flat buffers."""

import numpy as np

from nn.schedules import constant

CHUNK = 1 << 16  # elements that are updated at a time, so that the passes over them stay in the cache


class SGD:
    """SGD with momentum; the update is PyTorch's.

    g <- grad + l2 p + l1 sign(p);  v <- momentum v + g;  p <- p - lr v, or with Nesterov p <- p - lr (g + momentum v).

    net: a Sequential. lr: the learning rate, a number or a schedule (a function of the step).
    momentum: in [0, 1). l2, l1: weights of the penalties l2/2 |p|^2 and l1 |p| on all parameters (they add to
    the gradient, not to the loss that is reported). Raises ValueError for values out of range.

    `scaled_velocity` is lr v: kept so, an update needs no array besides p, the gradient and v, and moves a third
    fewer bytes. Where lr changes, the old v is rescaled by the ratio.
    """

    def __init__(self, net, lr, momentum=0.0, nesterov=False, l2=0.0, l1=0.0):
        for name, value in (("l2", l2), ("l1", l1)):
            if value < 0:
                raise ValueError(f"{name} must be at least 0, not {value}")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), not {momentum}")
        if nesterov and momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        self.net, self.momentum, self.nesterov, self.l2, self.l1 = net, momentum, nesterov, l2, l1
        self.lr = lr if callable(lr) else constant(lr)
        self.last_lr = self.lr(net.step)
        params, grads = net.params, net.grads
        self.scaled_velocity = np.zeros_like(params if momentum else params[:0])
        self.scratch = np.empty(CHUNK if l1 or l2 or nesterov else 0, params.dtype)
        starts = range(0, params.size, CHUNK)
        self.chunks = [tuple(a[i : i + CHUNK] for a in (params, grads, self.scaled_velocity)) for i in starts]

    def step(self):
        """Update the parameters from the gradients, which are overwritten; `net.step` tells the schedule the step."""
        number = self.net.params.dtype.type
        lr = self.lr(self.net.step)
        kept = number(self.momentum * lr / self.last_lr if self.last_lr else 0.0)
        momentum, lr, self.last_lr = number(self.momentum), number(lr), lr
        for p, g, v in self.chunks:
            if self.l1 or self.l2:
                self._add_penalties(p, g)
            np.multiply(g, lr, out=g)
            if self.momentum:
                np.multiply(v, kept, out=v)
                np.add(v, g, out=v)
                if self.nesterov:
                    ahead = np.multiply(v, momentum, out=self.scratch[: len(v)])
                    np.add(g, ahead, out=g)
                else:
                    g = v
            np.subtract(p, g, out=p)

    def _add_penalties(self, p, g):
        scratch = self.scratch[: len(p)]
        if self.l1:
            np.sign(p, out=scratch)
            np.multiply(scratch, p.dtype.type(self.l1), out=scratch)
            np.add(g, scratch, out=g)
        if self.l2:
            np.multiply(p, p.dtype.type(self.l2), out=scratch)
            np.add(g, scratch, out=g)
