"""Progress of programs that run for minutes: a bar on a terminal, and elsewhere, as under mpiexec, a line now and then."""

import sys
import time

from tqdm import tqdm

SECONDS = 20.0  # between two lines


def progress(things, what, shown=True):
    """Go through `things`, which have a length, and show on stderr how far that is. what: what is done with them."""
    if not shown:
        yield from things
    elif sys.stderr.isatty():
        yield from tqdm(things, desc=what, delay=2)
    else:
        yield from _with_lines(things, what)


def _with_lines(things, what):
    start = said = time.monotonic()
    for done, thing in enumerate(things):
        now = time.monotonic()
        if now - said >= SECONDS:
            said = now
            print(f"{what}: {done} of {len(things)}, {(now - start) / 60:.1f} minutes", file=sys.stderr, flush=True)
        yield thing
