"""The durations of training steps, measured over the same steps as communication and reading."""

from contextlib import contextmanager

from gridgrad.parallel.observe.machine_load import Watch


class StepTimer:
    """Measures the training steps of this rank. It does not communicate.

    net: a ParallelSequential. reader: a MicroBatchReader. The tally of the grid, the reduction and the reader measure too;
    `start` resets them, so that all of them measure the same steps.
    seconds: the duration of each step since `start`. samples: the number of samples of their global minibatches in all.
    watch: a Watch of the machine since `start`.
    """

    def __init__(self, net, reader):
        self.net, self.reader = net, reader
        self.start()

    def start(self):
        """Discard all measurements so far and begin anew."""
        self.net.grid.tally.clear()
        self.net.reduction.clear()
        self.reader.clear()
        self.seconds, self.samples, self.watch = [], 0, Watch()

    @contextmanager
    def step(self, samples):
        """A `with` block around one training step on a global minibatch of `samples` samples."""
        start = self.net.grid.tally.clock.now()
        yield
        self.seconds.append(self.net.grid.tally.clock.now() - start)
        self.samples += samples

    @property
    def samples_per_step(self):
        """The mean number of samples in a global minibatch; 0 if there was no step."""
        return self.samples / max(len(self.seconds), 1)
