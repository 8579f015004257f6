"""Arrays in files that anyone may have made: NPY, NPZ, HDF5, and tables of numbers in text files.

An array that lies in its file as it lies in memory is mapped there, so that each rank reads only its rows. Of every other one
the rows are read once, block by block, to be converted. Nothing is unpickled, and nothing is read that lies in other files.
"""

import io
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tokenize import TokenError

import h5py
import numpy as np

from gridgrad.datasets import rows, text
from gridgrad.nn.files import limits
from gridgrad.nn.files.hdf5_arrays import DAMAGED, mapped, one_line, place_of

BLOCK = 1 << 23  # bytes that are read at a time
HEADER = 1 << 17  # bytes at the beginning of an NPY file, within which its header ends
NAMED = "the names of the columns (add names=no if it is a sample)"
UNNAMED = "a sample (add names=yes if it names the columns)"
COUNTED = ["0", "1"], ["1", "2"]
MISSING = "na", "n/a", "nan", "null", "none", "nil", "missing", "inf", "infinity"
NOT_NPY = (
    EOFError,
    OSError,
    OverflowError,
    SyntaxError,
    TokenError,
    TypeError,
    ValueError,
)  # what NumPy raises where a file is damaged
NOT_ZIP = zipfile.BadZipFile, zlib.error, EOFError, LookupError, NotImplementedError, OSError, RuntimeError, ValueError


@dataclass(frozen=True)
class Stored:
    """An array in a file.

    where: the file, and the array in it, for messages. row_shape: of one row. dtype: of its numbers. count: gives the number
    of rows, for which a text must be read. blocks: gives an iterator of all rows, some at a time. map: the array itself,
    mapped, or None. columns: their names or None. note: what was guessed about it, for the user.
    """

    where: str
    row_shape: tuple[int, ...]
    dtype: np.dtype
    count: Callable[[], int]
    blocks: Callable[[], Iterator[np.ndarray]]
    map: np.ndarray | None = None
    columns: tuple[str, ...] | None = None
    note: str = ""

    @property
    def width(self) -> int:
        return math.prod(self.row_shape)

    @property
    def is_of_numbers(self) -> bool:
        return are_numbers(self.dtype)


def read(path: Path, names: str | None = None) -> dict[str, Stored]:
    """{name: array} of what is in a file; the name is "" where a file holds one array without a name. names: of `text_table`.

    ValueError if the file is damaged, or its name has another ending than those of FORMATS.
    """
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: of none of the formats {', '.join(FORMATS)}, which the end of its name says")
    return text_table(path, names) if is_text(path) else FORMATS[path.suffix.lower()](path)


def is_text(path: Path) -> bool:
    return FORMATS.get(path.suffix.lower()) is text_table


def are_numbers(dtype):
    return dtype.kind in "biuf" and dtype.itemsize <= 8


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
    with rows.reading(path, "damaged or not HDF5", "write it anew") as file:
        found, arrays = [], {}
        file.visititems(lambda name, thing: found.append((name, thing)) if isinstance(thing, h5py.Dataset) else None)
        for name, data in found:
            with suppress(*DAMAGED):  # a type that NumPy does not know
                if data.shape and not data.is_virtual and not data.external:
                    arrays[os.fsdecode(name)] = of_dataset(path, os.fsdecode(name), data)
        return arrays


def of_dataset(path, name, data):
    place, where = place_of(data, os.path.getsize(path)), f"{path}: {name}"
    array = None if place is None or not are_numbers(data.dtype) else mapped(path, data.dtype, place, data.shape)
    count = partial(int, data.shape[0]) if array is not None else partial(checked, path, name)
    return Stored(where, data.shape[1:], data.dtype, count, partial(hyperslabs, path, name), array)


def checked(path, name):
    """The number of rows of a dataset; ValueError if it is too large to be unpacked."""
    with rows.reading(path, f"{name} can not be read", "write it anew, without compression") as file:
        data = file[os.fsencode(name)]
        limits.check_dataset(data)
        return len(data)


def hyperslabs(path, name):
    """Yields the rows of a dataset of an HDF5 file, some at a time."""
    with rows.reading(path, f"{name} can not be read", "write it anew") as file:
        yield from slices(file[os.fsencode(name)])


def text_table(path, names=None):
    """A text: one line of names or none, then numbers, with semicolons, tabs, commas or spaces between them.

    names: "yes" or "no", or None where the first line shows it. ValueError if it does not.
    """
    first, delimiter, lines = text.head(path)
    named = has_names(path, first, lines) if names is None else names == "yes"
    note = "" if names else f"line 1 of {path.name} is taken as {NAMED if named else UNNAMED}"
    skip, columns = int(named), tuple(map(text.printable, first)) if named else None
    count = partial(text.count_rows, path, delimiter, skip)
    blocks = partial(text.read_chunks, path, len(first), delimiter, skip, names=columns)
    return {"": Stored(str(path), (len(first),), np.dtype(np.float64), count, blocks, columns=columns, note=note)}


def has_names(path, first, lines):
    """Whether the words of the first line are the names of the columns. ValueError where that is unclear.

    lines: the words of some lines that follow.
    """
    numbers = [text.number(word) for word in first]
    others = [i for i, value in enumerate(numbers) if value is None]
    if not others:
        if not (reason := like_names(first, numbers, lines)):
            return False
    elif len(others) == len(first) and any(map(is_name, first)):
        return True
    else:
        beside = "beside numbers" if len(others) < len(first) else "which is no name"
        reason = f"it holds {text.shown(first[others[0]])}, {beside}, in column {others[0]}, counted from 0"
    raise ValueError(f"{path}: line 1 may be the names of the columns or a sample: {reason}; add names=yes or names=no")


def like_names(first, numbers, lines):
    """Why numbers may be names, such as years or wavelengths, or "". lines: the words of some lines that follow."""
    steps = np.diff(numbers)
    if len(steps) and steps[0] > 0 and np.allclose(steps, steps[0], 1e-6, 0) and (len(steps) > 1 or first in COUNTED):
        return "its numbers are evenly spaced"
    words = list(zip(*lines, strict=False))
    columns = [[text.number(word) for word in column] for column in words]
    if len(lines) < 3 or len(columns) != len(first) or any(None in column for column in columns):
        return ""
    fractions = sum(not any(map(is_whole, column)) for column in words)
    if all(map(str.isdigit, first)) and len(set(first)) == len(first) and 2 * fractions > len(first):
        return "its numbers are whole ones, unlike those below"
    spans = [(min(column), max(column)) for column in columns]
    if all(not 2 * low - high <= value <= 2 * high - low for value, (low, high) in zip(numbers, spans, strict=True)):
        return "its numbers are far from all that follow"
    return ""


def is_whole(word):
    return word.strip().lstrip("+-").isdigit()


def is_name(word):
    """Whether a word is no missing value, no date and no number with a unit."""
    return word.lower() not in MISSING and word[:1].isalpha()


FORMATS = {
    ".csv": text_table,
    ".tsv": text_table,
    ".txt": text_table,
    ".dat": text_table,
    ".npy": npy,
    ".npz": npz,
    ".h5": hdf5,
    ".hdf5": hdf5,
}
