"""JSON in texts and files that anyone may have written or damaged."""

import json
from pathlib import Path

# What code raises that is given other content than it was written for.
UNFIT = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError


def content_of(text):
    """The content of a JSON text, of str or bytes. Raises ValueError, with one line, for any other text.

    So it does for lists or objects within so many others that Python does not read them.
    """
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
    try:
        return content_of(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def contents_of_lines(path):
    """Yields (number, content) of the lines of a file, from 1, each blank or a JSON text; ValueError naming file and line."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                if line.strip():
                    yield number, content_of(line)
            except ValueError as error:
                raise ValueError(f"{path}: line {number}: {error}") from None
