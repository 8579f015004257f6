"""Seconds of training steps, measured together with the communication and the reading within them."""

from contextlib import contextmanager


class StepTimer:
    """Measures steps, on each rank by itself: the seconds and the samples of each since `start`.

    net: a ParallelSequential. reader: a `MicroBatchReader`, whose `seconds`, as the records of the grid's tally and what the
    reduction measures, are then of the same steps.
    """

    def __init__(self, net, reader):
        self.net, self.reader = net, reader
        self.start()

    def start(self):
        """Begin to measure; what was measured before is forgotten."""
        self.net.grid.tally.clear()
        self.net.reduction.clear()
        self.reader.clear()
        self.seconds, self.samples = [], 0

    @contextmanager
    def step(self, samples):
        """Around one step, on a global minibatch of so many samples."""
        start = self.net.grid.tally.clock.now()
        yield
        self.seconds.append(self.net.grid.tally.clock.now() - start)
        self.samples += samples

    @property
    def samples_per_step(self):
        return self.samples / len(self.seconds)
