"""Non-blocking collectives, which proceed while the rank computes."""

import math

from mpi4py import MPI

from gridgrad.parallel.grid.tally import Call


class Transfer:
    """A non-blocking collective of one or several rounds, from its beginning until it is complete.

    group, layer, kind: whose it is and how it is counted. steps: a generator of MPI requests, one a round; it is resumed when
    the request that it yielded last is complete. bytes_sent: what this rank sends in all rounds together. messages: see
    `Record` of `parallel/grid/tally.py`.
    started, stopped: when it began and, once it is complete, when it was found complete; seconds of the tally's clock.

    An MPI library may move data only while one of its functions runs, so `test` should be called now and then. The seconds
    spent in the calls count as communication; the time under way is reported to the tally's observer.
    """

    def __init__(self, group, layer, kind, bytes_sent, steps, messages=0):
        self.group, self.layer, self.kind, self.bytes_sent, self.steps = group, layer, kind, bytes_sent, steps
        self.clock = group.tally.clock
        self.started = self.clock.now()
        with Call(group, kind, layer, bytes_sent, messages=messages):
            self._go_on()

    @property
    def done(self):
        """Whether it is complete; this neither advances it nor calls MPI."""
        return self.request is None

    def test(self):
        """Let the MPI library advance it, without waiting; return whether it is complete."""
        if self.request is not None:
            with Call(self.group, self.kind, self.layer, 0, calls=0):
                while self.request is not None and self.request.Test():
                    self._go_on()
        return self.done

    def wait(self):
        """Wait until it is complete."""
        if self.request is not None:
            with Call(self.group, self.kind, self.layer, 0, calls=0):
                while self.request is not None:
                    self.request.Wait()
                    self._go_on()

    def _go_on(self):
        """Begin the next round or, after the last one, note that the collective is complete."""
        self.request = next(self.steps, None)
        if self.request is None:
            self.stopped = self.clock.now()
            if told := self.group.tally.observer:
                told.flight(self.group, self.layer, self.kind, self.bytes_sent, self.started, self.stopped)


class RequestSet:
    """Several MPI requests that are tested and waited for together, like one request."""

    def __init__(self, requests):
        self.requests = requests

    def Test(self):
        """Whether all are complete, as `MPI.Request.Test`."""
        return MPI.Request.Testall(self.requests)

    def Wait(self):
        """Wait until all are complete, as `MPI.Request.Wait`."""
        MPI.Request.Waitall(self.requests)


class CompletedTransfer:
    """Takes the place of a Transfer where there is nothing to send: it is complete from the beginning."""

    done, started, stopped = True, math.inf, -math.inf

    def test(self):
        return True

    def wait(self):
        pass
