"""Losses: means over the *global* minibatch; and when to end a training by the loss of other samples.

Each rank returns the sum over its own samples, divided by the global number of samples, `minibatch_size` of the context. So
the global loss is the sum of the ranks' values.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gridgrad.nn.arguments import fraction
from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, xp
from gridgrad.nn.graphs import number


class Loss:
    """The base class of losses."""

    name = "loss"  # the name under which observers report it

    def forward(self, y: Array, target: Array, context: Context) -> float:
        """This rank's partial sum of the mean over the global minibatch. y: the outputs of the network for its samples."""
        raise NotImplementedError

    def backward(self, context: Context) -> Array:
        """The gradient of the global mean with respect to y, in its shape."""
        raise NotImplementedError


class SoftmaxCrossEntropy(Loss):
    """The mean of -log softmax(y)[label] over the global minibatch, for classifiers.

    It takes outputs y of shape (n, classes) and labels of shape (n,), whole numbers in [0, classes).

    Parameters
    ----------
    smoothing : float
        In [0, 1): a label counts 1 - smoothing, and all classes share the rest evenly (Szegedy et al. 2016, section 7).

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import Context, SoftmaxCrossEntropy
    >>> y, labels = np.zeros((1, 4)), np.array([2])
    >>> round(SoftmaxCrossEntropy().forward(y, labels, Context(batch_size=1)), 3)  # log 4
    1.386
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        self.smoothing = fraction(smoothing, "SoftmaxCrossEntropy: smoothing")

    def forward(self, y: Array, target: Array, context: Context) -> float:
        kept = context[self]
        kept.labels = target
        if not len(y):
            kept.probabilities = xp.zeros_like(y)
            return 0.0
        shifted = y - y.max(axis=1, keepdims=True)
        exponentials = xp.exp(shifted)
        total = exponentials.sum(axis=1, keepdims=True)
        kept.probabilities = xp.divide(exponentials, total, out=exponentials)
        own = shifted[xp.arange(len(y)), target] - xp.log(total[:, 0])
        if self.smoothing:
            rest = shifted.mean(axis=1) - xp.log(total[:, 0])
            own = own * own.dtype.type(1 - self.smoothing) + rest * own.dtype.type(self.smoothing)
        return number(-own.sum(dtype=np.float64) / context.minibatch_size)

    def backward(self, context: Context) -> Array:
        kept = context[self]
        dy = kept.probabilities
        if self.smoothing:
            dy -= dy.dtype.type(self.smoothing / dy.shape[1])
        dy[xp.arange(len(dy)), kept.labels] -= dy.dtype.type(1 - self.smoothing)
        return xp.multiply(dy, dy.dtype.type(1 / context.minibatch_size), out=dy)


class MSE(Loss):
    """The mean of (y - target)^2 over the global minibatch and over the outputs, as PyTorch's MSELoss.

    It takes outputs y and targets of shape (n, outputs).

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import MSE, Context
    >>> MSE().forward(np.full((1, 2), 3.0), np.zeros((1, 2)), Context(batch_size=1))
    9.0
    """

    def forward(self, y: Array, target: Array, context: Context) -> float:
        context[self].difference = difference = y - target
        flat = difference.ravel()
        return number(xp.dot(flat, flat).astype(np.float64) / (context.minibatch_size * y.shape[1]))

    def backward(self, context: Context) -> Array:
        difference = context[self].difference
        count = context.minibatch_size * difference.shape[1]
        return xp.multiply(difference, difference.dtype.type(2 / count), out=difference)


LOSSES: dict[str, type[Loss]] = {"cross-entropy": SoftmaxCrossEntropy, "mse": MSE}


class EarlyStopping:
    """Says when to end a training, from one value per epoch, where lower is better (Prechelt 1998).

    Parameters
    ----------
    patience : int
        The number of epochs without an improvement after which to stop, at least 1; else ValueError.
    least : float
        A value is an improvement if it is below the best one by more than this; at least 0, else ValueError.

    Attributes
    ----------
    epochs : int
        The number of values so far.
    best, best_epoch : float, int
        The value of the last improvement and its epoch, counted from 1; infinity and 0 before the first one.

    Examples
    --------
    >>> from gridgrad.nn import EarlyStopping
    >>> stopping = EarlyStopping(patience=2)
    >>> for loss in 3.0, 1.0, 2.0, 1.5, 0.5:
    ...     improved = stopping.see(loss)
    ...     if stopping.stop:
    ...         break
    >>> stopping.epochs, stopping.best, stopping.best_epoch
    (4, 1.0, 2)
    """

    def __init__(self, patience: int, least: float = 0.0) -> None:
        if patience < 1:
            raise ValueError(f"patience must be at least 1 epoch, not {patience}")
        if not 0 <= least < math.inf:
            raise ValueError(f"least must be at least 0 and finite, not {least}")
        self.patience, self.least = patience, least
        self.epochs, self.best, self.best_epoch = 0, math.inf, 0

    def see(self, value: float) -> bool:
        """Record the value of the next epoch. Returns whether it is an improvement; NaN never is."""
        self.epochs += 1
        improved = value < self.best - self.least
        if improved:
            self.best, self.best_epoch = value, self.epochs
        return improved

    @property
    def stop(self) -> bool:
        """Whether there has been no improvement for `patience` epochs."""
        return self.epochs - self.best_epoch >= self.patience

    def state(self) -> dict[str, Any]:
        """{name: number or None}, as JSON holds it: with what was given, all that the next value is compared with."""
        best = self.best if math.isfinite(self.best) else None
        return {"epochs": self.epochs, "best": best, "best_epoch": self.best_epoch}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self.epochs, self.best_epoch = int(state["epochs"]), int(state["best_epoch"])
        self.best = math.inf if state["best"] is None else float(state["best"])
