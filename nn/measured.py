"""What is measured once: trials take turns, and the answer is stored for later runs.

Every answer is a JSON file of its own in the cache folder, whose name says what it is and, by a checksum, all that it depends
on: the processor, the libraries, the number of ranks. Anyone may have damaged such a file, so that each reader checks it.
"""

import os
import sys
import time
import zlib
from pathlib import Path

import numpy as np
from platformdirs import user_cache_path

from gridgrad.nn.files.limits import read_limited
from gridgrad.nn.files.whole_files import write_text


def timed(action, times=1, clock=None):
    """A trial: a function that runs an action so many times and returns the seconds of one of them, by default of real time."""

    def run():
        now = clock or time.perf_counter
        start = now()
        for _ in range(times):
            action()
        return max((now() - start) / times, 1e-12)

    return run


def in_turns(trials, most=None, is_over=lambda: False, meet=lambda: None, first=None):
    """What the trials return, (turns, trials): at least one turn, at most `most`, and no further one once `is_over()`. Trials
    that take turns are slowed down alike by what else runs on the machine. meet: is called before each trial. first: the number
    of the trial that begins the first turn; then each turn begins with another one."""
    turns = []
    while not turns or len(turns) != most and not is_over():
        turn, start = [None] * len(trials), 0 if first is None else first + len(turns)
        for number in range(len(trials)):
            meet()
            place = (start + number) % len(trials)
            turn[place] = trials[place]()
        turns.append(turn)
    return np.array(turns)


def answer_file(what, *key):
    """The path of a stored answer, which may not exist. what: begins its name. key: all that the answer depends on.
    It is in GRIDGRAD_CACHE if that is set, else in the user's cache directory."""
    folder = Path(os.environ.get("GRIDGRAD_CACHE") or user_cache_path("gridgrad"))
    return folder / f"{what}-{zlib.crc32(repr(key).encode()):08x}.json"


def stored(path, read):
    """What `read` makes of the bytes of a stored answer; None if there is no such file, or if `read` raises ValueError."""
    try:
        return read(read_limited(path))
    except (OSError, ValueError):
        return None


def store(path, text, without):
    """Write an answer; where that fails, print a warning. without: what the user gets without it."""
    try:
        write_text(path, text)
    except OSError as error:
        print(f"can not write {path} ({error.strerror}): {without}", file=sys.stderr)
