"""Tables of numbers in text files, read in chunks and checked line by line where something is wrong."""

import csv
import math
import re
import warnings
from itertools import islice

import numpy as np
from tqdm import tqdm

from gridgrad.nn.files import limits

CHUNK = 50_000  # lines at most, and no more of them than have a few million characters
REMEDY = "mend that line, or fetch the file anew"
SHOWN = 40  # characters of what is no number
FOLLOWING = 100  # lines behind the first one that tell what it is
NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")  # less than float() takes, such as 1_000


def opened(path):
    """The text file. Bytes that are no UTF-8 become marks that are no numbers."""
    return open(path, encoding="utf-8-sig", errors="replace", opener=limits.ordinary)


def lines_of(file):
    """Yields the lines of an open text file; ValueError for one that is too long."""
    return limits.lines_of(file, file.name, limits.longest_text())


def some(lines, most):
    """The next of the `lines`, at most so many, and no more than can be taken apart at once."""
    found, length = [], 0
    for line in islice(lines, most):
        found.append(line)
        length += len(line)
        if length >= limits.longest_text():
            break
    return found


def read_table(path, columns, skip=0, max_rows=None):
    """The numbers of a whitespace-separated text file as float64, (rows, columns), as `read_chunks` takes and refuses them."""
    chunks = []
    with tqdm(total=max_rows, desc=f"reading {path.name}", unit=" rows", delay=2, disable=None) as bar:
        for chunk in read_chunks(path, columns, skip=skip, max_rows=max_rows):
            chunks.append(chunk)
            bar.update(len(chunk))
    return np.concatenate(chunks) if chunks else np.empty((0, columns))


def head(path):
    """(words of the first line, the mark between them or None for white space, lists of the words of some more lines)."""
    with opened(path) as file:
        lines = some(lines_of(file), 1 + FOLLOWING) or [""]
    first = lines[0].lstrip("# ")  # the mark in front of names that NumPy writes
    if not first.strip():
        raise ValueError(f"{path}: the first line is empty; begin with the names of the columns, or with numbers")
    bare = re.sub('"[^"]*"', "", first)
    delimiter = next((mark for mark in ";\t," if mark in bare), None)
    try:
        found = [split(line, delimiter) for line in (first, *lines[1:]) if not is_blank(line, delimiter)]
    except csv.Error as error:
        raise ValueError(f"{path}: one of the first lines holds no names of columns and no numbers ({error})") from None
    return [word.strip() for word in found[0]], delimiter, found[1:]


def split(line, delimiter):
    """The words of a line; csv.Error if they can not be told apart, such as behind quotes that do not close."""
    if delimiter is None:
        return ["".join(word) for word in re.findall('"([^"]*)"|(\\S+)', line)]
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True))


def is_blank(line, delimiter):
    """Whether a line has nothing, not even marks between missing values."""
    return not line.strip(None if delimiter is None else " \r\n")


def read_chunks(path, columns, delimiter=None, skip=0, max_rows=None, names=None):
    """Yields the numbers of a text file, some thousand lines at a time: float64, (rows, columns).

    delimiter: between two numbers, by default white space. skip: header lines. max_rows: stop there. names: of the columns, for
    messages. Empty lines are passed over. Raises ValueError naming file and line for a line that does not have `columns` finite
    numbers.
    """
    line, rows = skip, 0
    with opened(path) as file:
        lines = lines_of(file)
        for _ in islice(lines, skip):
            pass
        while found := some(lines, CHUNK if max_rows is None else min(CHUNK, max_rows - rows)):
            chunk = _numbers(path, found, columns, delimiter, line + 1, names)
            line += len(found)
            rows += len(chunk)
            yield chunk


def count_rows(path, delimiter, skip):
    """How many rows `read_chunks` finds behind the header."""
    with opened(path) as file:
        return sum(1 for text in islice(lines_of(file), skip, None) if not is_blank(text, delimiter))


def _numbers(path, lines, columns, delimiter, first, names):
    """The numbers of some lines; if they are wrong, a slower search finds the line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy's, where all lines are empty
            table = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)
        if table.shape[1] == columns and np.isfinite(table).all():
            return table
    except (UserWarning, ValueError):
        pass
    good = []
    for line, text in enumerate(lines, first):
        if is_blank(text, delimiter):
            continue
        try:
            words = split(text, delimiter)
        except csv.Error as error:
            raise ValueError(f"{path}: line {line} has no numbers that can be told apart ({error}); {REMEDY}") from None
        if len(words) != columns:
            raise ValueError(f"{path}: line {line} has {len(words)} columns, expected {columns}; {REMEDY}")
        good.append([number(word) for word in words])
        if None in good[-1]:
            i = good[-1].index(None)
            named = f" ({names[i]})" if names else ""
            what = f"{shown(words[i])}, in column {i}, counted from 0{named}"
            raise ValueError(f"{path}: line {line} holds {what}, where a finite number must be; {REMEDY}")
    return np.array(good).reshape(-1, columns)


def number(word):
    """The finite number that a word is, or None."""
    value = float(word) if NUMBER.fullmatch(word) else math.inf
    return value if math.isfinite(value) else None


def shown(word):
    """A word in a message."""
    text = printable(" ".join(word[:SHOWN].split()))
    return f"'{text}'" if text else "nothing"


def printable(word):
    """A word whose control characters, which a terminal might obey, are question marks."""
    return "".join(letter if letter.isprintable() else "?" for letter in word)
