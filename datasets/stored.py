"""Arrays in files that anyone may have made: NPY, NPZ, HDF5, and tables in text files (CSV, TSV, white space).

An array that lies in its file as it lies in memory is mapped there, so that each rank reads only its rows. Of every other one
the rows are read once, block by block, to be converted. Nothing is unpickled, and nothing is read that lies in other files.
Arrays hold numbers; one column of a text, or an array of texts, may hold the names of classes.
"""

import codecs
import csv
import io
import math
import os
import re
import warnings
import zipfile
import zlib
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice, starmap
from tokenize import TokenError

import h5py
import numpy as np
from tqdm import tqdm

from gridgrad.nn.files import limits
from gridgrad.nn.files.hdf5_arrays import DAMAGED, mapped, one_line, place_of, reading

BLOCK = 1 << 23  # bytes that are read at a time
ROWS = 1 << 12  # texts that are read at a time
HEADER = 1 << 17  # bytes at the beginning of an NPY file, within which its header ends
# what NumPy and zipfile raise for damaged files
NOT_NPY = EOFError, OSError, OverflowError, SyntaxError, TokenError, TypeError, ValueError
NOT_ZIP = zipfile.BadZipFile, zlib.error, EOFError, LookupError, NotImplementedError, OSError, RuntimeError, ValueError

CHUNK = 50_000  # lines at most, and no more of them than have a few million characters
FINITE, REMEDY = "a finite number", "mend that line, or fetch the file anew"
SHOWN = 40  # characters of what is no number
FOLLOWING = 100  # lines behind the first one that tell what it is
NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eEdD][+-]?[0-9]+)?\s*")  # less than float() takes, such as 1_000
MISSING = "na", "n/a", "nan", "null", "none", "nil", "missing", "inf", "infinity"
COUNTED = ["0", "1"], ["1", "2"]
NAMED = "the names of the columns (add names=no if it is a sample)"
UNNAMED = "a sample (add names=yes if it names the columns)"


class Stored:
    """An array in a file, `where` for messages; `count` gives the number of its rows, and `read` yields some rows at a time.
    map: the array itself, mapped, or None. columns: their names, or None. note: what was guessed, for the user."""

    def __init__(self, where, row_shape, dtype, count, read=None, map=None, columns=None, note=""):
        self.where, self.row_shape, self.dtype, self.count, self.read = where, row_shape, dtype, count, read
        self.map, self.columns, self.note = map, columns, note
        self.width, self.is_of_words = math.prod(row_shape), dtype.kind in "US"
        self.numbers = np.dtype(np.int32) if self.is_of_words else dtype  # the type of the rows that are written

    def has_words(self, column, is_word):
        """Whether a column has names of classes, as `is_word` tells."""
        return self.is_of_words

    def words(self, column, is_word, most):
        """The different names of classes in a column, in alphabetical order."""
        return sorted({word for block in self.read() for word in words_in(block)})

    def blocks(self, needed, labels):
        """Yields the rows as numbers. needed: columns that are read. labels: {column: {word: label}}, of those with words."""
        for block in self.read():
            if self.is_of_words:
                words, numbers = words_in(block), labels.get(0, {})
                if others := sorted(set(words) - numbers.keys()):
                    raise ValueError(f"{self.where}: '{others[0]}' is none of the classes to train on")
                block = np.array([numbers[word] for word in words]).reshape(block.shape)
            yield block


