"""JSON and TOML that anyone may have written or damaged: reading it, and checking which entries it has and what they hold.

A form is one of the kinds below; or a dict, the forms of entries that an object must have, beside which there may be others; or
a list of one form, which every item of a list has; `Each(form)`, an object whose entries all have a form, whatever their names;
or `Optional(form)`, for an entry that may be missing or null.
"""

import json
import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass

from gridgrad.nn.files import limits

# What a reader raises where a file has other content than it expects.
UNFIT = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError
BYTES_OF = {"[": 64, "{": 64, ",": 40, ":": 150}  # about those of the objects of Python that one of these means
MOST_TOML = 1 << 20  # bytes of a TOML file, which somebody writes by hand
DOTS = 500  # in a line at most: for a name of parts with dots between them, tomllib takes memory and time as their square
LONGEST = 400  # characters of a text
MOST = 1 << 60  # of a count
GREATEST = 1e18  # of a measured number


def content_of(text):
    """The content of a JSON text, of str or bytes. ValueError, with one line, for any other text, for lists or objects within
    too many others, and for more than it should hold."""
    counts = {mark: text.count(mark if isinstance(text, str) else mark.encode()) for mark in BYTES_OF}
    held = len(text) + sum(BYTES_OF[mark] * count for mark, count in counts.items())
    if held > 4 * limits.BUDGET:
        raise ValueError(f"it would take about {limits.size(held)} of memory")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is not JSON: lists within too many others") from None
    except UnicodeDecodeError:
        raise ValueError("it is not JSON: bytes that are no text in UTF-8") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None


def content_of_file(path):
    """The content of a JSON file. ValueError, which names the file, if it is none; OSError if it can not be read."""
    text = limits.read_limited(path)
    try:
        return content_of(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def contents_of_lines(path):
    """Yields (number, content) of the lines of a file, from 1, each blank or a JSON text; ValueError naming file and line."""
    with open(path, "rb", opener=limits.ordinary) as file:
        for number, line in enumerate(limits.lines_of(file, path), 1):
            try:
                if line.strip():
                    yield number, content_of(line)
            except ValueError as error:
                raise ValueError(f"{path}: line {number}: {error}") from None


def content_of_toml_file(path):
    """The content of a TOML file. Raises ValueError, which names the file, if it is none, and OSError if it can not be read."""
    text = limits.read_limited(path, MOST_TOML)
    try:
        for number, line in enumerate(text.splitlines(), 1):
            if line.count(b".") > DOTS:
                raise ValueError(f"line {number} has more than {DOTS} dots: write a long list in several lines")
        return tomllib.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # of the syntax, of bytes that are not UTF-8, of lists in too many lists
        raise ValueError(f"{path} is no TOML file: {error}") from None


@dataclass(frozen=True)
class Kind:
    words: str  # what is accepted, for messages
    accepts: Callable  # whether a value is one of this kind


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
    """Raise ValueError, which names the entry, unless the content of a file has a form. where: the name of `value`."""
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
    if type(value) is int and abs(value) >= MOST:
        return "another one"
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:40]}.."
