"""When to stop training: once a validation loss has not improved for some epochs (Prechelt 1998)."""

import math


class EarlyStopping:
    """Watches one value an epoch, of which lower is better.

    patience: epochs without an improvement after which to stop, at least 1. least: an improvement is a fall below the
    best value by more than this. Raises ValueError for values out of range.

    epochs: how many values there have been. best, best_epoch: the lowest value, and its epoch, counted from 1
    (infinity and 0 before there is one). improved: whether the last value is an improvement. NaN never is.
    """

    def __init__(self, patience, least=0.0):
        if patience < 1:
            raise ValueError(f"patience must be at least 1 epoch, not {patience}")
        if not 0 <= least < math.inf:
            raise ValueError(f"least must be at least 0 and finite, not {least}")
        self.patience, self.least = patience, least
        self.epochs, self.best, self.best_epoch, self.improved = 0, math.inf, 0, False

    def see(self, value):
        """Take the value of the next epoch; returns whether it is an improvement."""
        self.epochs += 1
        self.improved = value < self.best - self.least  # false for NaN
        if self.improved:
            self.best, self.best_epoch = value, self.epochs
        return self.improved

    @property
    def stop(self):
        """Whether patience has run out."""
        return self.epochs - self.best_epoch >= self.patience
