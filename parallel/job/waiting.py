"""Waiting for other ranks asleep, so that the cores are left to those that work.

A blocking function of MPI looks for its messages without a pause and takes a whole core, which may be that of the rank for
which it waits. Here a rank looks now and then, and sleeps in between: at first shortly, and then for a tenth of the time that
it has waited already. Collectives of a training step, to which all ranks come at about the same time, are not for this.
"""

import time
from math import inf
from types import SimpleNamespace

# In which collective or message this process is, for a watchdog, which runs in a thread of its own. calls: those entered and
# not left, with `group`, `layer` and `kind`, the innermost last. entered: how many were entered so far.
here = SimpleNamespace(calls=[], entered=0)
SHORTEST, LONGEST = 0.00005, 0.02  # seconds of a nap: of the first one, and at most
LONGER = 1.1  # each by this factor than the one before
ALONE = "what one rank does alone"


def sleep_until(condition, serve=lambda: False, longest=LONGEST, seconds=inf):
    """Whether condition() is true: as soon as it is, or after so many seconds. It is asked between naps.
    serve: called between naps, too; after it did something, naps are short again. longest: of the naps, in seconds."""
    nap, end = SHORTEST, time.monotonic() + seconds
    while not condition():
        if serve():
            nap = SHORTEST
        elif time.monotonic() > end:
            return False
        else:
            time.sleep(nap)
            nap = min(LONGER * nap, longest)
    return True


def meet(comm, what=ALONE):
    """A barrier in which ranks wait asleep, for `what` in a watchdog's words. Collective over `comm`.
    It is one MPI_Ibarrier: a rank that can work meanwhile may call `comm.Ibarrier()` itself and test the request."""
    here.entered += 1
    here.calls.append(SimpleNamespace(group=SimpleNamespace(ranks=range(comm.size)), layer=what, kind="barrier"))
    try:
        sleep_until(comm.Ibarrier().Test)
    finally:
        here.calls.pop()


def broadcast(comm, thing=None, root=0, what=ALONE):
    """What the rank `root` has as `thing`, on all ranks; those that come before it `meet` asleep. Collective over `comm`."""
    meet(comm, what)
    return comm.bcast(thing, root)
