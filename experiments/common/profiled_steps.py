"""What `train` looks at while it trains: a profile, a trace of some steps, or nothing."""

from contextlib import nullcontext


def watched(steps, first, profile=None, trace=None):
    """range(steps). From step `first` on the Profile is open, and in so many of these steps as it has, the Trace as well."""
    yield from range(first)
    last = min(steps, first + (trace.steps if trace else 0))
    with profile or nullcontext():
        with trace or nullcontext():
            yield from range(first, last)
        yield from range(last, steps)
