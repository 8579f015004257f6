"""The largest first hidden layer with which a stacked autoencoder can be trained in a given memory (Marques 2016, table III).

Nothing is estimated: a process under this limit trains each autoencoder and the classifier for two steps, or fails to.
"""

import json
import subprocess
import sys

from experiments.autoencoder.two_steps import NO_MEMORY
from parallel.job.run import UserError

STEP = 50  # widths are multiples of this number, as in the paper
PROCESS = "from experiments.autoencoder.two_steps import main; main()"


def largest_width(nbytes, settings, say):
    """The largest width that fits `nbytes` bytes, found by doubling and halving. UserError if not even `STEP` fits.

    settings: for `experiments/autoencoder/two_steps.py`, but for the first hidden width. say: called with a line of text for
    each width that is tried.
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

    UserError if it fails for another reason than memory.
    """
    settings = json.dumps({"nbytes": nbytes, "width": width, **settings})
    finished = subprocess.run([sys.executable, "-c", PROCESS, settings], capture_output=True, text=True)
    if finished.returncode == 0:
        return True
    # A library that gets no memory may end the process by a signal.
    if finished.returncode == NO_MEMORY or finished.returncode < 0 or "memory" in finished.stderr.lower():
        return False
    last = (finished.stderr.strip().splitlines() or ["no message"])[-1]
    raise UserError(f"the steps with a first hidden layer of {width} fail: {last}")
