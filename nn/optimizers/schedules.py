"""Learning-rate schedules: functions from the step, counted from 0, to the learning rate.

All raise ValueError for a learning rate that is not finite and above 0, and for other values out of range.
"""

import math
from collections.abc import Callable
from numbers import Real

Schedule = Callable[[int], float]
HELP = "cosine (to 0), constant or step:EVERY:FACTOR, with ,warmup:STEPS after it if wanted"


def constant(lr: float) -> Schedule:
    """The same learning rate at every step."""
    _check(lr)
    return lambda step: lr


def stepwise(lr, every, factor):
    """Start with lr, and multiply it by `factor` after every `every` steps."""
    _check(lr)
    if every < 1 or not 0 < factor < math.inf:
        raise ValueError(f"schedule: step:{every}:{factor} needs at least 1 step and a finite factor above 0")

    def rate(step):
        try:
            return lr * factor ** (step // every)
        except OverflowError:  # the loss is not finite either by then, and that is said with the reason
            return math.inf

    return rate


def cosine(lr, steps):
    """Half a period of a cosine, from lr at step 0 to 0 at step `steps`; 0 after that (Loshchilov and Hutter, ICLR 2017)."""
    _check(lr)
    return lambda step: lr * 0.5 * (1 + math.cos(math.pi * min(step / max(steps, 1), 1)))


def warmup(schedule, steps):
    """`schedule` times a factor that rises linearly to 1 in the first `steps` steps (Goyal et al. 2017, section 2.2)."""
    if steps < 0:
        raise ValueError(f"warm-up: the number of steps must be at least 0, not {steps}")
    return lambda step: schedule(step) * min((step + 1) / (steps + 1), 1)


def _check(lr):
    if not isinstance(lr, Real) or not (lr > 0 and math.isfinite(lr)):
        raise ValueError(f"the learning rate must be above 0 and finite, not {lr!r}")


def parse(text, lr, total_steps):
    """The schedule of an option (HELP); cosines reach 0 at `total_steps`. ValueError says what is accepted."""
    unknown = ValueError(f"unknown schedule '{text}': use {HELP}")

    def number(kind, word):
        try:
            return kind(word)
        except ValueError:
            raise unknown from None

    head, _, tail = text.partition(",")
    match head.split(":"):
        case ["constant"]:
            schedule = constant(lr)
        case ["step", every, factor]:
            schedule = stepwise(lr, number(int, every), number(float, factor))
        case ["cosine"]:
            schedule = cosine(lr, total_steps)
        case _:
            raise unknown
    match tail.split(":"):
        case [""]:
            return schedule
        case ["warmup", steps]:
            return warmup(schedule, number(int, steps))
    raise unknown
