"""Learning-rate schedules: functions from the step (counted from 0) to the learning rate."""

import math
from numbers import Real

HELP = "cosine (to 0), constant or step:EVERY:FACTOR, with ,warmup:STEPS after it if wanted"


def constant(lr):
    """lr at every step."""
    _check(lr)
    return lambda step: lr


def stepwise(lr, every, factor):
    """lr, multiplied by `factor` after each `every` steps."""
    _check(lr)
    if every < 1 or not 0 < factor < math.inf:
        raise ValueError(f"schedule: step:{every}:{factor} needs at least 1 step and a finite factor above 0")
    return lambda step: lr * factor ** (step // every)


def cosine(lr, steps):
    """From lr at step 0 along half a cosine to 0 at step `steps`, and 0 from there on."""
    _check(lr)
    return lambda step: lr * 0.5 * (1 + math.cos(math.pi * min(step / max(steps, 1), 1)))


def warmup(schedule, steps):
    """`schedule` times a ramp that rises linearly to 1 over the first `steps` steps (Goyal et al. 2017)."""
    if steps < 0:
        raise ValueError(f"warm-up: the number of steps must be at least 0, not {steps}")
    return lambda step: schedule(step) * min((step + 1) / (steps + 1), 1)


def _check(lr):
    if not isinstance(lr, Real) or not (lr > 0 and math.isfinite(lr)):
        raise ValueError(f"the learning rate must be above 0 and finite, not {lr!r}")


def parse(text, lr, total_steps):
    """The schedule that the command line names.

    text: "constant", "step:EVERY:FACTOR" or "cosine", each with ",warmup:STEPS" after it if wanted.
    total_steps: where the cosine ends. Raises ValueError with what is accepted.
    """
    head, _, tail = text.partition(",")
    try:
        name, *arguments = head.split(":")
        if name == "constant" and not arguments:
            schedule = constant(lr)
        elif name == "step" and len(arguments) == 2:
            schedule = stepwise(lr, int(arguments[0]), float(arguments[1]))
        elif name == "cosine" and not arguments:
            schedule = cosine(lr, total_steps)
        else:
            raise ValueError
        if tail:
            name, steps = tail.split(":")
            if name != "warmup":
                raise ValueError
            schedule = warmup(schedule, int(steps))
    except ValueError as error:
        if str(error).startswith(("the learning", "schedule:", "warm-up:")):
            raise
        raise ValueError(f"unknown schedule '{text}': use {HELP}") from None
    return schedule
