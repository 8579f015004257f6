"""A function that runs only in turns with the code that made it."""

from contextvars import copy_context

from greenlet import GreenletExit, getcurrent, greenlet


class Coroutine:
    """Runs function(), but only while its maker waits in `go_on`.

    Unlike a generator, the function can pause anywhere in what it calls. It sees the context variables of its maker, such as
    how NumPy handles floating-point errors.

    ended: whether the function has returned or raised. result: what it returned.
    """

    def __init__(self, function):
        self._turn, self._stopping, self.result = greenlet(function), False, None
        self._turn.gr_context = copy_context()

    @property
    def ended(self):
        return self._turn.dead

    def go_on(self):
        """Let the function run until it pauses or ends. Raises what it raises."""
        self.result = self._turn.switch()

    def pause(self):
        """Called by the function: let its maker run until that calls `go_on`. Ends the function if it is stopped."""
        if not self._stopping:
            self._turn.parent.switch()
        if self._stopping:
            raise GreenletExit

    def is_current(self):
        """Whether it is this function that asks."""
        return getcurrent() is self._turn

    def stop(self):
        """End the function where it has paused."""
        self._stopping = True
        if not self.ended:
            self._turn.throw()
