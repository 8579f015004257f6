"""Schedules of learning rates. All raise ValueError for a rate that is not finite and above 0, and for values out of range."""

import math
from collections.abc import Callable
from numbers import Real

Schedule = Callable[[int], float]  # from the step, counted from 0, to the learning rate
SCHEDULES = "cosine (to 0), constant or step:EVERY:FACTOR, with ,warmup:STEPS after it if wanted"


def constant(lr: float) -> Schedule:
    """A schedule: the same learning rate at every step.

    Parameters
    ----------
    lr : float
        The rate.

    Returns
    -------
    A function from the step, counted from 0, to the rate.

    Examples
    --------
    >>> from gridgrad.nn import constant
    >>> constant(0.1)(7)
    0.1
    """
    _check_rate(lr)
    return lambda step: lr


def stepwise(lr: float, every: int, factor: float) -> Schedule:
    """A schedule that is multiplied by a factor now and then.

    Parameters
    ----------
    lr : float
        The rate at first.
    every : int
        Steps between two changes.
    factor : float
        Above 0.

    Returns
    -------
    A function from the step, counted from 0, to the rate.

    Examples
    --------
    >>> from gridgrad.nn import stepwise
    >>> [stepwise(1.0, every=2, factor=0.5)(step) for step in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    _check_rate(lr)
    if every < 1 or not 0 < factor < math.inf:
        raise ValueError(f"schedule: step:{every}:{factor} needs at least 1 step and a finite factor above 0")

    def rate(step):
        try:
            return lr * factor ** (step // every)
        except OverflowError:  # the loss is not finite either by then, and that is said with the reason
            return math.inf

    return rate


def cosine(lr: float, steps: int) -> Schedule:
    """A schedule: half a period of a cosine, and 0 after that (Loshchilov and Hutter, ICLR 2017).

    Parameters
    ----------
    lr : float
        The rate at step 0.
    steps : int
        The step at which it is 0.

    Returns
    -------
    A function from the step, counted from 0, to the rate.

    Examples
    --------
    >>> from gridgrad.nn import cosine
    >>> [round(cosine(1.0, steps=4)(step), 3) for step in range(6)]
    [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """
    _check_rate(lr)
    return lambda step: lr * 0.5 * (1 + math.cos(math.pi * min(step / max(steps, 1), 1)))


def warmup(schedule: Schedule, steps: int) -> Schedule:
    """A schedule times a factor that rises linearly to 1 (Goyal et al. 2017, section 2.2).

    Parameters
    ----------
    schedule : function
        From a step to a rate.
    steps : int
        Of the warm-up.

    Returns
    -------
    A function from the step, counted from 0, to the rate.

    Examples
    --------
    >>> from gridgrad.nn import constant, warmup
    >>> [warmup(constant(1.0), steps=3)(step) for step in range(5)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    if steps < 0:
        raise ValueError(f"warm-up: the number of steps must be at least 0, not {steps}")
    return lambda step: schedule(step) * min((step + 1) / (steps + 1), 1)


def _check_rate(lr):
    if not isinstance(lr, Real) or not (lr > 0 and math.isfinite(lr)):
        raise ValueError(f"the learning rate must be above 0 and finite, not {lr!r}")


def parse_schedule(text: str, lr: float, total_steps: int) -> Schedule:
    """The schedule that a text names, as --schedule takes it.

    Parameters
    ----------
    text : str
        "cosine", "constant" or "step:EVERY:FACTOR", with ",warmup:STEPS" behind it if wanted; else ValueError.
    lr : float
        The rate with which it begins.
    total_steps : int
        Where a cosine reaches 0.

    Returns
    -------
    A function from the step, counted from 0, to the rate.

    Examples
    --------
    >>> from gridgrad.nn import parse_schedule
    >>> [parse_schedule("step:2:0.1,warmup:1", 1.0, total_steps=9)(step) for step in range(3)]
    [0.5, 1.0, 0.1]
    """
    unknown = ValueError(f"unknown schedule '{text}': use {SCHEDULES}")

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
