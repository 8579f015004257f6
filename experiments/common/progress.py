"""Progress of programs that run for minutes, with the time left: a bar on a terminal, and elsewhere a line now and then."""

import sys
import time

from tqdm import tqdm

SECONDS = 20.0  # between two lines
BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt} of {total_fmt}, {elapsed}{postfix}"


def progress(things, what, shown=True, end=None):
    """Iterate over `things`, which have a length, and show on stderr how many of them are done and how much time is left."""
    if not shown:
        yield from things
        return
    start = said = time.monotonic()
    with tqdm(total=len(things), desc=what, bar_format=BAR, disable=not sys.stderr.isatty()) as bar:
        for done, thing in enumerate(things):
            now = time.monotonic()
            left = ""
            if done:
                seconds = (now - start) * (len(things) / done - 1) if end is None else max(0.0, end - now)
                left = f"{seconds / 60:.1f} minutes left"
            bar.set_postfix_str(left, refresh=False)
            if bar.disable and now - said >= SECONDS:
                said = now
                print(f"{what}: {done} of {len(things)}, {(now - start) / 60:.1f} minutes, {left}", file=sys.stderr, flush=True)
            yield thing
            bar.update()
