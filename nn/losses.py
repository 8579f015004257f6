"""Losses: means over the *global* minibatch.

Each rank returns its partial sum of the mean: the sum over its own samples, divided by the global number of samples, which
is `minibatch_size` of the context. So the global loss is the sum of the ranks' values. A loss stores what its backward
pass needs in the context, as layers do.
"""

import numpy as np

from gridgrad.nn.device import xp


class SoftmaxCrossEntropy:
    """The mean of -log softmax(y)[label] over the global minibatch.

    y: (n, classes); labels: (n,), integers in [0, classes).
    """

    name = "loss"  # the name under which observers report it

    def forward(self, y, labels, context):
        """This rank's partial sum of the mean over the global minibatch, as a Python float."""
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
    """The mean of (y - target)^2 over the global minibatch and over the outputs, as PyTorch's MSELoss.

    y, target: (n, outputs).
    """

    name = "loss"

    def forward(self, y, target, context):
        """This rank's partial sum of the mean over the global minibatch, as a Python float."""
        context[self].difference = difference = y - target
        flat = difference.ravel()
        return xp.dot(flat, flat).item() / (context.minibatch_size * y.shape[1])

    def backward(self, context):
        """The gradient of the global mean with respect to y: (n, outputs)."""
        difference = context[self].difference
        count = context.minibatch_size * difference.shape[1]
        return xp.multiply(difference, difference.dtype.type(2 / count), out=difference)


LOSSES = {"cross-entropy": SoftmaxCrossEntropy, "mse": MSE}
