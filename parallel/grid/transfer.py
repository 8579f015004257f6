"""Collectives that go on while the rank computes."""

import math

from mpi4py import MPI


class Transfer:
    """A collective of one or several rounds that was begun and is still under way.

    steps: a generator of MPI requests; it goes on when the last one that it gave is complete.
    bytes_sent: what this rank sends in all. The MPI library may move data only while it is called: so call `test` now
    and then. The seconds spent here count as communication, those under way are reported to the tally's observer.
    """

    def __init__(self, group, layer, kind, bytes_sent, steps):
        self.group, self.layer, self.kind, self.bytes_sent, self.steps = group, layer, kind, bytes_sent, steps
        self.clock = group.tally.clock
        self.started = self.clock.now()
        with group.tally.measure(group, layer, kind, bytes_sent, blocks=False):
            self._go_on()

    @property
    def done(self):
        return self.request is None

    def test(self):
        """Let it make progress; returns whether it is done."""
        if self.request is not None and self.clock.progresses:
            with self.group.tally.measure(self.group, self.layer, self.kind, 0, calls=0, blocks=False):
                while self.request is not None and self.request.Test():
                    self._go_on()
        return self.done

    def wait(self):
        """Return when it is done."""
        if self.request is not None:
            with self.group.tally.measure(self.group, self.layer, self.kind, 0, calls=0, blocks=False):
                while self.request is not None:
                    self.request.Wait()
                    self._go_on()

    def _go_on(self):
        self.request = next(self.steps, None)
        if self.request is None:
            self.stopped = self.clock.completed(self)
            self.group.tally.report_flight(self.group, self.layer, self.kind, self.bytes_sent, self.started, self.stopped)


class RequestSet:
    """Several MPI requests as one."""

    def __init__(self, requests):
        self.requests = requests

    def Test(self):
        return MPI.Request.Testall(self.requests)

    def Wait(self):
        MPI.Request.Waitall(self.requests)


class CompletedTransfer:
    """In a Transfer's place where there is nobody to talk to."""

    done, started, stopped = True, math.inf, -math.inf

    def test(self):
        return True

    def wait(self):
        pass
