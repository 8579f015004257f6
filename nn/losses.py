"""Losses: each rank's addend of the mean over the *global* minibatch, so that the ranks' values simply sum."""

import numpy as np


class SoftmaxCrossEntropy:
    """-log softmax(y)[label], the mean over the global minibatch.

    y: (n, classes); labels: (n,) integers.
    """

    def forward(self, y, labels, batch_size):
        """This rank's addend of the mean over `batch_size` samples, as a Python float."""
        self.labels, self.batch_size = labels, batch_size
        if not len(y):
            self.probabilities = np.zeros_like(y)
            return 0.0
        shifted = y - y.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        total = exponentials.sum(axis=1, keepdims=True)
        self.probabilities = np.divide(exponentials, total, out=exponentials)
        own = shifted[np.arange(len(y)), labels] - np.log(total[:, 0])
        return -float(own.sum(dtype=np.float64)) / batch_size

    def backward(self):
        """The gradient of the global mean with respect to y: (n, classes)."""
        dy = self.probabilities
        dy[np.arange(len(dy)), self.labels] -= 1
        return np.multiply(dy, dy.dtype.type(1 / self.batch_size), out=dy)


class MSE:
    """(y - target)^2, the mean over the global minibatch and over the outputs (PyTorch's "mean").

    y, target: (n, outputs).
    """

    def forward(self, y, target, batch_size):
        """This rank's addend of the mean over `batch_size` samples, as a Python float."""
        self.difference = y - target
        self.count = batch_size * y.shape[1]
        flat = self.difference.ravel()
        return float(np.dot(flat, flat)) / self.count

    def backward(self):
        """The gradient of the global mean with respect to y: (n, outputs)."""
        return np.multiply(self.difference, self.difference.dtype.type(2 / self.count), out=self.difference)


LOSSES = {"cross-entropy": SoftmaxCrossEntropy, "mse": MSE}
