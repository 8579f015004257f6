"""The largest first hidden layer with which a stacked autoencoder can be trained in a given memory (Marques 2016, table III).

Nothing is estimated: a process under this limit trains each autoencoder and the classifier for two steps, or fails to
(`two_steps.py`).
"""

import json
import re
import signal
import subprocess
import sys

from gridgrad.experiments.common.programs import as_module
from gridgrad.parallel.job.run import UserError

STEP = 50  # widths are multiples of this number, as in the paper
TIMEOUT = 1800  # seconds
# What our programs, Python, the loader of libraries and OpenBLAS say last where there is too little memory.
NO_MEMORY = "not enough memory|MemoryError|Cannot allocate|failed to map|Memory allocation still failed"
PROCESS = as_module("studies.autoencoder.two_steps")


def largest_width(nbytes, settings, say):
    """The largest width that fits `nbytes` bytes, found by doubling and halving. UserError if not even `STEP` fits.

    settings: for `two_steps.py`, but for the first hidden width. say: called with a line of text for each width that is tried.
    """

    def tried(units):
        fit = fits(units * STEP, nbytes, settings)
        say(f"first hidden layer of {units * STEP}: {'fits' if fit else 'does not fit'}")
        return fit

    if not tried(1):
        raise UserError(f"not even a first hidden layer of {STEP} fits {nbytes / 2**30:.3g} GiB, of which Python takes a part: "
                        "give more to --largest-width, or a smaller --batch-size")  # fmt: skip
    good, bad = 1, 2
    while tried(bad):
        good, bad = bad, 2 * bad
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if tried(middle) else (good, middle)
    return good * STEP


def fits(width, nbytes, settings):
    """Whether a process that may have `nbytes` bytes of memory of its own can train with this first hidden width.

    UserError if it fails for another reason than memory, or does not end.
    """
    settings = json.dumps({"nbytes": nbytes, "width": width, **settings})
    try:
        finished = subprocess.run(
            [sys.executable, *PROCESS, settings], capture_output=True, text=True, errors="replace", timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"two steps with a first hidden layer of {width} did not end within {TIMEOUT} seconds") from None
    if finished.returncode == 0:
        return True
    last = (finished.stderr.strip().splitlines() or [f"status {finished.returncode}, no message"])[-1].removeprefix("[rank 0] ")
    if finished.returncode == -signal.SIGKILL or re.search(NO_MEMORY, last):
        return False
    raise UserError(f"two steps with a first hidden layer of {width} fail: {last}")
