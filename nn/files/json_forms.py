"""Checks that the content of a JSON or TOML file has a form, before it is used: which entries it has, and what they hold.

A form is one of the kinds below; or a dict, the forms of entries that an object must have, beside which there may be others; or
a list of one form, which every item of a list has; `Each(form)`, an object whose entries all have a form, whatever their names;
or `Optional(form)`, for an entry that may be missing or null.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

LONGEST = 400  # characters of a text
MOST = 1 << 60  # of a count
GREATEST = 1e18  # of a measured number


@dataclass(frozen=True)
class Kind:
    """words: what is accepted, for messages. accepts: a function that returns whether a value is one of this kind."""

    words: str
    accepts: Callable


@dataclass(frozen=True)
class Optional:
    form: object


@dataclass(frozen=True)
class Each:
    form: object


def is_number(value):
    return type(value) in (int, float) and abs(value) <= GREATEST and math.isfinite(value)


def _is_text(value):
    return isinstance(value, str) and len(value) <= LONGEST and value.isprintable() and "$" not in value


TEXT = Kind(f"a text of at most {LONGEST} printable characters without $", _is_text)  # $ begins a formula in a figure
TRUTH = Kind("true or false", lambda value: isinstance(value, bool))
WHOLE = Kind("a whole number of at least 1", lambda value: type(value) is int and 1 <= value <= MOST)
COUNT = Kind("a whole number of at least 0", lambda value: type(value) is int and 0 <= value <= MOST)
NUMBER = Kind("a finite number", is_number)
AT_LEAST_0 = Kind("a finite number of at least 0", lambda value: is_number(value) and value >= 0)
SECONDS = Kind("a number of seconds above 1e-12", lambda value: is_number(value) and value > 1e-12)
PLAIN = Kind("a text, a number, true or false", lambda value: any(kind.accepts(value) for kind in (TEXT, TRUTH, NUMBER)))


def check(value, form, where="it"):
    """Raise ValueError, which names the entry, unless the content of a JSON file has a form. where: the name of `value`."""
    if isinstance(form, Optional):
        if value is not None:
            check(value, form.form, where)
    elif isinstance(form, Each):
        if isinstance(value, dict) and (odd := next((name for name in value if not name.isprintable()), None)) is not None:
            raise ValueError(f"{where} has an entry whose name can not be printed: {shortened(odd)}")
        check(value, {} if not isinstance(value, dict) else dict.fromkeys(value, form.form), where)
    elif isinstance(form, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be an object")
        for name, inner in form.items():
            if name not in value and not isinstance(inner, Optional):
                raise ValueError(f"{where} has no entry {name}")
            check(value.get(name), inner, f"{where}.{name}".removeprefix("it."))
    elif isinstance(form, list):
        if not isinstance(value, list):
            raise ValueError(f"{where} must be a list")
        for number, item in enumerate(value):
            check(item, form[0], f"{where}[{number}]")
    elif not form.accepts(value):
        raise ValueError(f"{where} must be {form.words}, not {shortened(value)}")


def shortened(value):
    """A value in a message."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = (
        ascii(value) if isinstance(value, str) else str(value) if type(value) is not int or abs(value) < MOST else "another one"
    )
    return text if len(text) <= 40 else f"{text[:40]}.."
