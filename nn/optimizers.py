"""Stochastic gradient descent on the flat buffers."""

import numpy as np

from nn.layer import aligned_empty
from nn.schedules import constant


class SGD:
    """SGD with momentum; the update is PyTorch's.

    g <- grad + l2 p + l1 sign(p);  v <- momentum v + g;  p <- p - lr v, or with Nesterov p <- p - lr (g + momentum v).

    net: a Sequential. lr: the learning rate, a number or a schedule (a function of the step).
    momentum: in [0, 1). l2, l1: weights of the penalties l2/2 |p|^2 and l1 |p| on all parameters (they add to
    the gradient, not to the loss that is reported). Raises ValueError for values out of range.
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
        self.velocity = np.zeros_like(net.params) if momentum else None
        self.scratch = aligned_empty(net.params.size, net.dtype)

    def step(self):
        """Update the parameters from the gradients, which are overwritten; `net.step` tells the schedule the step."""
        params, grads, v, scratch = self.net.params, self.net.grads, self.velocity, self.scratch
        number = params.dtype.type
        lr = number(self.lr(self.net.step))
        if self.l1:
            np.sign(params, out=scratch)
            np.multiply(scratch, number(self.l1), out=scratch)
            np.add(grads, scratch, out=grads)
        if self.l2:
            np.multiply(params, number(self.l2), out=scratch)
            np.add(grads, scratch, out=grads)
        if v is None:
            direction = grads
        else:
            np.multiply(v, number(self.momentum), out=v)
            np.add(v, grads, out=v)
            direction = v
            if self.nesterov:
                np.multiply(v, number(self.momentum), out=scratch)
                direction = np.add(grads, scratch, out=grads)
        np.multiply(direction, lr, out=scratch)
        np.subtract(params, scratch, out=params)
