"""Losses: each rank's addend of the mean over the *global* minibatch, so that the ranks' values simply sum."""

import numpy as np

from nn.device import xp


class SoftmaxCrossEntropy:
    """-log softmax(y)[label], the mean over the global minibatch.

    y: (n, classes); labels: (n,) integers.
    """

    def forward(self, y, labels, batch_size):
        """This rank's addend of the mean over `batch_size` samples, as a Python float."""
        self.labels, self.batch_size = labels, batch_size
        if not len(y):
            self.probabilities = xp.zeros_like(y)
            return 0.0
        shifted = y - y.max(axis=1, keepdims=True)
        exponentials = xp.exp(shifted)
        total = exponentials.sum(axis=1, keepdims=True)
        self.probabilities = xp.divide(exponentials, total, out=exponentials)
        own = shifted[xp.arange(len(y)), labels] - xp.log(total[:, 0])
        return -own.sum(dtype=np.float64).item() / batch_size

    def backward(self):
        """The gradient of the global mean with respect to y: (n, classes)."""
        dy = self.probabilities
        dy[xp.arange(len(dy)), self.labels] -= 1
        return xp.multiply(dy, dy.dtype.type(1 / self.batch_size), out=dy)


class MSE:
    """(y - target)^2, the mean over the global minibatch and over the outputs (PyTorch's "mean").

    y, target: (n, outputs).
    """

    def forward(self, y, target, batch_size):
        """This rank's addend of the mean over `batch_size` samples, as a Python float."""
        self.difference = y - target
        self.count = batch_size * y.shape[1]
        flat = self.difference.ravel()
        return xp.dot(flat, flat).item() / self.count

    def backward(self):
        """The gradient of the global mean with respect to y: (n, outputs)."""
        return xp.multiply(self.difference, self.difference.dtype.type(2 / self.count), out=self.difference)


LOSSES = {"cross-entropy": SoftmaxCrossEntropy, "mse": MSE}
