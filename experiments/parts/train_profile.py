"""The turns of a training during which a profile and a trace are open."""

from contextlib import nullcontext
from itertools import islice


def watched(turns, first, profile=None, trace=None):
    """Yield from an iterator.

    The Profile is open from turn `first` to the end, the Trace from turn `first` for `trace.steps` turns.
    """
    yield from islice(turns, first)
    with profile or nullcontext():
        with trace or nullcontext():
            yield from islice(turns, trace.steps if trace else 0)
        yield from turns
