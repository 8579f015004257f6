"""Checks and conversions of arguments of constructors. All raise ValueError with a sentence that says what is accepted."""

from math import inf, isfinite
from numbers import Integral, Real

import numpy as np


def whole_number(value, what, least=1):
    """`value`, a whole number of at least `least`, as an int. NumPy's integers are accepted. what: its name in the message."""
    if not isinstance(value, Integral) or value < least:
        raise ValueError(f"{what} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def fraction(value, what):
    """`value`, a number of at least 0 and below 1. what: its name in the message."""
    if not isinstance(value, Real) or not 0 <= value < 1:
        raise ValueError(f"{what} must be a number in [0, 1), not {value!r}")
    return value


def above_zero(value, name):
    """`value`, a finite number above 0. name: its name in the message."""
    if not 0 < value < inf:
        raise ValueError(f"{name} must be above 0 and finite, not {value}")
    return value


def penalty_weight(value, name):
    """`value`, the weight of an l1 or l2 penalty: a finite number of at least 0. name: its name in the message."""
    if not isinstance(value, Real) or not isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}")
    return value


def seed_number(value):
    """A seed, a whole number in [0, 2^64), as an int."""
    if not isinstance(value, Integral) or not 0 <= value < 2**64:
        raise ValueError(f"seed must be a whole number of at least 0 and below 2^64, not {value!r}")
    return int(value)


def network_dtype(value):
    """`value`, which means float32 or float64, as a NumPy dtype of native byte order."""
    try:
        dtype = None if value is None else np.dtype(value)
    except TypeError:
        dtype = None
    if dtype is None or dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, not {value if dtype is None else dtype}")
    return np.dtype(dtype.type)


def sample_shape(value):
    """The shape of a sample as a tuple of ints. One number n means (n,); None, for an unknown shape, stays None."""
    if value is None:
        return None
    lengths = tuple(value) if isinstance(value, tuple | list) else (value,)
    if len(lengths) not in (1, 3) or not all(isinstance(n, Integral) and n >= 1 for n in lengths):
        raise ValueError(
            f"input_shape must be (features,) or (height, width, channels) in whole numbers of at least 1, not {value!r}"
        )
    return tuple(map(int, lengths))


def did_you_mean(word, names):
    """The words that suggest the one of some names that is most like a wrong one, if any is."""
    from difflib import get_close_matches  # late: few programs need it

    alike = get_close_matches(word, names, 1, 0.7)
    return f" (did you mean {alike[0]}?)" if alike else ""
