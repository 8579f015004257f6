"""A function in a thread of its own that runs only in turns with the thread that made it."""

import threading
from contextvars import copy_context


class Stopped(BaseException):
    """Raised within the function of a Coroutine that is stopped. It is no Exception, so that nobody handles it by mistake."""


class Coroutine(threading.Thread):
    """Runs function() in a thread of its own, but only while the thread that made it waits in `go_on`.

    Exactly one of the two runs at a time, so they need no other locks. Unlike a generator, the function can pause anywhere
    in what it calls. One turn takes two changes of threads.

    The function sees the context variables of its maker, such as how NumPy handles floating-point errors.

    ended: whether the function has returned or raised. result: what it returned.
    """

    def __init__(self, function):
        super().__init__(daemon=True)
        self._function, self._context, self._error, self._stopping = function, copy_context(), None, False
        self._inside, self._outside = threading.Lock(), threading.Lock()  # each is released to let that side run
        self._inside.acquire(), self._outside.acquire()
        self.ended, self.result = False, None
        self.start()

    def run(self):
        self._inside.acquire()
        try:
            if not self._stopping:
                self.result = self._context.run(self._function)
        except Stopped:
            pass
        except BaseException as error:  # it is raised again by `go_on`, in the thread that made this one
            self._error = error
        self.ended, self._function = True, None
        let(self._outside)

    def go_on(self):
        """Let the function run until it pauses or ends. Raises what it raises."""
        self._inside.release()
        self._outside.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def pause(self):
        """Called by the function: let the other thread run until it calls `go_on`. Raises Stopped if that calls `stop`."""
        if not self._stopping:
            self._outside.release()
            self._inside.acquire()
        if self._stopping:
            raise Stopped

    def is_current(self):
        """Whether this is the thread that asks."""
        return threading.get_ident() == self.ident

    def stop(self):
        """End the function where it has paused, and the thread."""
        self._stopping = True
        let(self._inside)
        self.join()


def let(lock):
    """Release a lock. An interrupt from the keyboard may have come when that was done already."""
    if lock.locked():
        lock.release()
