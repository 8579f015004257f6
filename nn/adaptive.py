"""Optimizers that adapt the step size of every parameter: Adam, Adagrad, Adadelta. Each update is the same as PyTorch's.

In the formulas, g is the gradient with the penalties: grad + l2 p + l1 sign(p). Where a paper uses the running mean
(1 - beta) sum_i beta^i g_(t-i), the state array holds the sum without the factor (1 - beta). This saves one pass over the
array; the factor is part of the constants of the step.
"""

import math

from gridgrad.nn.arguments import fraction
from gridgrad.nn.device import xp
from gridgrad.nn.optimizers import SGD, Optimizer


class Adam(Optimizer):
    """Adam (Kingma and Ba, ICLR 2015) or, if `decoupled`, AdamW (Loshchilov and Hutter, ICLR 2019).

    m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;
    p <- p - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps),  t = 1, 2, ...

    net, lr, l2, l1: as for Optimizer. betas: (beta1, beta2), each in [0, 1). eps: above 0.
    decoupled: whether l2 shrinks the parameters directly, p <- (1 - lr l2) p, instead of being part of g.
    Raises ValueError for values out of range.

    The state arrays are `gradients`, m / (1 - beta1), and `squares`, v / (1 - beta2).
    """

    state_names = ("gradients", "squares")

    def __init__(self, net, lr=0.001, betas=(0.9, 0.999), eps=1e-8, l2=0.0, l1=0.0, decoupled=False):
        _check(eps, beta1=betas[0], beta2=betas[1])
        super().__init__(net, lr, l2, l1)
        self.betas, self.eps, self.decay = betas, eps, 0.0
        if decoupled:
            self.decay, self.l2 = l2, 0.0

    def constants(self, lr):
        beta1, beta2 = self.betas
        mean = (1 - beta1) / (1 - beta1**self.updates)  # times `gradients`: the bias-corrected m
        root = math.sqrt((1 - beta2) / (1 - beta2**self.updates))  # times sqrt(`squares`): the root of the bias-corrected v
        return beta1, beta2, lr * mean / root, self.eps / root, 1 - lr * self.decay

    def update(self, p, g, state, constants):
        beta1, beta2, lr, eps, shrinkage = constants
        gradients, squares = state
        if self.decay:
            xp.multiply(p, shrinkage, out=p)
        xp.multiply(gradients, beta1, out=gradients)
        xp.add(gradients, g, out=gradients)
        xp.multiply(g, g, out=g)
        xp.multiply(squares, beta2, out=squares)
        xp.add(squares, g, out=squares)
        _descend(p, gradients, squares, lr, eps, g)


class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan and Singer, JMLR 2011).

    s <- s + g^2;  p <- p - lr g / (sqrt(s) + eps).

    net, lr, l2, l1: as for Optimizer. eps: above 0. Raises ValueError for values out of range.
    """

    state_names = ("squares",)

    def __init__(self, net, lr=0.01, eps=1e-10, l2=0.0, l1=0.0):
        _check(eps)
        super().__init__(net, lr, l2, l1)
        self.eps = eps

    def constants(self, lr):
        return lr, self.eps

    def update(self, p, g, state, constants):
        lr, eps = constants
        (squares,) = state
        scratch = xp.multiply(g, g, out=self.scratch[: len(g)])
        xp.add(squares, scratch, out=squares)
        _descend(p, g, squares, lr, eps, scratch)


class Adadelta(Optimizer):
    """Adadelta (Zeiler, arXiv:1212.5701, 2012).

    s <- rho s + (1 - rho) g^2;  d <- sqrt(u + eps) / sqrt(s + eps) g;  u <- rho u + (1 - rho) d^2;  p <- p - lr d.

    net, lr, l2, l1: as for Optimizer. rho: in [0, 1). eps: above 0. Raises ValueError for values out of range.

    The state arrays are `squares`, s / (1 - rho), and `changes`, u / (1 - rho).
    """

    state_names = ("squares", "changes")

    def __init__(self, net, lr=1.0, rho=0.9, eps=1e-6, l2=0.0, l1=0.0):
        _check(eps, rho=rho)
        super().__init__(net, lr, l2, l1)
        self.rho, self.eps = rho, eps

    def constants(self, lr):
        return lr, self.rho, self.eps / (1 - self.rho)

    def update(self, p, g, state, constants):
        lr, rho, eps = constants
        squares, changes = state
        scratch = self.scratch[: len(g)]
        self._accumulate(squares, g, rho)
        xp.add(squares, eps, out=scratch)
        xp.sqrt(scratch, out=scratch)
        xp.divide(g, scratch, out=g)
        xp.add(changes, eps, out=scratch)
        xp.sqrt(scratch, out=scratch)
        xp.multiply(g, scratch, out=g)
        self._accumulate(changes, g, rho)
        xp.multiply(g, lr, out=g)
        xp.subtract(p, g, out=p)

    def _accumulate(self, total, x, rho):
        """total <- rho total + x^2."""
        scratch = xp.multiply(x, x, out=self.scratch[: len(x)])
        xp.multiply(total, rho, out=total)
        xp.add(total, scratch, out=total)


def _descend(p, direction, squares, lr, eps, scratch):
    """p <- p - lr direction / (sqrt(squares) + eps); scratch is overwritten."""
    xp.sqrt(squares, out=scratch)
    xp.add(scratch, eps, out=scratch)
    xp.divide(direction, scratch, out=scratch)
    xp.multiply(scratch, lr, out=scratch)
    xp.subtract(p, scratch, out=p)


def _check(eps, **decays):
    if not 0 < eps < math.inf:
        raise ValueError(f"eps must be above 0 and finite, not {eps}")
    for name, value in decays.items():
        fraction(value, name)


OPTIMIZERS = {"sgd": SGD, "adam": Adam, "adagrad": Adagrad, "adadelta": Adadelta}
