"""Early stopping: end the training when a validation loss has not improved for some epochs (Prechelt 1998)."""

import math


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
