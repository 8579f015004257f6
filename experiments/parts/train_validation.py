"""Validation: the loss on held-out samples is computed after each epoch, and may end training early."""

import math

from gridgrad.experiments.common.scatter_readers import READERS
from gridgrad.nn import EarlyStopping
from gridgrad.nn.observer import Observer
from gridgrad.parallel import evaluate
from gridgrad.parallel.checkpoint.state import State, copy_over


class Validation(Observer):
    """Evaluates a network on held-out samples after each epoch, and keeps its best weights.

    net: a ParallelSequential. part: the samples. loss: its name. reader: how the samples reach the ranks.
    patience: epochs without an improvement after which to stop, at least 1; None: never stop, and keep no weights.
    exchanged: whether the network has the best weights, and `best` those of the last step.

    `evaluate` gives the same loss on every rank, so all ranks take the same decision without communicating. Where the shares of
    the network change, it must be registered as an observer, so that the best weights move too.
    """

    def __init__(self, net, part, loss, reader, batch_size, patience=None):
        self.net, self.part, self.loss, self.batch_size = net, part, loss, batch_size
        self.reader = READERS[reader](net, part)
        self.early, self.losses = EarlyStopping(patience or math.inf), []
        self.patience, self.exchanged = patience, False
        self.best = [array.copy() for array in self._state()] if patience else None

    def see(self):
        """The loss on the held-out samples after one more epoch. Collective."""
        with self.net.grid.tally.set_aside():
            self.losses.append(evaluate(self.net, self.part, self.loss, self.reader, self.batch_size)["loss"])
        if self.early.see(self.losses[-1]) and self.best is not None:
            self._copy(self._state(), self.best)
        return self.losses[-1]

    def relocated(self, relocation):
        if self.best is not None:
            self.best = [relocation.flat(self.best[0]), *relocation.buffers(self.best[1:])]

    @property
    def stop(self):
        return self.early.stop

    @property
    def value(self):
        """The loss with the weights of the network; None if there was no validation yet."""
        return self.early.best if self.exchanged else self.losses[-1] if self.losses else None

    def exchange(self):
        """Give the network the best weights and keep its own ones, or the other way round. Collective."""
        own = [array.copy() for array in self._state()]
        with self.net.exclusive():
            self._copy(self.best, self._state())
        self.best, self.exchanged = own, not self.exchanged

    def expect(self, exchanged):
        """Called before `load`. exchanged: whether weights are exchanged in the state to come."""
        self.exchanged = exchanged
        if exchanged and self.best is None:
            self.best = [array.copy() for array in self._state()]

    def go_on(self):
        """Called before training goes on: the network has the weights of the last step. Collective."""
        if self.exchanged:
            self.exchange()
        if not self.patience:
            self.best = None

    def state(self):
        """What a checkpoint needs of it: a State."""
        early = self.early
        numbers = {"epochs": early.epochs, "best": finite(early.best), "best_epoch": early.best_epoch}
        if self.best is None:
            return State(numbers=numbers, logs={"losses": self.losses})
        best = {"best": (self.best[0], [slice(0, self.net.size)])}
        return State(best, buffers={"best_buffers": self.best[1:]}, numbers=numbers, logs={"losses": self.losses})

    def load(self, state):
        """Take over a state."""
        copy_over(state, self.state())
        numbers, early = state.numbers, self.early
        early.epochs, early.best_epoch = numbers["epochs"], numbers["best_epoch"]
        early.best = math.inf if numbers["best"] is None else numbers["best"]
        self.losses = state.logs["losses"].tolist()

    def _state(self):
        """The blocks held here of all that training changes: the parameters, and what the layers remember."""
        return [self.net.params, *(buffer.value for _, buffer in self.net.buffers)]

    @staticmethod
    def _copy(sources, targets):
        for source, target in zip(sources, targets):
            target[...] = source

    def report(self):
        """What a report says. Epochs count from 1; stopped_epoch is None where training ran to its end."""
        stopped = self.early.epochs if self.stop else None
        return {"validation": self.losses, "best_epoch": self.early.best_epoch, "stopped_epoch": stopped}


def finite(number):
    """A number, or None for infinity, which JSON does not have."""
    return number if math.isfinite(number) else None
