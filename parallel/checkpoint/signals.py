"""Signals that ask a training for a checkpoint and an end: SIGTERM, and SIGUSR1, which Slurm can send before the time limit."""

import signal


class Signals:
    """Notes SIGTERM and SIGUSR1 while it listens. Without that they end the process at once.

    heard: whether one of them has come.
    """

    def __init__(self):
        self.heard, self._before = False, {}

    def listen(self):
        """Note these signals from now on."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            self._before[number] = signal.signal(number, self._hear)

    def listen_no_more(self):
        """They mean again what they meant before `listen`."""
        while self._before:
            signal.signal(*self._before.popitem())

    def nothing_left(self):
        """There is nothing left to save: SIGTERM ends the process again, and SIGUSR1, which only warns, means nothing."""
        if self._before:
            self.listen_no_more()
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    def _hear(self, number, frame):
        self.heard = True
