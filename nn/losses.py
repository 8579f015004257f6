"""Losses: means over the *global* minibatch.

Each rank returns the sum over its own samples, divided by the global number of samples, `minibatch_size` of the context. So
the global loss is the sum of the ranks' values.
"""

import numpy as np

from gridgrad.nn.context import Context
from gridgrad.nn.device import Array, xp


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

    Examples
    --------
    >>> import numpy as np
    >>> from gridgrad.nn import Context, SoftmaxCrossEntropy
    >>> y, labels = np.zeros((1, 4)), np.array([2])
    >>> round(SoftmaxCrossEntropy().forward(y, labels, Context(batch_size=1)), 3)  # log 4
    1.386
    """

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
        return -own.sum(dtype=np.float64).item() / context.minibatch_size

    def backward(self, context: Context) -> Array:
        kept = context[self]
        dy = kept.probabilities
        dy[xp.arange(len(dy)), kept.labels] -= 1
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
        return xp.dot(flat, flat).item() / (context.minibatch_size * y.shape[1])

    def backward(self, context: Context) -> Array:
        difference = context[self].difference
        count = context.minibatch_size * difference.shape[1]
        return xp.multiply(difference, difference.dtype.type(2 / count), out=difference)


LOSSES: dict[str, type[Loss]] = {"cross-entropy": SoftmaxCrossEntropy, "mse": MSE}
