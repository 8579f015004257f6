"""Optimizers that adapt the step size of every parameter: Adam, Adagrad, Adadelta. Each update is the same as PyTorch's.

In the formulas, g is the gradient with the penalties: grad + l2 p + l1 sign(p). Where a paper uses the running mean
(1 - beta) sum_i beta^i g_(t-i), the state array holds the sum without the factor (1 - beta). This saves one pass over the
array; the factor is part of the constants of the step.
"""

import math
from collections.abc import Sequence

from gridgrad.nn.arguments import fraction
from gridgrad.nn.device import Array, xp
from gridgrad.nn.optimizers.optimizer import SGD, Optimizer
from gridgrad.nn.optimizers.schedules import Schedule
from gridgrad.nn.sequential import Sequential


class Adam(Optimizer):
    """Adam (Kingma and Ba, ICLR 2015) or, if `decoupled`, AdamW (Loshchilov and Hutter, ICLR 2019).

    m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;
    p <- p - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps),  t = 1, 2, ...

    The state arrays are `gradients`, m / (1 - beta1), and `squares`, v / (1 - beta2).

    Parameters
    ----------
    net, lr
        As in SGD.
    betas : (float, float)
        beta1 and beta2, each in [0, 1).
    eps : float
        Above 0.
    l2, l1
        As in SGD.
    decoupled : bool
        Whether l2 shrinks the parameters directly, p <- (1 - lr l2) p, instead of being part of g.

    Raises
    ------
    ValueError
        For values out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import MSE, Adam, Linear, Sequential
    >>> net, loss = Sequential([Linear(3, 1)]), MSE()
    >>> optimizer = Adam(net, lr=0.1)
    >>> x, y = np.eye(3, dtype=np.float32), np.ones((3, 1), np.float32)
    >>> first, *_, last = (net.learn(x, y, loss, optimizer) for _ in range(20))
    >>> last < first
    True
    """

    state_names = ("gradients", "squares")

    def __init__(
        self,
        net: Sequential,
        lr: float | Schedule = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        l2: float = 0.0,
        l1: float = 0.0,
        decoupled: bool = False,
    ) -> None:
        _check(eps, beta1=betas[0], beta2=betas[1])
        super().__init__(net, lr, l2, l1)
        self.betas, self.eps, self.decay = betas, eps, 0.0
        if decoupled:
            self.decay, self.l2 = l2, 0.0

    def constants(self, lr: float) -> Sequence[float]:
        beta1, beta2 = self.betas
        mean = (1 - beta1) / (1 - beta1**self.updates)  # times `gradients`: the bias-corrected m
        root = math.sqrt((1 - beta2) / (1 - beta2**self.updates))  # times sqrt(`squares`): the root of the bias-corrected v
        return beta1, beta2, lr * mean / root, self.eps / root, 1 - lr * self.decay

    def update(self, p: Array, g: Array, state: Sequence[Array], constants: Sequence[float]) -> None:
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

    Parameters
    ----------
    net, lr
        As in SGD.
    eps : float
        Above 0.
    l2, l1
        As in SGD.

    Raises
    ------
    ValueError
        For values out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import MSE, Adagrad, Linear, Sequential
    >>> net, loss = Sequential([Linear(3, 1)]), MSE()
    >>> optimizer = Adagrad(net, lr=0.1)
    >>> x, y = np.eye(3, dtype=np.float32), np.ones((3, 1), np.float32)
    >>> first, *_, last = (net.learn(x, y, loss, optimizer) for _ in range(20))
    >>> last < first
    True
    """

    state_names = ("squares",)

    def __init__(
        self, net: Sequential, lr: float | Schedule = 0.01, eps: float = 1e-10, l2: float = 0.0, l1: float = 0.0
    ) -> None:
        _check(eps)
        super().__init__(net, lr, l2, l1)
        self.eps = eps

    def constants(self, lr: float) -> Sequence[float]:
        return lr, self.eps

    def update(self, p: Array, g: Array, state: Sequence[Array], constants: Sequence[float]) -> None:
        lr, eps = constants
        (squares,) = state
        scratch = xp.multiply(g, g, out=self.scratch[: len(g)])
        xp.add(squares, scratch, out=squares)
        _descend(p, g, squares, lr, eps, scratch)


class Adadelta(Optimizer):
    """Adadelta (Zeiler, arXiv:1212.5701, 2012).

    s <- rho s + (1 - rho) g^2;  d <- sqrt(u + eps) / sqrt(s + eps) g;  u <- rho u + (1 - rho) d^2;  p <- p - lr d.

    The state arrays are `squares`, s / (1 - rho), and `changes`, u / (1 - rho).

    Parameters
    ----------
    net, lr
        As in SGD.
    rho : float
        In [0, 1).
    eps : float
        Above 0.
    l2, l1
        As in SGD.

    Raises
    ------
    ValueError
        For values out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import MSE, Adadelta, Linear, Sequential
    >>> net, loss = Sequential([Linear(3, 1)]), MSE()
    >>> optimizer = Adadelta(net)
    >>> x, y = np.eye(3, dtype=np.float32), np.ones((3, 1), np.float32)
    >>> first, *_, last = (net.learn(x, y, loss, optimizer) for _ in range(20))
    >>> last < first
    True
    """

    state_names = ("squares", "changes")

    def __init__(
        self,
        net: Sequential,
        lr: float | Schedule = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        l2: float = 0.0,
        l1: float = 0.0,
    ) -> None:
        _check(eps, rho=rho)
        super().__init__(net, lr, l2, l1)
        self.rho, self.eps = rho, eps

    def constants(self, lr: float) -> Sequence[float]:
        return lr, self.rho, self.eps / (1 - self.rho)

    def update(self, p: Array, g: Array, state: Sequence[Array], constants: Sequence[float]) -> None:
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


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adagrad": Adagrad, "adadelta": Adadelta}
