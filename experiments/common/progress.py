"""Progress of programs that run for minutes: a bar on a terminal, and elsewhere, as under mpiexec, a line now and then."""

import sys
import time

from tqdm import tqdm

SECONDS = 20.0  # between two lines


def progress(things, what, shown=True):
    """Iterate over `things`, which have a length, and show the progress on stderr. what: the words for what is done."""
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
