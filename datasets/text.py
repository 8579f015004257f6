"""Tables in text files (CSV, TSV, white space): read some lines at a time, and searched line by line where one is wrong.

The columns that are wanted hold numbers, except one that may hold the names of classes. The first line may name the columns.
"""

import codecs
import csv
import math
import re
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from tqdm import tqdm

from gridgrad.nn.files import limits

CHUNK = 50_000  # lines at most, and no more of them than have a few million characters
FINITE, REMEDY = "a finite number", "mend that line, or fetch the file anew"
SHOWN = 40  # characters of what is no number
FOLLOWING = 100  # lines behind the first one that tell what it is
NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eEdD][+-]?[0-9]+)?\s*")  # less than float() takes, such as 1_000
MISSING = "na", "n/a", "nan", "null", "none", "nil", "missing", "inf", "infinity"
COUNTED = ["0", "1"], ["1", "2"]
NAMED = "the names of the columns (add names=no if it is a sample)"
UNNAMED = "a sample (add names=yes if it names the columns)"


@dataclass(frozen=True)
class Text:
    """A table in a text file: `width` columns with the delimiter between them, None for white space; `skip` lines in front.

    names: of the columns, or None. head: the words of the first samples. note: what was guessed, for the user.
    """

    path: Path
    delimiter: str | None
    width: int
    names: tuple[str, ...] | None = None
    skip: int = 0
    head: tuple[list[str], ...] = ()
    note: str = ""

    def has_words(self, column, is_word):
        """Whether most of the first samples have in this column what `is_word` takes for a word."""
        return 2 * sum(column < len(words) and is_word(words[column]) for words in self.head) > len(self.head)

    def rows(self):
        """How many there are."""
        with opened(self.path, self.skip) as lines:
            return sum(not is_blank(line, self.delimiter) for line in lines)

    def words(self, column, is_word, most):
        """The different words of a column, in alphabetical order; when there are more than `most`, no more are looked for."""
        found = set()
        with opened(self.path, self.skip) as lines:
            for number, line in enumerate(lines, self.skip + 1):
                if is_blank(line, self.delimiter):
                    continue
                word = self.split(number, line)[column].strip()
                if not is_word(word):
                    raise ValueError(self.wrong(number, column, word, "the name of a class"))
                found.add(word)
                if len(found) > most:
                    break
        return sorted(found)

    def blocks(self, needed=None, labels=None, most=None):
        """Yields the rows, at most so many, as float64, (rows, width). ValueError, with the line, for one that has none.

        needed: the numbers of the columns that are read; the others become 0. labels: {column: {word: label}}.
        """
        unread = [column for column in range(self.width) if needed is not None and column not in needed]
        readers = {column: words.__getitem__ for column, words in (labels or {}).items()} | dict.fromkeys(unread, lambda _: 0.0)
        line, rows = self.skip, 0
        with opened(self.path, self.skip) as lines:
            while found := some(lines, CHUNK if most is None else min(CHUNK, most - rows)):
                chunk = self.numbers(found, line + 1, readers)
                line, rows = line + len(found), rows + len(chunk)
                yield chunk

    def numbers(self, lines, first, readers):
        """The numbers of some lines, the first one of which has this number; if one is wrong, a slower search finds it."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # NumPy's, where all lines are empty
                table = np.loadtxt(lines, comments=None, delimiter=self.delimiter, converters=readers, ndmin=2)
            if table.shape[1] == self.width and np.isfinite(table).all():
                return table
        except (KeyError, UserWarning, ValueError):
            pass
        good = [
            [self.value(number, *item, readers) for item in enumerate(self.split(number, line))]
            for number, line in enumerate(lines, first)
            if not is_blank(line, self.delimiter)
        ]
        return np.array(good).reshape(-1, self.width)

    def split(self, number, line):
        """The words of a line, as many as there are columns."""
        try:
            words = split(line, self.delimiter)
        except csv.Error as error:
            raise ValueError(f"{self.path}: line {number} has no numbers that can be told apart ({error}); {REMEDY}") from None
        if len(words) != self.width:
            raise ValueError(f"{self.path}: line {number} has {len(words)} columns, expected {self.width}; {REMEDY}")
        return words

    def value(self, line, column, word, readers):
        """What a word is as a number."""
        try:
            value = readers[column](word.strip()) if column in readers else number(word)
        except KeyError:
            raise ValueError(self.wrong(line, column, word, "a class of the training")) from None
        if value is None:
            raise ValueError(self.wrong(line, column, word, FINITE))
        return value

    def wrong(self, line, column, word, wanted):
        """The message about a word."""
        words = wanted == FINITE and not word[:1].isdigit() and self.has_words(column, is_word)
        remedy = f"leave the column out with drop={column}, or say kind=labels if it has the classes" if words else REMEDY
        what = f"{shown(word)}, in column {column}, counted from 0{f' ({self.names[column]})' if self.names else ''}"
        return f"{self.path}: line {line} holds {what}, where {wanted} must be; {remedy}"


def table_in(path, names=None):
    """The Text at a path. names: "yes" or "no", whether line 1 names the columns; None where that must be clear from it."""
    with opened(path) as lines:
        found = some(lines, 1 + FOLLOWING) or [""]
    found[0] = found[0].lstrip("# ")  # the mark in front of names that NumPy writes
    if not found[0].strip():
        raise ValueError(f"{path}: the first line is empty; begin with the names of the columns, or with numbers")
    if found[0].count("\0") > 1:
        raise ValueError(f"{path}: every other byte of line 1 is zero, as in UTF-16 without its mark; write it in UTF-8")
    bare = re.sub('"[^"]*"', "", found[0])
    delimiter = next((mark for mark in ";\t," if mark in bare), None)
    try:
        words = [[*map(str.strip, split(line, delimiter))] for line in found if not is_blank(line, delimiter)]
    except csv.Error as error:
        raise ValueError(f"{path}: one of the first lines holds no names of columns and no numbers ({error})") from None
    named = has_names(path, *words) if names is None else names == "yes"
    note = "" if names else f"line 1 of {path.name} is taken as {NAMED if named else UNNAMED}"
    columns = tuple(map(printable, words[0])) if named else None
    return Text(path, delimiter, len(words[0]), columns, int(named), tuple(words[named:]), note)


def read_table(path, columns, skip=0, most=None):
    """The numbers of a text with white space between them, at most so many rows: float64, (rows, columns)."""
    blocks = [np.empty((0, columns))]
    with tqdm(total=most, desc=f"reading {path.name}", unit=" rows", delay=2, disable=None) as bar:
        for block in Text(path, None, columns, skip=skip).blocks(most=most):
            blocks.append(block)
            bar.update(len(block))
    return np.concatenate(blocks)


@contextmanager
def opened(path, skip=0):
    """The lines of a text behind some, in UTF-8, or UTF-16 with its mark; other bytes become marks that are no numbers."""
    with open(path, "rb", opener=limits.ordinary) as file:
        wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    with open(path, encoding="utf-16" if wide else "utf-8-sig", errors="replace", opener=limits.ordinary) as file:
        yield islice(limits.lines_of(file, path, limits.longest_text()), skip, None)


def some(lines, most):
    """The next of the `lines`, at most so many, and no more than can be taken apart at once."""
    found, length = [], 0
    for line in islice(lines, most):
        found.append(line)
        length += len(line)
        if length >= limits.longest_text():
            break
    return found


def split(line, delimiter):
    """The words of a line; csv.Error if they can not be told apart, such as behind quotes that do not close."""
    if delimiter is None:
        return ["".join(word) for word in re.findall('"([^"]*)"|(\\S+)', line)]
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True))


def is_blank(line, delimiter):
    """Whether a line has nothing, not even marks between missing values."""
    return not line.strip(None if delimiter is None else " \r\n")


def has_names(path, first, *lines):
    """Whether the words of the first line are the names of the columns, as those of some more lines tell; else ValueError."""
    below, every = Text(path, None, len(first), head=lines), range(len(first))
    worded = [i for i in every if below.has_words(i, is_word)]
    others = [i for i in every if number(first[i]) is None]
    wrong = [i for i in every if (i in others) != (i in worded)]
    if len(others) == len(first) and any(map(is_name, first)):
        return bool(wrong) or not all(any(words[i] == first[i] for words in lines if i < len(words)) for i in worded)
    if not wrong and len(others) < len(first):
        rest = [i for i in every if i not in worded]
        reason = like_names([first[i] for i in rest], [[words[i] for i in rest] for words in lines if len(words) == len(first)])
        if not reason:
            return False
    else:
        at = others[0] if len(others) == len(first) else wrong[0]
        why = "which is no name" if len(others) == len(first) else "beside numbers" if at in others else "where words follow"
        reason = f"it holds {shown(first[at])}, {why}, in column {at}, counted from 0"
    raise ValueError(f"{path}: line 1 may be the names of the columns or a sample: {reason}; add names=yes or names=no")


def like_names(first, lines):
    """Why numbers may be names, such as years or wavelengths, or "". lines: the words of some lines that follow."""
    numbers, columns = [number(word) for word in first], list(zip(*lines, strict=False))
    steps = np.diff(numbers)
    if len(steps) and steps[0] > 0 and np.allclose(steps, steps[0], 1e-6, 0) and (len(steps) > 1 or first in COUNTED):
        return "its numbers are evenly spaced"
    below = [[number(word) for word in column] for column in columns]
    if len(lines) < 3 or any(None in column for column in below):
        return ""
    fractions = sum(not any(word.lstrip("+-").isdigit() for word in column) for column in columns)
    if all(map(str.isdigit, first)) and len(set(first)) == len(first) and 2 * fractions > len(first):
        return "its numbers are whole ones, unlike those below"
    spans = [(min(column), max(column)) for column in below]
    if all(not 2 * low - high <= value <= 2 * high - low for value, (low, high) in zip(numbers, spans, strict=True)):
        return "its numbers are far from all that follow"
    return ""


def number(word):
    """The finite number that a word is, or None. Fortran writes D for E."""
    value = float(word.upper().replace("D", "E")) if NUMBER.fullmatch(word) else math.inf
    return value if math.isfinite(value) else None


def is_word(word):
    """Whether it is no number and no missing value."""
    return number(word) is None and word.lower() not in MISSING and any(map(str.isalnum, word))


def is_name(word):
    """Whether it is a word that begins as a name, and so is no date and no number with a unit."""
    return word[:1].isalpha() and is_word(word)


def shown(word):
    """A word in a message."""
    text = printable(" ".join(word[:SHOWN].split()))
    return f"'{text}'" if text else "nothing"


def printable(word):
    """A word whose control characters, which a terminal might obey, are question marks."""
    return "".join(letter if letter.isprintable() else "?" for letter in word)
