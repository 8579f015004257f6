"""Losses: each rank's addend of the mean over the *global* minibatch, so that the ranks' values simply sum.

What backward needs is kept in the context, as layers do; its `minibatch_size` says how many samples the mean is over.
"""

import numpy as np

from nn.device import xp


class SoftmaxCrossEntropy:
    """-log softmax(y)[label], the mean over the global minibatch.

    y: (n, classes); labels: (n,) integers.
    """

    name = "loss"  # under which an observer reports it

    def forward(self, y, labels, context):
        """This rank's addend of the mean over the `minibatch_size` samples of the context, as a Python float."""
        kept = context[self]
        kept.labels = labels
        if not len(y):
            kept.probabilities = xp.zeros_like(y)
            return 0.0
        shifted = y - y.max(axis=1, keepdims=True)
        exponentials = xp.exp(shifted)
        total = exponentials.sum(axis=1, keepdims=True)
        kept.probabilities = xp.divide(exponentials, total, out=exponentials)
        own = shifted[xp.arange(len(y)), labels] - xp.log(total[:, 0])
        return -own.sum(dtype=np.float64).item() / context.minibatch_size

    def backward(self, context):
        """The gradient of the global mean with respect to y: (n, classes)."""
        kept = context[self]
        dy = kept.probabilities
        dy[xp.arange(len(dy)), kept.labels] -= 1
        return xp.multiply(dy, dy.dtype.type(1 / context.minibatch_size), out=dy)


class MSE:
    """(y - target)^2, the mean over the global minibatch and over the outputs (PyTorch's "mean").

    y, target: (n, outputs).
    """

    name = "loss"

    def forward(self, y, target, context):
        """This rank's addend of the mean over the `minibatch_size` samples of the context, as a Python float."""
        context[self].difference = difference = y - target
        flat = difference.ravel()
        return xp.dot(flat, flat).item() / (context.minibatch_size * y.shape[1])

    def backward(self, context):
        """The gradient of the global mean with respect to y: (n, outputs)."""
        difference = context[self].difference
        count = context.minibatch_size * difference.shape[1]
        return xp.multiply(difference, difference.dtype.type(2 / count), out=difference)


LOSSES = {"cross-entropy": SoftmaxCrossEntropy, "mse": MSE}
