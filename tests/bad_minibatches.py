"""Minibatches that do not fit, and a word of how they are refused: the same on a serial network and on every grid."""

import numpy as np

from gridgrad.nn import MSE, Conv2d, Flatten, Linear, ReLU, Sequential, SoftmaxCrossEntropy

X, LABELS, TARGETS = np.linspace(-1, 1, 96).reshape(6, 16), np.arange(6) % 4, np.linspace(0, 1, 24).reshape(6, 4)


def dense(dtype=np.float64):
    return Sequential([ReLU(), Linear(16, 8), ReLU(), Linear(8, 4)], dtype=dtype)


def images():
    return Sequential([Conv2d(2, 3, 3), ReLU(), Flatten(), Linear(3 * 4 * 3, 4)], dtype=np.float64, input_shape=(6, 5, 2))


def one_output():
    return Sequential([Linear(16, 4), ReLU(), Linear(4, 1)], dtype=np.float64)


REFUSED = [  # network, loss, x, y, words
    (dense, SoftmaxCrossEntropy, np.ones((6, 20)), LABELS, "have the shape (20,) but the network takes (16,)"),
    (dense, SoftmaxCrossEntropy, X[:0], LABELS[:0], "the minibatch is empty"),
    (dense, SoftmaxCrossEntropy, X * 1j, LABELS, "x must hold real numbers"),
    (dense, SoftmaxCrossEntropy, X, LABELS[:1], "labels must have the shape (6,)"),
    (dense, SoftmaxCrossEntropy, X[:4], np.eye(4, dtype=int), "y.argmax(axis=1)"),
    (dense, SoftmaxCrossEntropy, X, LABELS * 1.0, "labels must be whole numbers"),
    (dense, SoftmaxCrossEntropy, X, (LABELS - 1).astype(np.int8), "that of sample 0 is -1"),
    (dense, SoftmaxCrossEntropy, X, ["a"] * 6, "y must hold real numbers"),
    (dense, MSE, X, TARGETS[:1], "targets must have the shape (6, 4)"),
    (one_output, MSE, X, TARGETS[:, :2], "targets must have the shape (6, 1)"),
    (images, SoftmaxCrossEntropy, np.ones((6, 7, 5, 2)), LABELS, "the shape (7, 5, 2) but the network takes (6, 5, 2)"),
]
CONVERTED = [  # network, loss, x, y, and x, y as they are meant
    (dense, SoftmaxCrossEntropy, X.tolist(), LABELS.tolist(), X, LABELS),
    (dense, SoftmaxCrossEntropy, X.astype(np.float32), LABELS.astype(np.uint8), X.astype(np.float32) * np.float64(1), LABELS),
    (dense, SoftmaxCrossEntropy, X > 0, LABELS > 1, (X > 0) * 1.0, (LABELS > 1).astype(int)),
    (one_output, MSE, X.tolist(), TARGETS[:, 0].tolist(), X, TARGETS[:, :1]),
]
