"""What the comparisons of `bench` share: which cases take part, how long each may take, and timing several sides in turn."""

import math
import time
from statistics import median

from tqdm import tqdm

from experiments.common.options import number, whole
from parallel.job.run import UserError


class Clock:
    """Divides a time among comparisons: each gets an equal share of the time that is left."""

    def __init__(self, minutes, comparisons):
        self.end, self.comparisons = time.monotonic() + 60 * minutes, comparisons

    def share(self):
        """The moment, of `time.monotonic`, by which the next comparison should end."""
        now = time.monotonic()
        share = max(0.0, self.end - now) / max(1, self.comparisons)
        self.comparisons -= 1
        return now + share

    @property
    def minutes(self):
        """How many minutes are left."""
        return max(0.0, self.end - time.monotonic()) / 60


def add_comparison(parser):
    """Add the options that say what is compared, and for how long: see `compared`."""
    add = parser.add_argument
    add("--rounds", type=whole(1), default=11, help="rounds of each comparison, in each of which every side is timed")
    add("--only", default="", metavar="TEXT", help="compare only what has TEXT in its name ('%(default)s': all)")
    words = "stop after about so many minutes, if need be with fewer rounds; each comparison has at least one"
    add("--minutes", type=number(least=0), default=60.0, metavar="M", help=words)


def compared(cases, sides, seconds, args, unit):
    """{name of a case: its ratios, a round} of the cases that the options of `add_comparison` select.

    sides: a function that makes (ours, theirs, ..) for a case, and seconds: how long a side runs, as `ratios` takes them. unit:
    what the cases are, for the progress bar.
    """
    found, cases = {}, selected(cases, args.only)
    clock = Clock(args.minutes, len(cases))
    for case in tqdm(cases, unit=f" {unit}", delay=2, disable=None):
        ours, *theirs = sides(case)
        found[case.name] = ratios(ours, theirs, args.rounds, seconds, clock.share())
    return found


def ratios(ours, theirs, rounds, seconds, end=math.inf):
    """Our time over theirs, round by round: of each side the median of some steps, one side after another.

    ours: a function that does one step. theirs: a list of such functions; in each round the fastest
    of them counts. All have warmed up. seconds: about how long a side runs in a round. end: the moment after which no round
    begins.
    """
    sides = [(step, max(2, round(seconds / _median_seconds(step, 1)))) for step in (ours, *theirs)]
    found = []
    for _ in range(rounds):
        ours, *theirs = (_median_seconds(step, steps) for step, steps in sides)
        found.append(ours / min(theirs))
        if time.monotonic() > end:
            break
    return found


def _median_seconds(step, steps):
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def selected(cases, text):
    """The cases with `text` in their names; UserError if there are none."""
    found = [case for case in cases if text in case.name]
    if not found:
        raise UserError(f"--only: no comparison has '{text}' in its name; they are called such as '{cases[0].name}'")
    return found
