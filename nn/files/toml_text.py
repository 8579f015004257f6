"""TOML in files that anyone may have written or damaged."""

import tomllib

from gridgrad.nn.files import limits

MOST = 1 << 20  # bytes of a file, which somebody writes by hand
DOTS = 500  # in a line at most: for a name of parts with dots between them, tomllib takes memory and time as their square


def content_of_file(path):
    """The content of a TOML file. Raises ValueError, which names the file, if it is none, and OSError if it can not be read."""
    text = limits.read_limited(path, MOST)
    try:
        for number, line in enumerate(text.splitlines(), 1):
            if line.count(b".") > DOTS:
                raise ValueError(f"line {number} has more than {DOTS} dots: write a long list in several lines")
        return tomllib.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # of the syntax, of bytes that are not UTF-8, of lists in too many lists
        raise ValueError(f"{path} is no TOML file: {error}") from None
