"""The steps of a training during which a profile and a trace are open."""

from contextlib import nullcontext


def watched(steps, first, profile=None, trace=None):
    """Yield range(steps).

    The Profile is open from step `first` to the end, the Trace from step `first` for `trace.steps` steps.
    """
    yield from range(first)
    last = min(steps, first + (trace.steps if trace else 0))
    with profile or nullcontext():
        with trace or nullcontext():
            yield from range(first, last)
        yield from range(last, steps)