def read(path, names=None):
    """{name: Stored} of what is in a file; the name is "" where it holds one array without a name. names: of `table_in`."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: of none of the formats {', '.join(FORMATS)}, which the end of its name says")
    return {"": table_in(path, names)} if is_text(path) else FORMATS[path.suffix.lower()](path)


def is_text(path):
    return FORMATS.get(path.suffix.lower()) is table_in


def are_numbers(dtype):
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def words_in(block):
    """The texts of an array, as a list."""
    return (np.char.decode(block, "utf-8", "backslashreplace") if block.dtype.kind == "S" else block).ravel().tolist()


def per_block(row_shape, dtype, block=BLOCK):
    """How many rows a block of so many bytes has."""
    return max(1, block // max(1, math.prod(row_shape) * dtype.itemsize))


def slices(array):
    """Yields the rows of an array or of an open HDF5 dataset, some at a time."""
    step = per_block(array.shape[1:], array.dtype)
    for start in range(0, len(array), step):
        yield array[start : start + step]


def npy(path):
    try:
        with open(path, "rb") as file:
            shape, by_columns, dtype = npy_header(file)
            if dtype.hasobject or file.tell() + math.prod(shape) * dtype.itemsize > os.path.getsize(path):
                raise ValueError("it holds Python's objects, or less than its shape says")
            array = mapped(path, dtype, file.tell(), shape, "F" if by_columns else "C")
    except NOT_NPY as error:
        raise ValueError(f"{path}: damaged or no NPY file of numbers ({one_line(error)}); write it anew") from None
    if not array.ndim:
        return {}
    by_rows = array if array.flags.c_contiguous else None
    return {"": Stored(str(path), array.shape[1:], array.dtype, partial(len, array), partial(slices, array), by_rows)}


def npz(path):
    found = {}
    try:
        with zipfile.ZipFile(path) as file:
            for info in file.infolist():
                with file.open(info) as member:
                    shape, _, dtype = npy_header(member)
                    missing = member.tell() + math.prod(shape) * dtype.itemsize - info.file_size
                if missing and not dtype.hasobject:
                    raise ValueError(f"{info.filename} has {missing} bytes less than its shape {shape} says")
                limits.check_unpacked(info.file_size, info.compress_size)
                name = info.filename.removesuffix(".npy")
                if name in found:
                    raise ValueError(f"there are two arrays {name}")
                if shape:
                    blocks = partial(unpacked, path, info.filename)
                    found[name] = Stored(f"{path}: {name}", shape[1:], dtype, partial(int, shape[0]), blocks)
    except (*NOT_ZIP, *NOT_NPY) as error:
        raise ValueError(f"{path}: damaged or no NPZ file of numbers ({one_line(error)}); write it anew") from None
    return found


def npy_header(file):
    """(shape, whether it is in Fortran's order, type) at the beginning of an NPY file, behind which the numbers follow."""
    head = io.BytesIO(file.read(HEADER))  # NumPy reads as many bytes as the file says
    version = np.lib.format.read_magic(head)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    headers[3, 0] = headers[2, 0]  # which has names of fields in any letters besides
    if version not in headers:
        raise ValueError(f"version {version} of NPY")
    found = headers[version](head)
    file.seek(head.tell())
    return found


def unpacked(path, name):
    """Yields the rows of an array in an NPZ file, some at a time: many if it must be unpacked anew for them."""
    try:
        with zipfile.ZipFile(path) as file, file.open(name) as member:
            shape, by_columns, dtype = npy_header(member)
            begin, width = member.tell(), math.prod(shape[1:])
            step = per_block(shape[1:], dtype, limits.BUDGET // 4 if by_columns else BLOCK)
            for start in range(0, shape[0], step):
                some = min(step, shape[0] - start)
                if not by_columns:
                    yield np.frombuffer(member.read(some * width * dtype.itemsize), dtype).reshape(some, *shape[1:])
                    continue
                columns = np.empty((width, some), dtype)
                for number, column in enumerate(columns):
                    member.seek(begin + (number * shape[0] + start) * dtype.itemsize)
                    column[:] = np.frombuffer(member.read(some * dtype.itemsize), dtype)
                yield columns.T.reshape(some, *shape[1:], order="F")
    except NOT_ZIP as error:
        raise ValueError(f"{path}: {name} can not be unpacked ({one_line(error)}); write it anew") from None


def hdf5(path):
    with reading(path, "damaged or not HDF5", "write it anew") as file:
        found, arrays, size = [], {}, os.path.getsize(path)
        file.visititems(lambda name, thing: found.append((name, thing)) if isinstance(thing, h5py.Dataset) else None)
        for name, data in found:
            with suppress(*DAMAGED):  # a type that NumPy does not know
                if not data.shape or data.is_virtual or data.external:
                    continue
                words, name = data.dtype.kind == "O" and bool(h5py.check_string_dtype(data.dtype)), os.fsdecode(name)
                dtype, place = np.dtype("U") if words else data.dtype, place_of(data, size)
                array = None if place is None or not are_numbers(dtype) else mapped(path, dtype, place, data.shape)
                count = partial(checked, path, name) if array is None else partial(len, array)
                blocks = partial(hyperslabs, path, name, words)
                arrays[name] = Stored(f"{path}: {name}", data.shape[1:], dtype, count, blocks, array)
        return arrays


def checked(path, name):
    """The number of rows of a dataset; ValueError if it is too large to be unpacked."""
    with reading(path, f"{name} can not be read", "write it anew, without compression") as file:
        data = file[os.fsencode(name)]
        limits.check_dataset(data)
        return len(data)


def hyperslabs(path, name, words):
    """Yields the rows of a dataset of an HDF5 file, some at a time; words: with marks in place of bytes that are no UTF-8."""
    with reading(path, f"{name} can not be read", "write it anew") as file:
        data = file[os.fsencode(name)]
        step = ROWS if words else per_block(data.shape[1:], data.dtype)
        for start in range(0, len(data), step):
            some = slice(start, start + step)
            yield data.asstr("utf-8", "replace")[some].astype(str) if words else data[some]


class Text(Stored):
    """A table in a text file, read some lines at a time, and searched line by line where one is wrong. delimiter: between the
    columns, None for white space. skip: lines in front. head: the words of the first samples."""

    def __init__(self, path, delimiter, width, columns=None, skip=0, head=(), note=""):
        count = lambda: sum(1 for _ in self.lines())  # noqa: E731
        super().__init__(str(path), (width,), np.dtype(np.float64), count, columns=columns, note=note)
        self.delimiter, self.skip, self.head = delimiter, skip, head

    def has_words(self, column, is_word):
        """Whether most of the first samples have in this column what `is_word` takes for a word."""
        return 2 * sum(column < len(words) and is_word(words[column]) for words in self.head) > len(self.head)

    def lines(self):
        """Yields (number, line) of all rows."""
        with opened(self.where, self.skip) as lines:
            for number, line in enumerate(lines, self.skip + 1):
                if not is_blank(line, self.delimiter):
                    yield number, line

    def texts(self, columns):
        """Yields the words that each row has in some columns."""
        for words in starmap(self.split, self.lines()):
            yield [words[column] for column in columns]

    def words(self, column, is_word, most):
        """The different words of a column, in alphabetical order; when there are more than `most`, no more are looked for."""
        found = set()
        for number, line in self.lines():
            word = self.split(number, line)[column].strip()
            if not is_word(word):
                raise self.wrong(number, column, word, "the name of a class")
            found.add(word)
            if len(found) > most:
                break
        return sorted(found)

    def blocks(self, needed=None, labels=None, most=None):
        """Yields rows as float64, (rows, width), `most` of them at most. ValueError, with the line, for one that is wrong.
        needed: the numbers of the columns that are read; the others become 0. labels: {column: {word: label}}."""
        unread = [column for column in range(self.width) if needed is not None and column not in needed]
        readers = {column: words.__getitem__ for column, words in (labels or {}).items()} | dict.fromkeys(unread, lambda _: 0.0)
        line, rows = self.skip, 0
        with opened(self.where, self.skip) as lines:
            while found := some(lines, CHUNK if most is None else min(CHUNK, most - rows)):
                chunk = self.numbers_in(found, line + 1, readers)
                line, rows = line + len(found), rows + len(chunk)
                yield chunk

    def numbers_in(self, lines, first, readers):
        """The numbers of some lines, the first one of which is line `first`; if one is wrong, a slower search finds it."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # NumPy's, where all lines are empty
                table = np.loadtxt(lines, comments=None, delimiter=self.delimiter, converters=readers, ndmin=2)
            if table.shape[1] == self.width and np.isfinite(table).all():
                return table
        except (KeyError, UserWarning, ValueError):
            pass
        good = [
            [self.value(number, column, word, readers) for column, word in enumerate(self.split(number, line))]
            for number, line in enumerate(lines, first)
            if not is_blank(line, self.delimiter)
        ]
        return np.array(good).reshape(-1, self.width)

    def split(self, number, line):
        """The words of a line, as many as there are columns."""
        try:
            words = split(line, self.delimiter)
        except csv.Error as error:
            raise ValueError(f"{self.where}: line {number} has no numbers that can be told apart ({error}); {REMEDY}") from None
        if len(words) != self.width:
            raise ValueError(f"{self.where}: line {number} has {len(words)} columns, expected {self.width}; {REMEDY}")
        return words

    def value(self, line, column, word, readers):
        """What a word is as a number."""
        try:
            value = readers[column](word.strip()) if column in readers else number(word)
        except KeyError:
            raise self.wrong(line, column, word, "a class of the training") from None
        if value is None:
            raise self.wrong(line, column, word, FINITE)
        return value

    def wrong(self, line, column, word, wanted):
        """The ValueError about a word."""
        words = wanted == FINITE and not word[:1].isdigit() and self.has_words(column, is_word)
        remedy = f"leave the column out with drop={column}, or say kind=labels if it has the classes" if words else REMEDY
        what = f"{shown(word)}, in column {column}, counted from 0{f' ({self.columns[column]})' if self.columns else ''}"
        return ValueError(f"{self.where}: line {line} holds {what}, where {wanted} must be; {remedy}")


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
    named = has_names(path, words[0], words[1:]) if names is None else names == "yes"
    note = "" if names else f"line 1 of {path.name} is taken as {NAMED if named else UNNAMED}"
    columns = tuple(map(printable, words[0])) if named else None
    return Text(path, delimiter, len(words[0]), columns, int(named), words[named:], note)


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


def has_names(path, first, lines):
    """Whether the words of the first line are the names of the columns. ValueError where the words of `lines` do not tell."""
    columns = [[words[i] for words in lines if i < len(words)] for i in range(len(first))]
    numeric = [number(word) is not None for word in first]
    worded = [2 * sum(map(is_word, column)) > len(lines) for column in columns]
    if not any(numeric) and any(map(is_name, first)):  # names, or a sample of words alone, all of which come again
        return not all(worded) or any(word not in column for word, column in zip(first, columns, strict=True))
    at = next((i for i in range(len(first)) if numeric[i] == worded[i]), None) if any(numeric) else 0
    if at is None:  # words where words follow, and numbers where numbers do
        rest = [i for i in range(len(first)) if numeric[i]]
        reason = like_names([first[i] for i in rest], [[words[i] for i in rest] for words in lines if len(words) == len(first)])
    else:
        why = "where words follow" if numeric[at] else "beside numbers" if any(numeric) else "which is no name"
        reason = f"it holds {shown(first[at])}, {why}, in column {at}, counted from 0"
    if not reason:
        return False
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


FORMATS = dict.fromkeys((".csv", ".tsv", ".txt", ".dat"), table_in) | {".npy": npy, ".npz": npz, ".h5": hdf5, ".hdf5": hdf5}
