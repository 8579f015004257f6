"""JSON in texts and files that anyone may have written or damaged."""

import json

from gridgrad.nn.files import limits

# What a reader raises where a file has other content than it expects.
UNFIT = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError
BYTES_OF = {"[": 64, "{": 64, ",": 40, ":": 150}  # about those of the objects of Python that one of these means


def content_of(text):
    """The content of a JSON text, of str or bytes. Raises ValueError, with one line, for any other text.

    So it does for lists or objects within so many others that Python does not read them, and for more than it should hold.
    """
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
    """The content of a JSON file. Raises ValueError, which names the file, if it is none, and OSError if it can not be read."""
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
