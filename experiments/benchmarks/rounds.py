"""What the comparisons of `bench` share: which cases take part, how long each may take, and timing several sides in turn.

A round in which others computed on the machine does not count and is made again (`experiments/common/machine_load.py`). Where
no round is without others, all of them are told and marked, and nothing is judged by them.
"""

import gc
import json
import math
import time
from dataclasses import dataclass
from statistics import median

from tqdm import tqdm

from gridgrad.experiments.common.machine_load import Watch, load_of_process
from gridgrad.experiments.common.options import number, whole
from gridgrad.parallel.job.run import UserError

CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
AGAIN = 2  # rounds that are made at most, over those that are asked for, where others compute


class OutOfTime(UserError):
    """A job was ended because the time of its comparison was over."""


class SharedTime:
    """Divides a time among comparisons: each gets a share of the time that is left, in proportion to its weight.

    end: the moment, of `time.monotonic`, when the time is over. weights: a number for each comparison, in their order.
    """

    def __init__(self, end, weights):
        self.end, self.weights = end, list(weights)

    def share(self):
        """The moment, of `time.monotonic`, by which the next comparison should end."""
        now = time.monotonic()
        part = self.weights[0] / sum(self.weights)
        del self.weights[0]
        return now + part * max(0.0, self.end - now)


def in_minutes(minutes):
    """The moment, of `time.monotonic`, that is so many minutes away."""
    return time.monotonic() + 60 * minutes


def seconds_until(end):
    """How many seconds a job may take that has to end at this moment: at least a little."""
    return max(0.1, end - time.monotonic())


def rounds_until(end, most):
    """Count rounds: at most so many, at least one, and no more once a round like the last would end after the moment `end`."""
    for count in range(most):
        start = time.monotonic()
        yield count
        if 2 * time.monotonic() - start > end:
            return


@dataclass(frozen=True)
class Rounds:
    """Measured rounds. counted: what each returned that counts. left_out: how many do not count, because others computed.

    busy: None, or if that was so in all rounds, what was taken, in words; then `counted` has them all the same.
    """

    counted: list
    left_out: int
    busy: str | None

    def marks(self):
        """The entries of ratios that say so, see `bench_table.row`."""
        return {"left_out": self.left_out, "busy": self.busy}


def sorted_out(found):
    """The Rounds of a list with (what a round returned, the verdict of the MachineLoad meanwhile)."""
    quiet = [result for result, busy in found if not busy]
    if quiet or not found:
        return Rounds(quiet, len(found) - len(quiet), None)
    return Rounds([result for result, _ in found], 0, found[-1][1])


def watched(measure, load_of=load_of_process):
    """(what a function returned, why times do not count that were measured meanwhile, in words, or None).

    load_of: a function that returns the MachineLoad for what this process has seen. A process that waits for the jobs that it
    starts has seen what they took.
    """
    watch = Watch()
    result = measure()
    load = load_of(watch.seen())
    return result, load and load.verdict


def quiet_rounds(measure, numbers, most, load_of=load_of_process):
    """The Rounds of a measurement, until so many are without others, `numbers` are over, or a job in one is OutOfTime.

    measure: a function that makes a round. numbers: an iterable with an item for each round at most. most: how many have to
    count. load_of: see `watched`.
    """
    found = []
    for _ in numbers:
        try:
            found.append(watched(measure, load_of))
        except OutOfTime:
            break
        if sum(not busy for _, busy in found) == most:
            break
    return sorted_out(found)


def add_comparison(parser):
    """Add the options that say what is compared, and for how long: see `compared`."""
    add = parser.add_argument
    add("--rounds", type=whole(1), default=9, help="rounds of each comparison, in each of which every side is timed")
    add("--only", default="", metavar="TEXT", help="compare only what has TEXT in its name ('%(default)s': all)")
    add("--quick", action="store_true", help="leave out what takes long: large networks and images")
    words = "stop after about so many minutes, if need be with fewer rounds"
    add("--minutes", type=number(least=0), default=15.0, metavar="M", help=words)


def comparison_options(args, minutes):
    """The options of `add_comparison` as a command line with another time."""
    quick = ["--quick"] if args.quick else []
    return ["--rounds", str(args.rounds), "--only", args.only, "--minutes", str(minutes), *quick]


def selected(cases, args):
    """The cases that --only and --quick leave; UserError if there are none."""
    found = [case for case in cases if args.only in case.name and not (args.quick and case.large)]
    if not found:
        kind = "comparison of a quick run" if args.quick else "comparison"
        raise UserError(f"--only: no {kind} has '{args.only}' in its name; they are called such as '{cases[0].name}'")
    return found


def compared(cases, sides, seconds, args, unit):
    """Print {name of a case: its `ratios`} as a line of JSON for each case that the options of `add_comparison` select.

    Each has at least one round. sides: a function that makes (ours, theirs, ..) for a case. seconds: how long a side runs, as
    `ratios` takes them. unit: what the cases are, for the progress bar.
    """
    cases = selected(cases, args)
    clock = SharedTime(in_minutes(args.minutes), [1] * len(cases))
    for case in tqdm(cases, unit=f" {unit}", delay=2, disable=None):
        steps = sides(case)
        print(json.dumps({case.name: ratios(steps, args.rounds, seconds, clock.share())}), flush=True)
        del steps
        gc.collect()  # layers and networks refer to each other, and the next case needs their memory


def ratios(sides, rounds, seconds, end=math.inf):
    """{"cpu", "wall": our time over theirs, round by round}: of each side the median of some steps, one side after another.

    sides: (ours, theirs, ..), functions that do one step each and have warmed up; in each round the fastest of theirs counts.
    "cpu" is the time that the processor worked for this process, "wall" the time that passed. seconds: about how long a side
    runs in a round, where that is more than one step. end: the moment by which the rounds should end; the first is in any case.
    Beside them are the marks of `Rounds`.
    """
    sides = [(step, max(1, round(seconds / step_seconds(step, 1)["wall"]))) for step in sides]

    def one_round():
        ours, *theirs = (step_seconds(step, steps) for step, steps in sides)
        return {clock: ours[clock] / min(medians[clock] for medians in theirs) for clock in CLOCKS}

    found = quiet_rounds(one_round, rounds_until(end, AGAIN * rounds), rounds)
    return {clock: [ratio[clock] for ratio in found.counted] for clock in CLOCKS} | found.marks()


def step_seconds(step, steps):
    """{"cpu", "wall": the median of so many steps}, in seconds."""
    found = {clock: [] for clock in CLOCKS}
    for _ in range(steps):
        starts = {clock: read() for clock, read in CLOCKS.items()}
        step()
        for clock, read in CLOCKS.items():
            found[clock].append(read() - starts[clock])
    return {clock: median(seconds) for clock, seconds in found.items()}
