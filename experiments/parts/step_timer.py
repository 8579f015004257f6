"""The durations of training steps, measured over the same steps as communication, reading and the speed of the core."""

from contextlib import contextmanager

from gridgrad.experiments.common.machine_load import Watch


class StepTimer:
    """Measures the training steps of this rank. It does not communicate.

    net: a ParallelSequential. reader: a MicroBatchReader. The tally of the grid, the reduction and the reader measure too;
    `start` resets them, so that all of them measure the same steps.
    probe: a function without arguments that says how many seconds a reference computation takes on this core now; it runs
    between the steps, in no step's time. None if nobody asks for the speed of the core.
    seconds: the duration of each step since `start`. reference: what `probe` said around each of them, the mean of before and
    after; empty without one. samples: the number of samples of their global minibatches in all.
    watch: a Watch of the machine since `start`.
    """

    def __init__(self, net, reader, probe=None):
        self.net, self.reader, self.probe = net, reader, probe
        self.start()

    def start(self):
        """Discard all measurements so far and begin anew."""
        self.net.grid.tally.clear()
        self.net.reduction.clear()
        self.reader.clear()
        self.seconds, self.reference, self.samples, self.watch = [], [], 0, Watch()
        self._before = self.probe and self.probe()

    @contextmanager
    def step(self, samples):
        """A `with` block around one training step on a global minibatch of `samples` samples."""
        start = self.net.grid.tally.clock.now()
        yield
        self.seconds.append(self.net.grid.tally.clock.now() - start)
        self.samples += samples
        if self.probe:
            after = self.probe()
            self.reference.append((self._before + after) / 2)
            self._before = after

    @property
    def samples_per_step(self):
        """The mean number of samples in a global minibatch; 0 if there was no step."""
        return self.samples / max(len(self.seconds), 1)
