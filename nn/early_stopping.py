"""Early stopping: end the training when a validation loss has not improved for some epochs (Prechelt 1998)."""

import math


class EarlyStopping:
    """Follows one value per epoch, where lower is better.

    patience: the number of epochs without an improvement after which to stop, at least 1. least: a value is an improvement
    if it is below the best one by more than this. Raises ValueError for values out of range.

    epochs: the number of values so far. best, best_epoch: the value of the last improvement and its epoch, counted from 1;
    infinity and 0 before the first one.
    """

    def __init__(self, patience, least=0.0):
        if patience < 1:
            raise ValueError(f"patience must be at least 1 epoch, not {patience}")
        if not 0 <= least < math.inf:
            raise ValueError(f"least must be at least 0 and finite, not {least}")
        self.patience, self.least = patience, least
        self.epochs, self.best, self.best_epoch = 0, math.inf, 0

    def see(self, value):
        """Record the value of the next epoch. Returns whether it is an improvement; NaN never is."""
        self.epochs += 1
        improved = value < self.best - self.least
        if improved:
            self.best, self.best_epoch = value, self.epochs
        return improved

    @property
    def stop(self):
        """Whether there has been no improvement for `patience` epochs."""
        return self.epochs - self.best_epoch >= self.patience
